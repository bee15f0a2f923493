#pragma once

#include <algorithm>
#include <map>
#include <memory>

#include "strategies/parameter_server/server_variable.h"

namespace cohort::parameter_server {

// Which rules move some variables, as it was when something was made of these that says so: the cut
// of a function, or what workers are told. Never waits for a server.
class KnownRules {
 public:
  // To be called before the variable is looked at: what changes meanwhile counts as a change.
  void add(const std::shared_ptr<ServerVariable>& variable) {
    rules_.try_emplace(variable, variable->num_rules());
  }
  // Of a variable that both have, what is here counts.
  void add(const KnownRules& others) { rules_.insert(others.rules_.begin(), others.rules_.end()); }
  // Whether another rule has taken one of them over since.
  bool are_outdated() const {
    return std::ranges::any_of(
        rules_, [](const auto& one) { return one.first->num_rules() != one.second; });
  }

 private:
  std::map<std::shared_ptr<ServerVariable>, int> rules_;  // how many there had been
};

}  // namespace cohort::parameter_server
