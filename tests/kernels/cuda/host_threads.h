#pragma once

#include <cstdint>
#include <vector>

// What CUDA sources need to be functions of the host, called once for each thread.
struct ThreadIndex {
  int64_t x = 0;
};
extern ThreadIndex blockIdx, threadIdx;
#define __global__

namespace cohort::testing {

// Runs one thread of a generated program on the words of its parameter.
using HostProgram = void (*)(const int64_t* words);
extern const std::vector<HostProgram> kHostPrograms;  // in the order of sample_programs()

}  // namespace cohort::testing
