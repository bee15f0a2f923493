#pragma once

#include <cstdint>
#include <string_view>

#include "core/runtime/replica_group.h"

namespace cohort {

// Whether the op waits for the other replicas to do the same.
bool communicates(std::string_view op);

// What computes `value` in a function that is traced for `group`, as a number: 0 where replicas may
// get different values from it. Of two values of other numbers nothing is known, also where they
// are of traces for other signatures; of one number they are the same, as good as always. Where all
// replicas have one signature, there is nothing to compare, and only 0 has a meaning.
uint64_t computation_of(const Value& value, const ReplicaGroup& group);

}  // namespace cohort
