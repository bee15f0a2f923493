#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/runtime/variable.h"
#include "strategies/coordinator/resource_table.h"

namespace cohort::coordinator {

// A variable of which there is a copy on each worker, and none here.
std::shared_ptr<Variable> make_per_worker_variable(const VariableOptions& options,
                                                   ResourceTable& resources);
// Its number among the resources; kInvalidArgument for another variable.
uint64_t per_worker_resource(const Variable& variable);
// The name by which workers know such a variable; null for whatever else a function uses.
const std::string* per_worker_name(const Resource& resource);

}  // namespace cohort::coordinator
