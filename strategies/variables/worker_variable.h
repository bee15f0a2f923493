#pragma once

#include <memory>
#include <vector>

#include "core/distribute/workers.h"
#include "core/runtime/variable.h"
#include "strategies/variables/common_memory.h"

namespace cohort {

// A variable of several workers, all starting from the chief's initial value: where there are
// `writes`, which workers of one host may have, one that is written by all together has one copy
// (common_variable.h). Others, and all without, are mirrored variables (mirrored_variable.h) with
// copies on every worker. Making it is a call of all workers, in the same order; so is reading or
// assigning one that is synchronised on read outside replicas, because all copies take part. One
// that is not synchronised at all has the value of the worker's own first copy.
std::shared_ptr<Variable> make_worker_variable(const VariableOptions& options,
                                               const std::vector<Device>& devices,
                                               std::shared_ptr<Workers> workers,
                                               const std::shared_ptr<CommonWrites>& writes);

}  // namespace cohort
