#pragma once

#include <string>

namespace cohort::testing {

// Makes gpu:0 and gpu:1 of `memory_limit` bytes each; or says why there are none.
std::string make_two_gpus(size_t memory_limit);

}  // namespace cohort::testing
