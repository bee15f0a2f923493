#pragma once

#include <memory>

#include "core/graph/graph_function.h"
#include "core/runtime/variable.h"

namespace cohort {

// The merged value of a variable (Variable::is_merged), as one of its name: what a graph in a file
// asks for is what value() has given. It gets the value each time that a function runs which no
// strategy runs.
std::shared_ptr<Variable> make_merged_variable(std::shared_ptr<Variable> of);
// Whose merged value `resource` is; where it is none, `resource` itself.
const Resource* merged_of(const Resource* resource);

// The same function for plans that no strategy runs: where it reads such a variable and does not
// write it, as one from a file does, it reads the merged value, and not the first copy.
GraphFunction read_merged_values(const GraphFunction& function);

}  // namespace cohort
