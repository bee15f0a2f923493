#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/endpoint.h"

namespace cohort::coordination {

// Accepts connections at an address until it is destroyed. Unlike gRPC's own listener, it never
// shares a port with another program, and it outlives a want of file descriptors: connections wait
// in the system's queue, or are closed, until there are some again.
class Listener {
 public:
  // `accepted` is called on a thread of the listener and owns the descriptor.
  using Accepted = std::function<void(int descriptor)>;

  // Listens at all of `endpoints` that this host has, which are those of `address`.
  // kFailedPrecondition when the port is in use or the address is not of this host; names both.
  Listener(const Address& address, const std::vector<Endpoint>& endpoints, Accepted accepted);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  void open(const Address& address, const std::vector<Endpoint>& endpoints);
  void run();
  void accept_all(int listening);

  Accepted accepted_;
  std::vector<int> sockets_;
  int wake_ = -1;  // an event that ends run()
  std::thread thread_;
};

}  // namespace cohort::coordination
