#include "strategies/cluster/launcher/node_ports.h"

#include "core/base/host_name.h"

namespace cohort::launcher {
namespace {

std::vector<int> numbers(const std::vector<ReservedPort>& ports) {
  std::vector<int> out;
  for (const ReservedPort& port : ports) out.push_back(port.port());
  return out;
}

}  // namespace

NodePorts::NodePorts(const Options& options, const net::InternetAddress& address) {
  if (options.chief) chief_.emplace(address);
  for (int i = 0; i < options.workers; ++i) workers_.emplace_back(address);
  for (int i = 0; i < options.ps; ++i) ps_.emplace_back(address);
}

Node NodePorts::describe(const std::string& host) const {
  return {.name = host_name("a host without name"),
          .host = host,
          .chief = chief_ ? chief_->port() : 0,
          .workers = numbers(workers_),
          .ps = numbers(ps_)};
}

const ReservedPort& NodePorts::of(const std::string& job, int place) const {
  if (job == "chief") return *chief_;
  return (job == "ps" ? ps_ : workers_)[static_cast<size_t>(place)];
}

}  // namespace cohort::launcher
