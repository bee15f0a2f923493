#include "strategies/cluster/gpu_list.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>

namespace cohort::config {
namespace {

std::string_view without_blanks(std::string_view entry) {
  const size_t begin = std::min(entry.find_first_not_of(' '), entry.size());
  return entry.substr(begin, entry.find_last_not_of(' ') + 1 - begin);
}

// A number, or the UUID of a card or of a part of one.
bool is_gpu(std::string_view entry) {
  const bool is_number = !entry.empty() && entry.front() >= '0' && entry.front() <= '9';
  return is_number || entry.starts_with("GPU-") || entry.starts_with("MIG-");
}

}  // namespace

std::vector<std::string> listed_gpus(const std::string& text) {
  std::vector<std::string> gpus;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view gpu = without_blanks(std::string_view(text).substr(begin, end - begin));
    if (!is_gpu(gpu)) break;
    gpus.emplace_back(gpu);
    begin = end + 1;
  }
  return gpus;
}

int host_gpus() {
  std::error_code none;
  const std::filesystem::directory_iterator gpus("/proc/driver/nvidia/gpus", none);
  return none ? 0 : static_cast<int>(std::distance(begin(gpus), end(gpus)));
}

}  // namespace cohort::config
