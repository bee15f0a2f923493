#include "core/base/file.h"

#include <fcntl.h>
#include <filesystem>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/data/testing.h"
#include "tests/testing/file_size_limit.h"

namespace cohort {
namespace {

using data::expect_error;
using data::TempDir;

size_t files_in(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

TEST(ReadFile, ReturnsTheContent) {
  const TempDir dir;
  const std::string content("a\0b\n", 4);
  EXPECT_EQ(read_file(dir.write("f", content)), content);
  EXPECT_EQ(read_file(dir.write("empty", "")), "");
}

TEST(ReadFile, NamesTheFileAndTheReason) {
  const TempDir dir;
  expect_error([&] { read_file(dir.path("none")); }, Code::kNotFound,
               {dir.path("none"), "No such file"});
  expect_error([&] { read_file(dir.root()); }, Code::kInvalidArgument,
               {dir.root(), "not a regular file"});
  expect_error([&] { read_file(dir.write("f", "12345"), 4); }, Code::kResourceExhausted,
               {dir.path("f"), "5 bytes", "4"});
}

TEST(ReadFile, DoesNotWaitForAPipe) {
  const TempDir dir;
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  expect_error([&] { read_file(dir.path("pipe")); }, Code::kInvalidArgument, {dir.path("pipe")});
}

TEST(InputFile, ReadsInPieces) {
  const TempDir dir;
  InputFile file(dir.write("f", "12345"));
  EXPECT_EQ(file.size(), 5u);
  char buffer[4] = {};
  EXPECT_EQ(file.read(buffer, 3), 3u);
  EXPECT_STREQ(buffer, "123");
  EXPECT_EQ(file.read(buffer, 3), 2u);
  EXPECT_EQ(file.read(buffer, 3), 0u);
}

TEST(WriteFileAtomically, CreatesAndReplaces) {
  const TempDir dir;
  write_file_atomically(dir.path("f"), "first");
  write_file_atomically(dir.path("f"), std::string("\0second", 7));
  EXPECT_EQ(read_file(dir.path("f")), std::string("\0second", 7));
  EXPECT_EQ(files_in(dir.root()), 1u);
}

TEST(WriteFileAtomically, LeavesNothingBehindWhenItFails) {
  const TempDir dir;
  expect_error([&] { write_file_atomically(dir.path("none/f"), "x"); }, Code::kNotFound,
               {dir.path("none/f")});
  std::filesystem::create_directories(dir.path("folder/inside"));
  expect_error([&] { write_file_atomically(dir.path("folder"), "x"); }, Code::kInvalidArgument,
               {dir.path("folder")});
  EXPECT_EQ(files_in(dir.root()), 1u);
}

TEST(WriteFileAtomically, KeepsTheContentOfBeforeWhenTheDiskIsFull) {
  const TempDir dir;
  write_file_atomically(dir.path("f"), "whole");
  const auto write_too_much = [&] {
    const testing::FileSizeLimit full(1024);
    write_file_atomically(dir.path("f"), std::string(4096, 'x'));
  };
  for (int times = 0; times < 2; ++times)  // in the same words
    expect_error(write_too_much, Code::kResourceExhausted, {dir.path("f") + ": File too large"});
  EXPECT_EQ(read_file(dir.path("f")), "whole");
  EXPECT_EQ(files_in(dir.root()), 1u);
}

TEST(WriteFileAtomically, RemovesWhatKilledWritersOfThePathHaveLeft) {
  const TempDir dir;
  dir.write("f.0123456789abcdef.tmp", "half");
  const std::set<std::string> others = {"f.tmp",
                                        "f.mine.tmp",
                                        "f.2024.tmp",
                                        "f.0123456789abcdef0.tmp",
                                        "f.0123456789abcdeg.tmp",
                                        "f.0.0123456789abcdef.tmp",
                                        "g.0123456789abcdef.tmp"};
  for (const std::string& other : others) dir.write(other, "");
  const int held = open(dir.write("f.fedcba9876543210.tmp", "being written").c_str(), O_RDWR);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  write_file_atomically(dir.path("f"), "whole");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir.root()))
    names.insert(entry.path().filename());
  std::set<std::string> expected = others;
  expected.insert({"f", "f.fedcba9876543210.tmp"});
  EXPECT_EQ(names, expected);
  EXPECT_EQ(read_file(dir.path("f")), "whole");
  close(held);
}

TEST(WriteFileAtomically, TakesTheLongestNames) {
  const TempDir dir;
  std::string umlauts = "x";
  for (int i = 0; i < 127; ++i) umlauts += "\u00fc";
  for (const std::string& name : {std::string(255, 'n'), umlauts}) {
    ASSERT_EQ(name.size(), 255u);
    check_writable(dir.path(name));
    write_file_atomically(dir.path(name), "whole");
    EXPECT_EQ(read_file(dir.path(name)), "whole");
  }
  EXPECT_EQ(files_in(dir.root()), 2u);
}

TEST(WriteFileAtomically, FollowsLinksAndKeepsPermissions) {
  const TempDir dir;
  ASSERT_EQ(chmod(dir.write("f", "old").c_str(), 0600), 0);
  std::filesystem::create_symlink("f", dir.path("link"));
  write_file_atomically(dir.path("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir.path("link")));
  EXPECT_EQ(read_file(dir.path("f")), "new");
  EXPECT_EQ(std::filesystem::status(dir.path("f")).permissions(), std::filesystem::perms(0600));
  std::filesystem::create_symlink("later", dir.path("to later"));
  write_file_atomically(dir.path("to later"), "new");
  EXPECT_EQ(read_file(dir.path("later")), "new");
  std::filesystem::create_symlink("circle", dir.path("circle"));
  expect_error([&] { write_file_atomically(dir.path("circle"), "x"); }, Code::kInvalidArgument,
               {dir.path("circle")});
}

TEST(WriteFileAtomically, LeavesWhatIsNoFileAlone) {
  const TempDir dir;
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", dir.path("link"));
  for (const std::string& path : {dir.path("pipe"), dir.path("link")}) {
    expect_error([&] { write_file_atomically(path, "x"); }, Code::kInvalidArgument,
                 {dir.path("pipe"), "not a regular file"});
    expect_error([&] { check_writable(path); }, Code::kInvalidArgument,
                 {dir.path("pipe"), "not a regular file"});
  }
  EXPECT_TRUE(std::filesystem::is_fifo(dir.path("pipe")));
  expect_error([] { write_file_atomically("", "x"); }, Code::kInvalidArgument, {"empty"});
}

TEST(CheckWritable, ChangesNothing) {
  const TempDir dir;
  check_writable(dir.path("none"));
  EXPECT_EQ(files_in(dir.root()), 0u);
  check_writable(dir.write("f", "whole"));
  EXPECT_EQ(read_file(dir.path("f")), "whole");
  EXPECT_EQ(files_in(dir.root()), 1u);
}

TEST(CheckWritable, FailsWhereTheFileCouldNotBeWritten) {
  const TempDir dir;
  std::filesystem::create_directories(dir.path("folder"));
  for (const std::string& path : {dir.path("none/f"), dir.path("folder")}) {
    const Error later = data::error_of([&] { write_file_atomically(path, ""); });
    expect_error([&] { check_writable(path); }, later.code(), {path});
  }
}

}  // namespace
}  // namespace cohort
