#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cohort::parameter_server {

// Who takes part in training, and how many steps each has completed. With bounded staleness a
// worker may start another step while it has completed at most `max_staleness` more than the
// slowest; in synchronous training an update waits for all who take part.
//
// A worker takes part from its first step on, until it leaves. One without a connection for `grace`
// does not count until it is back, and then goes on where the slowest is, unless it is ahead of
// that; one that was started again does not count before its first step, with which it is where the
// slowest is. From there on its own numbers count by their differences alone: the others have not
// stood still while it was away. Not synchronised; the time is given.
class ClockTable {
 public:
  using Time = std::chrono::steady_clock::time_point;
  ClockTable(int64_t max_staleness, int num_workers, std::chrono::milliseconds grace)
      : max_staleness_(max_staleness), num_workers_(num_workers), grace_(grace) {}

  // `incarnation` is that of the start of the task.
  void connected(const std::string& task, uint64_t incarnation, Time now);
  // Whether it was the last connection of the present start.
  bool disconnected(const std::string& task, uint64_t incarnation, Time now);
  // The worker has completed this many steps, by its own count. A number below the last one takes
  // it back by as many: it has gone back to a checkpoint.
  void complete(const std::string& task, int64_t steps, Time now);
  // It takes part no longer, or never did. `trainings` is how many it has ended by now.
  void leave(const std::string& task, int64_t trainings);
  // It is one of those that have come, whatever it is at now.
  void saw(const std::string& task) { seen_.insert(task); }
  // It took part when this server was killed, and counts until then, though it has no connection.
  void expect(const std::string& task, Time until);

  // What the slowest has completed: 0 while workers are expected that have not come yet; nothing
  // when nobody is left.
  std::optional<int64_t> slowest(Time now) const;
  // What the worker has completed, counted as slowest() is; nothing of one that takes no part.
  std::optional<int64_t> completed(const std::string& task) const;
  // Whether the worker may start its next step.
  bool may_start(const std::string& task, Time now) const;
  // The workers that hold this one up, for messages.
  std::string holding_up(Time now) const;

  // Of synchronous training: how many workers an update waits for to which those of `has_come` have
  // contributed. A worker between two trainings is one of them when another has begun the next one:
  // so trainings of the same length are in step from their first update on.
  using HasCome = std::function<bool(const std::string& task)>;
  int awaited(const HasCome& has_come, Time now) const;
  // Who they are, for messages.
  std::string awaited_names(const HasCome& has_come, Time now) const;
  // Whether it took part, and has no connection any more.
  bool has_gone(const std::string& task, Time now) const;

 private:
  struct Worker {
    uint64_t incarnation = 0;          // 0: any
    std::optional<int64_t> completed;  // none: it is no worker, or has left
    int64_t own = 0;                   // the same by its own count
    int64_t trainings = 0;             // that it has ended
    int connections = 0;
    Time gone_since;
  };
  bool is_here(const Worker& worker, Time now) const {
    return worker.connections > 0 || now - worker.gone_since < grace_;
  }
  bool counts(const Worker& worker, Time now) const {
    return worker.completed && is_here(worker, now);
  }
  // Of those that have not completed anything, ever, and have not died before they could.
  int missing(Time now) const;
  // Of those that count; nothing where nobody does.
  std::optional<int64_t> least_completed(Time now) const;
  std::vector<std::string> awaited_tasks(const HasCome& has_come, Time now) const;

  const int64_t max_staleness_;
  const int num_workers_;
  const std::chrono::milliseconds grace_;
  std::map<std::string, Worker> workers_;  // and others that are connected
  std::set<std::string> seen_;             // workers that are not waited for to come
};

// For errors, which name one task at fault: of what holding_up() and awaited_names() say, that
// task; empty where it is several, or some that have not come.
std::string only_task(const std::string& names);

}  // namespace cohort::parameter_server
