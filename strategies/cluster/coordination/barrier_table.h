#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "strategies/cluster/coordination/answer.h"
#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/coordination/running_clock.h"

namespace cohort::coordination {

// The barriers of a job, at its leader or in a process that is all of it. A name may be used again
// and again: the n-th use by each member is one barrier. When the time of one member runs out, the
// barrier has failed for all, also for those who come later. Not synchronised. Calls return what is
// to be answered now.
class BarrierTable {
 public:
  using Time = RunningClock::Time;
  explicit BarrierTable(const Roster& roster) : roster_(roster) {}

  Answers arrive(Caller caller, const std::string& name, std::chrono::milliseconds timeout,
                 Time now);
  // Fails the barriers at which somebody's time is over.
  Answers expire(Time now);
  // The member comes to no barrier any more: those that wait for it fail.
  Answers leave(int rank);
  bool anybody_waits() const;

 private:
  struct Arrival {
    uint64_t id;
    std::chrono::milliseconds timeout;
    Time deadline;
  };
  struct Barrier {
    std::map<int, Arrival> waiting;  // by rank
    std::set<int> seen;              // ranks that have come, also after it failed
    std::optional<Error> failure;
  };
  struct Name {
    std::map<int, int64_t> uses;          // by rank
    std::map<int64_t, Barrier> barriers;  // by use; those that some member has not come to
  };
  // Whether somebody has come to the member's next barrier of this name, and it is not over.
  bool is_open(const std::string& name, int rank) const;
  std::vector<int> missing(const Barrier& barrier) const;
  Error late(const std::string& name, const Barrier& barrier, int waiter) const;
  Error absent(const std::string& name, int rank) const;
  static void fail(Barrier& barrier, const Error& error, Answers& answers);
  Answers arrive_at(Barrier& barrier, Caller caller, const std::string& name, Arrival arrival);

  const Roster& roster_;
  std::map<std::string, Name> names_;
  size_t open_ = 0;  // barriers of all names
  std::set<int> left_;
};

}  // namespace cohort::coordination
