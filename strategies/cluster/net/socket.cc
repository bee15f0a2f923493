#include "strategies/cluster/net/socket.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string_view>
#include <system_error>

#include "core/base/error.h"
#include "core/base/system_error.h"
#include "strategies/cluster/net/port_holder.h"

namespace cohort::net {
namespace {

constexpr int kBacklog = 1024;

}  // namespace

Descriptor listen_on(const InternetAddress& address, const std::string& written) {
  Descriptor socket = address.socket(SOCK_NONBLOCK);
  if (address.bind(socket) == 0 && listen(socket.get(), kBacklog) == 0) return socket;
  const int error = errno;
  fail_to_listen(str("cannot listen at ", written.empty() ? address.text() : written), error,
                 address.port());
}

void fail_to_listen(const std::string& what, int error, int port) {
  // Port 0 stands for any, of which none is left.
  if (error == EADDRINUSE && port != 0)
    fail(Code::kFailedPrecondition, what, ": ", port_in_use(port));
  if (error == EADDRNOTAVAIL)
    fail(Code::kFailedPrecondition, what,
         ": it is no address of this host; check on which host this task is to run");
  fail(code_of_errno(error), what, ": ", error_text(error));
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

std::optional<Heard> heard_on(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state == TCP_CLOSE)
    return {};
  return Heard{
      std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)),
      info.tcpi_unacked > 0};
}

// The system shall hardly ask or end the connection by itself: these are the most that it knows.
void let_ask(int fd) {
  constexpr int kLongest = 32767, kMost = 127;
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kMost);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kLongest);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kLongest);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

// To set the time after which it asks makes it look at once whether that has passed.
void ask_host(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(kNoQuestion.count() / 1000));
}

// BBR, the usual algorithm of some systems, does not know thin streams.
void repeat_often(int fd) {
  constexpr std::string_view kReno = "reno";
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
  set_option(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace cohort::net
