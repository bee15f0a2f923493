#pragma once

#include <cstdint>

#include "core/runtime/replica_group.h"

namespace cohort {

// What computes `value` in a function that is traced for `group`, as a number: 0 where replicas may
// get different values from it. Of two values of other numbers nothing is known, also where they
// are of traces for other signatures; of one number they are the same, as good as always. Where all
// replicas have one signature, there is nothing to compare, and only 0 has a meaning.
uint64_t computation_of(const Value& value, const ReplicaGroup& group);

}  // namespace cohort
