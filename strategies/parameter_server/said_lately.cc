#include "strategies/parameter_server/said_lately.h"

#include <cstddef>

namespace cohort::parameter_server {
namespace {

constexpr std::chrono::minutes kQuiet(1);
constexpr size_t kMost = 1000;  // within a minute; what is more is not said

}  // namespace

bool SaidLately::is_news(const std::string& what, Time now) {
  std::erase_if(said_, [&](const auto& entry) { return now - entry.second >= kQuiet; });
  return said_.size() < kMost && said_.try_emplace(what, now).second;
}

}  // namespace cohort::parameter_server
