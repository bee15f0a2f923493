#include "strategies/multi_worker/step_times.h"

#include <algorithm>
#include <cstddef>

namespace cohort {

using std::chrono::nanoseconds;

void StepTimes::set_sent(const std::map<std::string, nanoseconds>& times,
                         const std::vector<std::string>& names) {
  int receivers = 0;
  nanoseconds least = nanoseconds::max();
  for (size_t r = 0; r < names.size(); ++r) {
    const auto sent = times.find(names[r]);
    if (sent == times.end()) continue;
    ++receivers;
    least = std::min(least, sent->second);
    if (sent->second <= longest) continue;
    longest = sent->second;
    longest_to = static_cast<int64_t>(r);
  }
  if (receivers > 1) shortest = least;
}

std::vector<nanoseconds> network_times(std::span<const StepTimes> workers) {
  struct Incoming {
    size_t senders = 0;  // whose slowest way this is
    nanoseconds shortest = nanoseconds::max();
  };
  std::vector<Incoming> incoming(workers.size());
  nanoseconds computed{0};
  for (const StepTimes& worker : workers) {
    computed = std::max(computed, worker.computed);
    if (worker.longest_to < 0 || worker.longest_to >= static_cast<int64_t>(workers.size()))
      continue;
    Incoming& to = incoming[static_cast<size_t>(worker.longest_to)];
    ++to.senders;
    to.shortest = std::min(to.shortest, worker.longest);
  }
  std::vector<nanoseconds> times;
  for (size_t r = 0; r < workers.size(); ++r) {
    const bool all_send = incoming[r].senders > 1 && incoming[r].senders == workers.size() - 1;
    const auto received = all_send ? incoming[r].shortest : nanoseconds(0);
    times.push_back(std::max({computed, workers[r].shortest, received}));
  }
  return times;
}

}  // namespace cohort
