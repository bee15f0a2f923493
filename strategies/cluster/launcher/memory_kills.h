#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::launcher {

// Tells whom the kernel has killed because a control group of this process, or the host, had no
// memory left: it does so by SIGKILL, and only counts it.
class MemoryKills {
 public:
  // Counts from now on. `root` goes before /proc and /sys.
  explicit MemoryKills(std::string root = "");

  // To be asked once of each process that SIGKILL has ended and nobody is known to have sent that:
  // "its control group was out of memory (limit 90000000 bytes)" or "the host was out of memory".
  // "" when the kernel has killed no more for want of memory than this has told of.
  std::string explain_next();

 private:
  struct Group {
    std::string folder;
    int64_t refusals;  // when counting began: how often it had no more memory to give
  };

  int64_t count() const;

  const std::string root_;
  std::vector<Group> groups_;  // those that count, from the own one upwards
  int64_t told_ = 0;           // of count()
};

}  // namespace cohort::launcher
