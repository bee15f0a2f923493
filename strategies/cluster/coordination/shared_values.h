#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/cluster/coordination/answer.h"
#include "strategies/cluster/coordination/running_clock.h"
#include "strategies/cluster/coordination/value_table.h"

namespace cohort::coordination {

// The leader's key-value store, and who waits for which key. Not synchronised. Calls return what is
// to be answered now, to the caller and to others; mistakes of the caller are answers too.
class SharedValues {
 public:
  using Time = RunningClock::Time;

  Answers set(Caller caller, const std::string& key, const std::string& value);
  Answers add(Caller caller, const std::string& key, int64_t amount);
  // The number of the answer is 1 where it has written, and 0 else.
  Answers compare_set(Caller caller, const std::string& key,
                      std::optional<std::string_view> expected, const std::string& value);
  Answers erase(Caller caller, const std::string& key);
  // The number of the answer is 1 where there is a value, and 0 else.
  Answers find(Caller caller, const std::string& key) const;
  // Answered at once, when the key is set, or by expire().
  Answers get(Caller caller, const std::string& key, std::chrono::milliseconds timeout, Time now);
  // Answers those whose time is over.
  Answers expire(Time now);
  bool anybody_waits() const { return !waiting_.empty(); }

 private:
  struct Waiter {
    Caller caller;
    std::chrono::milliseconds timeout;
    Time deadline;
  };
  void answer_waiters(const std::string& key, Answers& answers);

  ValueTable values_;
  std::map<std::string, std::vector<Waiter>> waiting_;
};

}  // namespace cohort::coordination
