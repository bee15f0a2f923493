#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "strategies/cluster/coordination/running_clock.h"

namespace cohort::coordination {

// What those who may refuse others tell their own people of it, as a leader does: for each host a
// line, then none for a minute, however often it tries again. Bounded, whoever calls. Not
// synchronised.
class RefusalLog {
 public:
  using Time = RunningClock::Time;

  // `whom` it refuses, for people.
  explicit RefusalLog(std::string whom = "a task") : whom_(std::move(whom)) {}

  // The line about a refusal, if there is to be one. `host` may be "", when it is not known.
  std::optional<std::string> line(const std::string& host, const Error& error, Time now);

 private:
  struct Told {
    Time last;
    int since = 0;  // refusals that nobody was told of
  };
  std::string whom_;
  std::map<std::string, Told> hosts_;
};

}  // namespace cohort::coordination
