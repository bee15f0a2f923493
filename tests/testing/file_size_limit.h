#pragma once

#include <csignal>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <sys/resource.h>

namespace cohort::testing {

// While it lives, no file of this process becomes longer than `bytes`: a write goes that far and
// the next one fails, as on a disk that is full. Standard output may be a file, too; what was
// written to it meanwhile may be lost, and what comes later is not.
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
    for (std::ostream* stream : {&std::cout, &std::cerr}) stream->clear();
    for (std::FILE* file : {stdout, stderr}) std::clearerr(file);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  using Handler = void (*)(int);
  const Handler handler_;
  rlimit usual_{};
};

}  // namespace cohort::testing
