#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include "strategies/cluster/net/descriptor.h"

namespace cohort::testing {

// As long as it lives, this process can open no further file.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const net::Descriptor next(dup(0));
    const rlimit none = {static_cast<rlim_t>(next.get()), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace cohort::testing
