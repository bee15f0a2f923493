#include "strategies/cluster/gpu_list.h"

#include <algorithm>

namespace cohort::config {

std::vector<std::string> listed_gpus(const std::string& text) {
  std::vector<std::string> gpus;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string gpu = text.substr(begin, end - begin);
    if (gpu.empty() || gpu == "-1" || gpu == "NoDevFiles") break;
    gpus.push_back(gpu);
    begin = end + 1;
  }
  return gpus;
}

}  // namespace cohort::config
