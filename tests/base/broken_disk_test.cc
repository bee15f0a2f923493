// Files that are replaced where the disk breaks, or the process is killed, at any moment, and where
// the file system has no locks.
#include "tests/testing/broken_disk.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <sys/file.h>

#include "core/base/file.h"
#include "core/base/lock_file.h"
#include "tests/data/testing.h"

namespace {
std::atomic<bool> has_locks = true;
}  // namespace

extern "C" int flock(int descriptor, int operation) noexcept {
  if (has_locks) return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
  errno = ENOSYS;
  return -1;
}

namespace cohort {
namespace {

// As long as it lives, no file system has any.
struct NoLocks {
  NoLocks() { has_locks = false; }
  ~NoLocks() { has_locks = true; }
  NoLocks(const NoLocks&) = delete;
  NoLocks& operator=(const NoLocks&) = delete;
};

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

TEST(WriteFileAtomically, RemovesWhatIsOldWhereNoLockSaysThatItsWriterHasGone) {
  const data::TempDir dir;
  const NoLocks no_locks;
  const std::string old = dir.write("f.0123456789abcdef.tmp", "half"),
                    recent = dir.write("f.fedcba9876543210.tmp", "being written");
  std::filesystem::last_write_time(
      old, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  write_file_atomically(dir.path("f"), "whole");
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(recent));
}

TEST(LockFile, IsEverybodysWhereThereAreNoLocks) {
  const data::TempDir dir;
  const NoLocks no_locks;
  const LockFile first(dir.path("lock"), "it is taken"), second(dir.path("lock"), "it is taken");
  EXPECT_FALSE(first.is_exclusive() || second.is_exclusive());
}

}  // namespace
}  // namespace cohort
