#pragma once

#include <netinet/in.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include "strategies/cluster/net/descriptor.h"

namespace cohort::net {

// An IPv4 or IPv6 address with a TCP port, as the kernel takes it.
class InternetAddress {
 public:
  // A free port of 127.0.0.1, for binding.
  InternetAddress();
  // The same, or of ::1 where this host has no 127.0.0.1 and has that.
  static InternetAddress own_loopback();
  // All that a name or address stands for, at least one, in the order of the system. kUnavailable
  // when nobody knows (yet). May take seconds.
  static std::vector<InternetAddress> resolve(const std::string& host, int port);
  // The first of what "host:port" stands for, with brackets around an IPv6 address; port 0 lets the
  // system choose. kInvalidArgument names `place`; kUnavailable for unknown names.
  static InternetAddress parse(std::string_view text, std::string_view place);
  // Of this end of a socket.
  static InternetAddress of(const Descriptor& socket);
  // Of the other end of a connection, while there is one.
  static std::optional<InternetAddress> of_peer(const Descriptor& socket);

  // Without port and brackets: "10.0.0.1"; with the zone of an IPv6 address that has one, which is
  // an interface of this host: "fe80::1%eth0".
  std::string host() const;
  int port() const;
  // "10.0.0.1:2222", "[::1]:2222"; parse() reads it back.
  std::string text() const;
  bool is_v6() const { return storage_.ss_family == AF_INET6; }
  bool is_loopback() const;
  // 0.0.0.0 or ::
  bool is_unspecified() const;
  bool is_same_host(const InternetAddress& other) const;
  InternetAddress with_port(int port) const;

  // A new socket of this family, with `flags` of socket(2) beside SOCK_STREAM and SOCK_CLOEXEC.
  // kResourceExhausted when the system has none.
  Descriptor socket(int flags = 0) const;
  // The same, or none with the reason in errno.
  Descriptor try_socket(int flags = 0) const;
  // These return what bind(2) and connect(2) return.
  int bind(const Descriptor& socket) const;
  int connect(const Descriptor& socket) const;

 private:
  const sockaddr_in& v4() const { return reinterpret_cast<const sockaddr_in&>(storage_); }
  const sockaddr_in6& v6() const { return reinterpret_cast<const sockaddr_in6&>(storage_); }
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return is_v6() ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }

  sockaddr_storage storage_{};
};

}  // namespace cohort::net
