#pragma once

#include <cstdint>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace cohort::testing {

// As long as it lives, this process can start a few threads, but not kTooMany: there is no room
// for their stacks.
class FewThreads {
 public:
  static constexpr int kTooMany = 1000;

  // `room`: of bytes, beyond what is in use; a stack is of megabytes.
  explicit FewThreads(int64_t room = 256 << 20) {
    getrlimit(RLIMIT_AS, &before_);
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + room);
    const rlimit little = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &little);
  }
  ~FewThreads() { setrlimit(RLIMIT_AS, &before_); }
  FewThreads(const FewThreads&) = delete;
  FewThreads& operator=(const FewThreads&) = delete;

 private:
  rlimit before_{};
};

}  // namespace cohort::testing
