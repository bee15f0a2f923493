#include "core/train/appended_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/base/system_error.h"

namespace cohort {

AppendedFile::AppendedFile(std::string path, bool must_be_new)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(),
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (must_be_new ? O_EXCL : 0),
                         0666)) {
  if (descriptor_ < 0) fail_errno(must_be_new ? "create" : "open", path_);
}

AppendedFile::~AppendedFile() { ::close(descriptor_); }

int64_t AppendedFile::length() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) fail_errno("inspect", path_);
  return S_ISREG(status.st_mode) ? status.st_size : 0;
}

void AppendedFile::append(std::string_view record) {
  const int64_t before = length();
  while (!record.empty()) {
    errno = ENOSPC;  // where nothing is written and nothing said
    const ssize_t written = ::write(descriptor_, record.data(), record.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int reason = errno;
      [[maybe_unused]] const int taken_back = ::ftruncate(descriptor_, before);
      errno = reason;
      fail_errno("write to", path_);
    }
    record.remove_prefix(static_cast<size_t>(written));
  }
}

void AppendedFile::cut(int64_t length) {
  if (length >= this->length()) return;
  if (::ftruncate(descriptor_, length) != 0) fail_errno("shorten", path_);
}

}  // namespace cohort
