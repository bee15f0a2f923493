#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <functional>
#include <limits>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Replaces the calls by which the process changes files that it has opened, and their names: for
// the one source of a program of its own.
namespace cohort::testing {

// As long as it lives, so many of these calls succeed, and after them some do nothing but to report
// EIO; the first of those, where it writes, has written half. Where all that follow fail, it leaves
// files as a process does that is killed at that moment. There is one at a time.
class BrokenDisk {
 public:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  explicit BrokenDisk(int64_t succeeding, int64_t failing = kAll)
      : succeeding_(succeeding), failing_(failing) {
    current_ = this;
  }
  ~BrokenDisk() { current_ = nullptr; }
  BrokenDisk(const BrokenDisk&) = delete;
  BrokenDisk& operator=(const BrokenDisk&) = delete;

  bool has_failed() const { return calls_ > succeeding_; }

  // For a call that takes place: its number among those that fail, from 1 on; 0: it does not.
  static int64_t count_failing() {
    BrokenDisk* const disk = current_;
    if (disk == nullptr) return 0;
    const int64_t number = ++disk->calls_ - disk->succeeding_;
    return number > 0 && number <= disk->failing_ ? number : 0;
  }

 private:
  static inline std::atomic<BrokenDisk*> current_ = nullptr;
  const int64_t succeeding_, failing_;
  std::atomic<int64_t> calls_ = 0;
};

// Does `work` for a disk that breaks at its first call, at its second and so on, once for this call
// alone and once for all that follow, until it returns false: no call has failed. How many calls
// there are then.
inline int64_t break_at_each_call(
    const std::function<bool(int64_t succeeding, int64_t failing)>& work) {
  int64_t calls = 0;
  for (const int64_t failing : {int64_t{1}, BrokenDisk::kAll})
    for (calls = 0; work(calls, failing);) ++calls;
  return calls;
}

// Of a call that may fail as a whole.
template <typename Call>
int unless_broken(const Call& call) {
  if (BrokenDisk::count_failing() == 0) return call();
  errno = EIO;
  return -1;
}

}  // namespace cohort::testing

// NOLINTBEGIN(misc-definitions-in-headers): the one source is the program
extern "C" ssize_t write(int descriptor, const void* bytes, size_t count) {
  struct stat status = {};
  const bool is_file =
      descriptor > STDERR_FILENO && ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const int64_t failing = is_file ? cohort::testing::BrokenDisk::count_failing() : 0;
  if (failing == 0) return ::syscall(SYS_write, descriptor, bytes, count);
  if (failing == 1) ::syscall(SYS_write, descriptor, bytes, count / 2);
  errno = EIO;
  return -1;
}

extern "C" int fsync(int descriptor) {
  return cohort::testing::unless_broken(
      [=] { return static_cast<int>(::syscall(SYS_fsync, descriptor)); });
}

extern "C" int rename(const char* from, const char* to) noexcept {
  return cohort::testing::unless_broken([=] { return ::renameat(AT_FDCWD, from, AT_FDCWD, to); });
}

extern "C" int unlink(const char* path) noexcept {
  return cohort::testing::unless_broken([=] { return ::unlinkat(AT_FDCWD, path, 0); });
}

// What std::filesystem::remove() calls.
extern "C" int remove(const char* path) noexcept {
  return cohort::testing::unless_broken([=] {
    if (::unlinkat(AT_FDCWD, path, 0) == 0) return 0;
    return errno == EISDIR ? ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : -1;
  });
}
// NOLINTEND(misc-definitions-in-headers)
