#include "strategies/cluster/net/sending_time.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace cohort::net {

// The kernel's tcp_info, which is longer than that of <netinet/tcp.h>.
std::chrono::microseconds sending_time(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return std::chrono::microseconds(info.tcpi_busy_time - info.tcpi_rwnd_limited);
}

}  // namespace cohort::net
