#pragma once

#include <string>
#include <vector>

#include "core/kernels/kernel.h"
#include "core/tensor/elementwise_program.h"

namespace cohort::testing {

// Elementwise programs that use together all that sources generated from programs are made of.
struct SampleProgram {
  std::string name;
  ElementwiseProgram program;
  DType compute;
  // Group by group; all groups make the same source.
  std::vector<TensorSpec> inputs, outputs;
  int64_t groups = 1;
};
std::vector<SampleProgram> sample_programs();

}  // namespace cohort::testing
