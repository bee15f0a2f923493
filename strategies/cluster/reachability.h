#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/address.h"

namespace cohort {

struct Reachability {
  bool reachable = false;
  std::string detail = {};  // for people: "in 0.4 ms", "connection refused", ...
  // Of a leader that answers: what this task would end with if it joined.
  std::optional<Error> refusal = {};
};

// What becomes of somebody who has accepted a connection once more was asked of him, until a
// deadline. Called on threads that may outlast the call of probe(); must not throw.
using Examination = std::function<Reachability(const Address& address, Reachability reached,
                                               std::chrono::steady_clock::time_point deadline)>;

// Opens and closes a TCP connection to each address, many at a time, each for `timeout` at most,
// and returns in their order. Blocks for about `timeout` per 128 addresses at worst.
// kResourceExhausted where the system has no threads for it.
std::vector<Reachability> probe(const std::vector<Address>& addresses,
                                std::chrono::milliseconds timeout, const Examination& examine = {});

// Whether this process could listen on an address now. It does not keep the port.
Reachability probe_listening(const Address& address);

}  // namespace cohort
