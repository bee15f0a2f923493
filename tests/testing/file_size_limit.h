#pragma once

#include <csignal>
#include <stdexcept>
#include <sys/resource.h>

namespace cohort::testing {

// While it lives, no file of this process becomes longer than `bytes`: a write goes that far and
// the next one fails, as on a disk that is full. Standard output may be a file, too.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    if (getrlimit(RLIMIT_FSIZE, &usual_) != 0) throw std::runtime_error("cannot read a limit");
    const rlimit small{bytes, usual_.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) throw std::runtime_error("cannot limit files");
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &usual_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  using Handler = void (*)(int);
  const Handler handler_;
  rlimit usual_{};
};

}  // namespace cohort::testing
