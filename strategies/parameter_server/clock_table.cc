#include "strategies/parameter_server/clock_table.h"

#include "core/base/error.h"

namespace cohort::parameter_server {

void ClockTable::connected(const std::string& task) { ++workers_[task].connections; }

void ClockTable::disconnected(const std::string& task, Time now) {
  const auto found = workers_.find(task);
  if (found == workers_.end()) return;
  if (--found->second.connections == 0) {
    found->second.gone_since = now;
    if (!found->second.completed) workers_.erase(found);
  }
}

bool ClockTable::counts(const Worker& worker, Time now) const {
  return worker.completed && (worker.connections > 0 || now - worker.gone_since < grace_);
}

void ClockTable::complete(const std::string& task, int64_t steps, Time) {
  saw(task);
  workers_[task].completed = steps;
}

void ClockTable::leave(const std::string& task) {
  saw(task);
  const auto found = workers_.find(task);
  if (found == workers_.end()) return;
  found->second.completed.reset();
  if (found->second.connections == 0) workers_.erase(found);
}

std::optional<int64_t> ClockTable::slowest(Time now) const {
  if (missing() > 0) return 0;
  std::optional<int64_t> slowest;
  for (const auto& [task, worker] : workers_)
    if (counts(worker, now))
      slowest = std::min(slowest.value_or(*worker.completed), *worker.completed);
  return slowest;
}

bool ClockTable::may_start(const std::string& task, Time now) const {
  const auto found = workers_.find(task);
  const auto slowest_now = slowest(now);
  if (found == workers_.end() || !found->second.completed || !slowest_now) return true;
  return *found->second.completed - *slowest_now <= max_staleness_;
}

std::string ClockTable::holding_up(Time now) const {
  const auto slowest_now = slowest(now);
  std::string names;
  for (const auto& [task, worker] : workers_)
    if (counts(worker, now) && worker.completed == slowest_now)
      names += str(names.empty() ? "" : ", ", task);
  if (missing() > 0)
    return str(missing(), " of ", num_workers_, " workers, which have not come yet");
  return names;
}

}  // namespace cohort::parameter_server
