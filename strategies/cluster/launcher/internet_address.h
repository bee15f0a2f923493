#pragma once

#include <string>
#include <sys/socket.h>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/launcher/descriptor.h"

namespace cohort::launcher {

// An IPv4 or IPv6 address with a TCP port, as the kernel takes it.
class InternetAddress {
 public:
  // A free port of 127.0.0.1, for binding.
  InternetAddress();
  // What a name or address stands for; kUnavailable when nobody knows. May take seconds.
  static std::vector<InternetAddress> resolve(const std::string& host, int port);
  // Of this end of a socket.
  static InternetAddress of(const Descriptor& socket);

  // Without port and brackets: "10.0.0.1".
  std::string host() const;
  int port() const;
  // "10.0.0.1:2222", "[::1]:2222".
  std::string text() const;
  bool is_loopback() const;
  InternetAddress with_port(int port) const;

  // A new socket of this family, with `flags` of socket(2) beside SOCK_STREAM and SOCK_CLOEXEC.
  Descriptor socket(int flags = 0) const;
  // These return what bind(2) and connect(2) return.
  int bind(const Descriptor& socket) const;
  int connect(const Descriptor& socket) const;

 private:
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&address_); }

  sockaddr_storage address_{};
  socklen_t size_ = 0;
};

}  // namespace cohort::launcher
