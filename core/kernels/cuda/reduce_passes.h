#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor/shape.h"

namespace cohort::cuda {

// Reduces [outer, count, inner] to [outer, blocks, inner], every block of `block` entries to one.
// Where inner is 1 a team of threads reduces each block, else a thread each column of it. Blocks
// depend on the shape only, hence so does the order of operations.
struct ReducePass {
  int64_t outer, count, inner, block;
  int64_t blocks() const { return count == 0 ? 1 : (count + block - 1) / block; }
  int64_t results() const { return outer * blocks() * inner; }
};

// The passes that reduce `axes` of `shape`, one or more, innermost axes first.
std::vector<ReducePass> plan_reduce_passes(const Shape& shape, const std::vector<int64_t>& axes);

}  // namespace cohort::cuda
