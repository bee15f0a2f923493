#pragma once

#include <span>

#include "core/collective/reduce_op.h"

namespace cohort {

// Combines elements [begin, end) of all `sources`, in their order, and writes the result to every
// target, on the calling thread's team. A target may be one of the sources, but overlaps none
// otherwise. The result of an element depends on nothing but the sources, so that the bits are the
// same however the work is divided. What they combine to is as AllReduceCall says.
void reduce_elements(ReduceOp op, DType dtype, std::span<const void* const> sources,
                     std::span<void* const> targets, int64_t begin, int64_t end);

}  // namespace cohort
