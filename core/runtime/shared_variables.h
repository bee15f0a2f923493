#pragma once

#include "core/graph/graph_function.h"

namespace cohort {

// How many replicas read and write the one memory of `resource`: 1 where each has its own.
int replicas_sharing(const Resource& resource);

// Which of the replicas that share the memory that `function` writes a replica of this process is.
int number_among_sharing(const GraphFunction& function, int local_replica);

// Whether replicas that run `function` write a memory that they share.
bool writes_shared_variables(const GraphFunction& function);

}  // namespace cohort
