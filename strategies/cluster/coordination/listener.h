#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/wake_up.h"

namespace cohort::coordination {

// Accepts connections at an address until it is destroyed. Unlike gRPC's own listener, it never
// shares a port with another program, and it outlives a want of file descriptors: connections wait
// in the system's queue until there are some again. So it does a want of memory.
class Listener {
 public:
  // `accepted` is called on a thread of the listener and owns the descriptor, also where it throws
  // std::bad_alloc.
  using Accepted = std::function<void(int descriptor)>;

  // Listens at all of `endpoints` that this host has, which are those of `address`, for who is
  // called `name` ("leader"). Errors are those of net::fail_to_listen(), such as kPermissionDenied
  // for a port that the system keeps for others.
  Listener(const std::string& name, const Address& address,
           const std::vector<net::InternetAddress>& endpoints, Accepted accepted);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  void open(const std::string& name, const Address& address,
            const std::vector<net::InternetAddress>& endpoints);
  void run();
  void accept_all(int listening);

  Accepted accepted_;
  std::vector<net::Descriptor> sockets_;
  const net::WakeUp wake_up_;  // ends run()
  std::thread thread_;
};

}  // namespace cohort::coordination
