#pragma once

#include <memory>
#include <vector>

#include "core/runtime/variable.h"

namespace cohort {

// A variable with one copy on the device of each local replica, all starting from one initial
// value. Synchronised on write (kAuto, kOnWrite): the copies are equal whenever no step runs,
// because every replica makes the same writes. Synchronised on read (kOnRead): replicas write their
// own copy, and the value merges them as the aggregation says; a sum is assigned by giving each
// copy its equal part, and the first what that leaves over, so that it reads back the same
// (tf.distribute's SyncOnReadVariable). Not synchronised (kNone): replicas write their own copy,
// and the value is the first. kInvalidArgument for a mean of integers on read.
std::shared_ptr<Variable> make_mirrored_variable(const VariableOptions& options,
                                                 const std::vector<Device>& devices);

}  // namespace cohort
