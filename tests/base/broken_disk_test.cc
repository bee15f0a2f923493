// Files that are replaced where the disk breaks, or the process is killed, at any moment.
#include "tests/testing/broken_disk.h"

#include <filesystem>
#include <string>

#include "core/base/file.h"
#include "tests/data/testing.h"

namespace cohort {
namespace {

using testing::BrokenDisk;

TEST(WriteFileAtomically, LeavesTheOldContentOrTheNewOneWhereverItEnds) {
  const int64_t calls = testing::break_at_each_call([](int64_t succeeding, int64_t failing) {
    SCOPED_TRACE(str(failing == 1 ? "one fails" : "all fail", " after ", succeeding));
    const data::TempDir dir;
    const std::string path = dir.write("f", "the old one");
    bool has_failed = false, is_told = false;
    {
      BrokenDisk disk(succeeding, failing);
      try {
        write_file_atomically(path, "the new one");
      } catch (const Error& error) {
        is_told = true;
        EXPECT_EQ(error.code(), Code::kUnknown) << error.what();
      }
      has_failed = disk.has_failed();
    }
    EXPECT_EQ(is_told, has_failed);
    const std::string found = read_file(path);
    EXPECT_TRUE(found == "the new one" || (is_told && found == "the old one")) << found;
    write_file_atomically(path, "another");
    EXPECT_EQ(read_file(path), "another");
    for (const auto& entry : std::filesystem::directory_iterator(dir.root()))
      EXPECT_EQ(entry.path().string(), path) << "nothing stays beside it";
    return has_failed;
  });
  EXPECT_EQ(calls, 4) << "write, sync, rename, and sync the folder";
}

}  // namespace
}  // namespace cohort
