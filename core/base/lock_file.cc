#include "core/base/lock_file.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"
#include "core/base/system_error.h"

namespace cohort {
namespace {

constexpr std::chrono::milliseconds kTimeToEnd(1000), kLookInterval(10);

// Who had it may have removed it since it was opened.
bool is_there(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && status.st_nlink > 0;
}

}  // namespace

LockFile::LockFile(std::string path, const std::string& taken) : path_(std::move(path)) {
  const auto end = std::chrono::steady_clock::now() + kTimeToEnd;
  while (!try_lock()) {
    if (std::chrono::steady_clock::now() >= end) fail(Code::kFailedPrecondition, taken);
    std::this_thread::sleep_for(kLookInterval);
  }
}

LockFile::~LockFile() {
  ::unlink(path_.c_str());  // before another has the lock
  ::close(file_);
}

int LockFile::open_and_lock(int access) {
  file_ = ::open(path_.c_str(), access | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) fail_errno("open", path_);
  return ::flock(file_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
}

// Whether it is this one's, as far as can be known.
bool LockFile::try_lock() {
  // A file that is read keeps nobody from making its disk read-only, but NFS locks only those that
  // may be written.
  int error = open_and_lock(O_RDONLY | O_NONBLOCK);
  if (error == EBADF) {
    ::close(file_);
    error = open_and_lock(O_RDWR);
  }
  is_exclusive_ = error == 0;
  if (has_no_locks(error) || (is_exclusive_ && is_there(file_))) return true;
  ::close(file_);
  if (is_exclusive_ || error == EWOULDBLOCK || error == EINTR) return false;
  errno = error;
  fail_errno("lock", path_);
}

}  // namespace cohort
