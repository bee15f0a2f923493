#pragma once

#include "strategies/cluster/net/descriptor.h"

namespace cohort::net {

// Wakes a thread that waits in poll(). Thread-safe.
class WakeUp {
 public:
  WakeUp();
  // To be polled for POLLIN.
  int fd() const { return fd_.get(); }
  void signal() const;
  void clear() const;

 private:
  Descriptor fd_;
};

}  // namespace cohort::net
