#pragma once

#include <string>
#include <vector>

namespace cohort::config {

// The GPUs that CUDA shows for this value of CUDA_VISIBLE_DEVICES, in its order and without
// the blanks around them: the list ends at its first entry that is neither a number nor a UUID.
std::vector<std::string> listed_gpus(const std::string& text);

// How many GPUs the driver of this host knows; 0 without one.
int host_gpus();

}  // namespace cohort::config
