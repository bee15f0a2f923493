#include "strategies/cluster/coordination/refusal_log.h"

#include <chrono>
#include <utility>

namespace cohort::coordination {
namespace {

constexpr std::chrono::minutes kQuiet(1);
constexpr size_t kMaxHosts = 1000;  // within a minute; others are not mentioned

}  // namespace

std::optional<std::string> RefusalLog::line(const std::string& host, const Error& error, Time now) {
  const auto known = hosts_.find(host);
  if (known != hosts_.end() && now - known->second.last < kQuiet) {
    ++known->second.since;
    return std::nullopt;
  }
  if (known == hosts_.end() && hosts_.size() >= kMaxHosts) {
    std::erase_if(hosts_, [&](const auto& entry) { return now - entry.second.last >= kQuiet; });
    if (hosts_.size() >= kMaxHosts) return std::nullopt;
  }
  const int more = std::exchange(hosts_[host], {now}).since;
  return str("refuses ", whom_, host.empty() ? "" : " at " + host,
             more > 0 ? str(" (and has done so ", more, " times since it last said this)") : "",
             ": ", error.what());
}

}  // namespace cohort::coordination
