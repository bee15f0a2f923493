#pragma once

#include <memory>
#include <vector>

#include "core/runtime/variable.h"

namespace cohort {

// Whether all of these devices work on the host's memory, and so on one another's.
bool share_memory(const std::vector<Device>& devices);

// A variable with one copy on `parameter_device`, which all local replicas, on `replicas`, read
// (tf.distribute's AggregatingVariable): in place where their device reaches it, else by way of a
// copy that each compiled step keeps (VariableMemory). The first replica writes it; where all of
// them reach it, each writes its part in updates (divide_updates). A write of a traced
// function stands between barriers: every replica has read before, and none reads until it is
// written; around updates (Variable::update) the strategy adds them. Variables that are not kept
// equal (kOnRead, Synchronization::kNone) have a copy for each replica, as under Mirrored.
std::shared_ptr<Variable> make_central_variable(const VariableOptions& options,
                                                Device parameter_device,
                                                const std::vector<Device>& replicas);

}  // namespace cohort
