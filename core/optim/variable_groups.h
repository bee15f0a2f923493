#pragma once

#include <memory>
#include <vector>

#include "core/optim/optimizer.h"

// Which variables are in which group. Internal to core/optim.
namespace cohort::optim {

// kInvalidArgument for numbers out of range, and for a group that names nothing.
void check_groups(const std::vector<VariableGroup>& groups);

// That of a variable; null where it is in none.
const VariableGroup* group_of(const Variable& variable, const std::vector<VariableGroup>& groups);

// kInvalidArgument with their names where a group has a name that is none of theirs.
void require_named(const std::vector<VariableGroup>& groups,
                   const std::vector<std::shared_ptr<Variable>>& variables);

}  // namespace cohort::optim
