#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/kernels/kernel.h"
#include "core/tensor/elementwise_program.h"

namespace cohort::cuda {

// CUDA source of a kernel that runs an elementwise program, for the compiler at run time. It is C++
// but for `__global__` and the indices of threads.
//
//   extern "C" __global__ void run(const Groups groups)
//
// Groups holds 64-bit words: the number of groups, then for each its first block, its number of
// elements, and the addresses of its inputs and outputs. Each block does kBlockElements elements
// of one group.
inline constexpr int64_t kBlockThreads = 256, kBlockElements = 4 * kBlockThreads;

struct ProgramSource {
  std::string text;
  int group_words = 0;  // of one group
  int max_groups = 0;   // that Groups has room for
  size_t words() const { return 1 + static_cast<size_t>(group_words * max_groups); }
};

// For groups whose tensors have the specs given, first inputs, then outputs. kUnimplemented naming
// the op where an instruction does not exist for `compute`, which is float32, float64 or int64.
ProgramSource program_source(const ElementwiseProgram& program, DType compute,
                             const std::vector<TensorSpec>& inputs,
                             const std::vector<TensorSpec>& outputs);

// A group in a launch, and its memory.
struct ProgramGroup {
  int64_t elements;  // of each output
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
};
// Writes Groups for at most max_groups groups, and returns how many blocks they take.
int64_t write_groups(std::span<const ProgramGroup> groups, std::span<int64_t> words);

}  // namespace cohort::cuda
