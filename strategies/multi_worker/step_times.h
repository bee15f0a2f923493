#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace cohort {

// What a worker spent a step on.
struct StepTimes {
  std::chrono::nanoseconds computed{0};
  // For how long the network was busy with what it has sent: to the worker for which that was
  // longest, and to the one for which it was shortest, where there are two at least.
  int64_t longest_to = -1;  // a rank; -1: to nobody
  std::chrono::nanoseconds longest{0}, shortest{0};

  // Sets what the times say that it took to send to the workers of a job, which have these names by
  // rank.
  void set_sent(const std::map<std::string, std::chrono::nanoseconds>& times,
                const std::vector<std::string>& names);
};

// For how long the network of each worker has held it up: all that it sends to others, or all that
// others send to it. What is slow with one other worker alone counts for neither, since it may be
// the other's. At least as long as the slowest worker computed: what is less holds nobody up.
std::vector<std::chrono::nanoseconds> network_times(std::span<const StepTimes> workers);

}  // namespace cohort
