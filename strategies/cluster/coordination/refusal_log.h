#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "strategies/cluster/coordination/running_clock.h"

namespace cohort::coordination {

// What a leader tells its own people of those whom it refuses: for each host a line, then none for
// a minute, however often it tries again. Bounded, whoever calls. Not synchronised.
class RefusalLog {
 public:
  using Time = RunningClock::Time;

  // The line about a refusal, if there is to be one. `host` may be "", when it is not known.
  std::optional<std::string> line(const std::string& host, const Error& error, Time now);

 private:
  struct Told {
    Time last;
    int since = 0;  // refusals that nobody was told of
  };
  std::map<std::string, Told> hosts_;
};

}  // namespace cohort::coordination
