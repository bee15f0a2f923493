#include "core/base/lock_file.h"

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/data/testing.h"

namespace cohort {
namespace {

using data::expect_error;
using data::TempDir;

TEST(LockFile, IsOneObjectsAtATimeAndGoesWithIt) {
  const TempDir dir;
  const std::string path = dir.path("lock");
  std::optional<LockFile> first(std::in_place, path, "it is taken");
  EXPECT_TRUE(first->is_exclusive()) << "by a local file system";
  expect_error([&] { LockFile(path, "it is taken"); }, Code::kFailedPrecondition, {"it is taken"});
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  const LockFile second(path, "it is taken");
}

// Each has the file that is there, whoever has removed one before.
TEST(LockFile, IsNeverTwoThreadsAtATime) {
  const TempDir dir;
  std::atomic<int> inside = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round)
        EXPECT_NO_THROW({
          const LockFile held(dir.path("lock"), "it is taken");
          EXPECT_EQ(++inside, 1);
          --inside;
        });
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(LockFile, NamesWhatCannotBeOpened) {
  const TempDir dir;
  expect_error([&] { LockFile(dir.path("none/lock"), ""); }, Code::kNotFound,
               {dir.path("none/lock")});
}

}  // namespace
}  // namespace cohort
