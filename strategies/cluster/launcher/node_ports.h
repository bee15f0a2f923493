#pragma once

#include <optional>
#include <vector>

#include "strategies/cluster/launcher/node.h"
#include "strategies/cluster/launcher/options.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/cluster/net/internet_address.h"

namespace cohort::launcher {

// The ports of all tasks that may run on this host, reserved while this object lives.
class NodePorts {
 public:
  // On `address`, of this host; its port does not matter.
  NodePorts(const Options& options, const net::InternetAddress& address);

  // This host for the others, with `host` as what they call it.
  Node describe(const std::string& host) const;
  // The port of the task with this place among those of its job on this host.
  const ReservedPort& of(const std::string& job, int place) const;

 private:
  std::optional<ReservedPort> chief_;
  std::vector<ReservedPort> workers_, ps_;
};

}  // namespace cohort::launcher
