#pragma once

#include <cstdint>
#include <memory>

#include "core/runtime/variable.h"
#include "strategies/coordinator/resource_table.h"

namespace cohort::coordinator {

// A variable of which there is a copy on each worker, and none here.
std::shared_ptr<Variable> make_per_worker_variable(VariableOptions options,
                                                   ResourceTable& resources);
// Its number among the resources; kInvalidArgument for another variable.
uint64_t per_worker_resource(const Variable& variable);

}  // namespace cohort::coordinator
