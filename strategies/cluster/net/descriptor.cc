#include "strategies/cluster/net/descriptor.h"

#include <unistd.h>

namespace cohort::net {

void Descriptor::reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace cohort::net
