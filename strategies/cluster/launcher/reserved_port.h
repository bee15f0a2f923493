#pragma once

#include <string>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/internet_address.h"

namespace cohort::launcher {

// A port of one address of this host that the kernel gives to nobody else while this object lives.
// It is held by a socket that is bound with SO_REUSEADDR and never listens. So other sockets with
// SO_REUSEADDR may be bound to it beside this one: those of socket(), and those of programs that
// bind the address on their own, with or without SO_REUSEPORT. The first of them that listens
// excludes all others.
class ReservedPort {
 public:
  // A free port of `host`, by default of the loopback; the port of `host` does not matter.
  // kInvalidArgument where that is no address of this host, kResourceExhausted where it has no port
  // left.
  explicit ReservedPort(const net::InternetAddress& host = net::InternetAddress::own_loopback());

  // "127.0.0.1:40123".
  std::string address() const { return address_.text(); }
  int port() const { return address_.port(); }
  // Another socket bound to the port, for a program that inherits it: it has only to listen.
  net::Descriptor socket() const;

 private:
  net::Descriptor holder_;
  net::InternetAddress address_;
};

}  // namespace cohort::launcher
