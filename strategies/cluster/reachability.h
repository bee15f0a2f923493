#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "strategies/cluster/address.h"

namespace cohort {

struct Reachability {
  bool reachable = false;
  std::string detail;  // for people: "in 0.4 ms", "connection refused", ...
};

// Opens and closes a TCP connection to each address, many at a time, each for `timeout` at most,
// and returns in their order. Blocks for about `timeout` per 128 addresses at worst.
// kResourceExhausted where the system has no threads for it.
std::vector<Reachability> probe(const std::vector<Address>& addresses,
                                std::chrono::milliseconds timeout);

// Whether this process could listen on an address now. It does not keep the port.
Reachability probe_listening(const Address& address);

}  // namespace cohort
