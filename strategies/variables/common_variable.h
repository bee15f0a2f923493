#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/distribute/workers.h"
#include "core/runtime/variable.h"
#include "strategies/variables/common_memory.h"

namespace cohort {

// One copy for the replicas of all workers, who are processes of one host: each of them writes its
// part. Only for variables that are written by all replicas together, on devices that share the
// host's memory. Begins with the chief's `value`. Null, on all workers, where they can have no
// memory in common. Every worker makes the same variables in the same order; `topic` says so.
std::shared_ptr<Variable> make_common_variable(const VariableOptions& options,
                                               const std::vector<Device>& devices, Workers& workers,
                                               const std::string& topic, const Tensor& value,
                                               const std::shared_ptr<CommonWrites>& writes);

}  // namespace cohort
