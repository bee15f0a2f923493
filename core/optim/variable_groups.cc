#include "core/optim/variable_groups.h"

#include <algorithm>

#include "core/base/comma_separated.h"
#include "core/optim/rules.h"
#include "core/optim/variable_path.h"

namespace cohort::optim {

void check_groups(const std::vector<VariableGroup>& groups) {
  for (const VariableGroup& group : groups) {
    if (group.variables.empty()) invalid("groups: a group names no variables");
    check_not_negative("groups", "learning_rate_multiplier", group.learning_rate_multiplier);
    check_not_negative("groups", "weight_decay", group.weight_decay.value_or(0));
  }
}

const VariableGroup* group_of(const Variable& variable, const std::vector<VariableGroup>& groups) {
  for (const VariableGroup& group : groups)
    if (is_named_by(variable.name(), group.variables)) return &group;
  return nullptr;
}

void require_named(const std::vector<VariableGroup>& groups,
                   const std::vector<std::shared_ptr<Variable>>& variables) {
  constexpr size_t kMostShown = 8;
  const auto shown = [](const auto& variable) { return str('"', variable->name(), '"'); };
  for (const VariableGroup& group : groups)
    for (const std::string& entry : group.variables)
      if (std::none_of(variables.begin(), variables.end(),
                       [&](const auto& variable) { return is_named_by(variable->name(), entry); }))
        invalid(
            "groups: \"", entry,
            "\" is no whole part of the name of any variable that the optimizer is given first: ",
            comma_separated(variables, shown, kMostShown));
}

}  // namespace cohort::optim
