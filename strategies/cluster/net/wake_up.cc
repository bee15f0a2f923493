#include "strategies/cluster/net/wake_up.h"

#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/error.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::net {

WakeUp::WakeUp() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!fd_) fail(Code::kResourceExhausted, "no event descriptor: ", error_text(errno));
}

void WakeUp::signal() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof one);
}

void WakeUp::clear() const {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_.get(), &count, sizeof count);
}

}  // namespace cohort::net
