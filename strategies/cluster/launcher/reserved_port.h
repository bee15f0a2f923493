#pragma once

#include <string>

#include "strategies/cluster/launcher/descriptor.h"

namespace cohort::launcher {

// A port of 127.0.0.1 that the kernel gives to nobody else while this object lives. It is held by a
// socket that is bound with SO_REUSEADDR and never listens. So other sockets with SO_REUSEADDR may
// be bound to it beside this one: those of socket(), and those of programs that bind the address on
// their own, with or without SO_REUSEPORT. The first of them that listens excludes all others.
class ReservedPort {
 public:
  ReservedPort();

  // "127.0.0.1:40123".
  std::string address() const;
  int port() const { return port_; }
  // Another socket bound to the port, for a program that inherits it: it has only to listen.
  Descriptor socket() const;

 private:
  int port_ = 0;
  Descriptor holder_;
};

}  // namespace cohort::launcher
