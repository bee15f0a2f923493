#pragma once

#include <memory>
#include <vector>

#include "core/distribute/workers.h"
#include "core/runtime/variable.h"

namespace cohort {

// A mirrored variable (mirrored_variable.h) with copies on several workers, all starting from the
// chief's initial value. Making it is a call of all workers, in the same order; so is reading or
// assigning one that is synchronised on read outside replicas, because all copies take part. One
// that is not synchronised at all has the value of the worker's own first copy.
std::shared_ptr<Variable> make_worker_variable(const VariableOptions& options,
                                               const std::vector<Device>& devices,
                                               std::shared_ptr<Workers> workers);

}  // namespace cohort
