#pragma once

#include <memory>

#include "core/runtime/variable.h"

namespace cohort {

// A variable with one copy for each of `replicas` local replicas, all starting from one initial
// value. Synchronised on write (kAuto, kOnWrite): the copies are equal whenever no step runs,
// because every replica applies the same update; the value is the first copy. Synchronised on read
// (kOnRead): replicas write their own copy, and the value merges them as the aggregation says; a
// sum is assigned by giving each copy its equal part, so that it reads back the same
// (tf.distribute's SyncOnReadVariable).
std::shared_ptr<Variable> make_mirrored_variable(const VariableOptions& options, int replicas);

}  // namespace cohort
