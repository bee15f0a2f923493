#include "strategies/parameter_server/clock_table.h"

#include <limits>

#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

// So that neither the sum nor the difference of two numbers overflows, whatever a worker says.
constexpr int64_t kMostSteps = std::numeric_limits<int64_t>::max() / 2;

// Of tasks that have not pushed anything yet, the name alone says what they are.
bool is_named_as_worker(const std::string& task) {
  return task.starts_with("worker:") || task.starts_with("chief:");
}

void append(std::string& names, const std::string& name) {
  names += str(names.empty() ? "" : ", ", name);
}

std::string not_come(int missing, int num_workers) {
  return str(missing, " of ", num_workers, " workers (not come yet)");
}

}  // namespace

std::string only_task(const std::string& names) {
  return names.find_first_of(", ") == std::string::npos ? names : "";
}

void ClockTable::connected(const std::string& task, uint64_t incarnation, Time now) {
  const bool is_back = has_gone(task, now);
  const auto slowest_other = is_back ? least_completed(now) : std::nullopt;
  Worker& worker = workers_[task];
  if (worker.incarnation != 0 && worker.incarnation != incarnation) worker = {};
  worker.incarnation = incarnation;
  ++worker.connections;
  if (!is_back) return;
  saw(task);  // the others have gone on without it
  if (worker.completed && slowest_other)
    worker.completed = std::max(*worker.completed, *slowest_other);
}

bool ClockTable::disconnected(const std::string& task, uint64_t incarnation, Time now) {
  const auto found = workers_.find(task);
  if (found == workers_.end() || found->second.incarnation != incarnation) return false;
  Worker& worker = found->second;
  if (--worker.connections > 0) return false;
  worker.gone_since = now;
  const bool died_early = !seen_.contains(task) && is_named_as_worker(task);
  if (!worker.completed && !died_early) workers_.erase(found);
  return true;
}

void ClockTable::complete(const std::string& task, int64_t steps, Time now) {
  steps = std::clamp<int64_t>(steps, 0, kMostSteps);
  // As long as some have not come, the others cannot be far ahead of its own number.
  const auto known = workers_.find(task);
  const bool is_first = known == workers_.end() || !known->second.completed;
  const bool all_have_come = is_first && missing(now) == 0;
  saw(task);
  Worker& worker = workers_[task];
  if (is_first)
    worker.completed = all_have_come ? least_completed(now).value_or(steps) : steps;
  else
    worker.completed = std::clamp<int64_t>(*worker.completed + (steps - worker.own), 0, kMostSteps);
  worker.own = steps;
}

void ClockTable::leave(const std::string& task, int64_t trainings) {
  saw(task);
  const auto found = workers_.find(task);
  if (found == workers_.end()) return;
  found->second.completed.reset();
  found->second.trainings = trainings;
  if (found->second.connections == 0) workers_.erase(found);
}

void ClockTable::expect(const std::string& task, Time until) {
  saw(task);
  workers_.try_emplace(task, Worker{.completed = 0, .gone_since = until - grace_});
}

int ClockTable::missing(Time now) const {
  auto come = static_cast<int>(seen_.size());
  for (const auto& [task, worker] : workers_)
    come += !seen_.contains(task) && is_named_as_worker(task) && !is_here(worker, now);
  return std::max(0, num_workers_ - come);
}

std::optional<int64_t> ClockTable::least_completed(Time now) const {
  std::optional<int64_t> least;
  for (const auto& [task, worker] : workers_)
    if (counts(worker, now)) least = std::min(least.value_or(*worker.completed), *worker.completed);
  return least;
}

std::optional<int64_t> ClockTable::slowest(Time now) const {
  if (missing(now) > 0) return 0;
  return least_completed(now);
}

std::optional<int64_t> ClockTable::completed(const std::string& task) const {
  const auto found = workers_.find(task);
  return found == workers_.end() ? std::nullopt : found->second.completed;
}

bool ClockTable::may_start(const std::string& task, Time now) const {
  const auto own = completed(task);
  const auto slowest_now = slowest(now);
  return !own || !slowest_now || *own - *slowest_now <= max_staleness_;
}

std::string ClockTable::holding_up(Time now) const {
  if (const int absent = missing(now); absent > 0) return not_come(absent, num_workers_);
  const auto slowest_now = slowest(now);
  std::string names;
  for (const auto& [task, worker] : workers_)
    if (counts(worker, now) && worker.completed == slowest_now) append(names, task);
  return names;
}

std::vector<std::string> ClockTable::awaited_tasks(const HasCome& has_come, Time now) const {
  int64_t latest = -1;  // training that anybody is in
  for (const auto& [task, worker] : workers_)
    if (counts(worker, now)) latest = std::max(latest, worker.trainings);
  std::vector<std::string> tasks;
  for (const auto& [task, worker] : workers_) {
    const bool is_between = !worker.completed && worker.trainings > 0 && worker.connections > 0 &&
                            worker.trainings <= latest;
    if ((counts(worker, now) || is_between) && !has_come(task)) tasks.push_back(task);
  }
  return tasks;
}

int ClockTable::awaited(const HasCome& has_come, Time now) const {
  return missing(now) + static_cast<int>(awaited_tasks(has_come, now).size());
}

std::string ClockTable::awaited_names(const HasCome& has_come, Time now) const {
  std::string names;
  for (const std::string& task : awaited_tasks(has_come, now)) append(names, task);
  if (const int absent = missing(now); absent > 0) append(names, not_come(absent, num_workers_));
  return names;
}

bool ClockTable::has_gone(const std::string& task, Time now) const {
  const auto found = workers_.find(task);
  return found != workers_.end() && !is_here(found->second, now);
}

}  // namespace cohort::parameter_server
