#pragma once

#include <string>
#include <vector>

#include "strategies/cluster/address.h"

namespace cohort::coordination {

// A numeric address of a host, and a port.
struct Endpoint {
  std::string ip;
  bool v6 = false;
  bool loopback = false;
  int port = 0;

  // As gRPC wants it: "ipv4:127.0.0.1:2222", "ipv6:[::1]:2222".
  std::string target() const;
};

// All that the name stands for, at least one, in the order of the system. kUnavailable when the
// name is not known (yet). Blocks as name servers do.
std::vector<Endpoint> resolve(const Address& address);

}  // namespace cohort::coordination
