#include "strategies/cluster/net/socket.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string_view>
#include <system_error>

#include "core/base/error.h"

namespace cohort::net {
namespace {

constexpr int kBacklog = 1024;

}  // namespace

Descriptor listen_on(const InternetAddress& address) {
  Descriptor socket = address.socket(SOCK_NONBLOCK);
  if (address.bind(socket) != 0 || listen(socket.get(), kBacklog) != 0)
    fail(Code::kUnavailable, "cannot listen on ", address.text(), ": ", error_text(errno));
  return socket;
}

Descriptor start_connecting(const InternetAddress& address) {
  Descriptor socket = address.socket(SOCK_NONBLOCK);
  set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (address.connect(socket) != 0 && errno != EINPROGRESS)
    fail(Code::kUnavailable, "cannot connect to ", address.text(), ": ", error_text(errno));
  return socket;
}

int connection_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

void send_at_once(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

void break_when_unanswered(int fd, std::chrono::milliseconds silence) {
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
}

void break_when_silent(int fd, std::chrono::milliseconds silence) {
  const int seconds = std::max<int>(1, static_cast<int>(silence.count() / 1000) / 3);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  break_when_unanswered(fd, silence);
}

// BBR, the usual algorithm of some systems, does not know thin streams.
void repeat_often(int fd) {
  constexpr std::string_view kReno = "reno";
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
  set_option(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
}

std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace cohort::net
