#include "strategies/cluster/coordination/listener.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"

namespace cohort::coordination {
namespace {

// How long to leave it when the system has no descriptor, or another passing trouble.
constexpr int kPauseMilliseconds = 50;

// Descriptors with numbers from here on are left to the rest of the program: a flood of connections
// must not keep it from opening its files.
int first_reserved_descriptor() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 1 << 20;
  const int64_t all = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  return static_cast<int>(all - std::min<int64_t>(64, all / 4));
}

// A socket that listens at `endpoint`, or -1 with the reason in errno.
int listen_at(const Endpoint& endpoint) {
  const int family = endpoint.v6 ? AF_INET6 : AF_INET;
  const int descriptor = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return -1;
  const int yes = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (endpoint.v6) {
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    auto* address = reinterpret_cast<sockaddr_in6*>(&storage);
    address->sin6_family = AF_INET6;
    address->sin6_port = htons(static_cast<uint16_t>(endpoint.port));
    inet_pton(AF_INET6, endpoint.ip.c_str(), &address->sin6_addr);
    size = sizeof *address;
  } else {
    auto* address = reinterpret_cast<sockaddr_in*>(&storage);
    address->sin_family = AF_INET;
    address->sin_port = htons(static_cast<uint16_t>(endpoint.port));
    inet_pton(AF_INET, endpoint.ip.c_str(), &address->sin_addr);
    size = sizeof *address;
  }
  if (bind(descriptor, reinterpret_cast<sockaddr*>(&storage), size) == 0 &&
      listen(descriptor, SOMAXCONN) == 0) {
    return descriptor;
  }
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

}  // namespace

Listener::Listener(const Address& address, const std::vector<Endpoint>& endpoints,
                   Accepted accepted)
    : accepted_(std::move(accepted)) {
  open(address, endpoints);
  wake_ = eventfd(0, EFD_CLOEXEC);
  if (wake_ < 0) {
    const int error = errno;
    for (const int socket : sockets_) close(socket);
    fail(Code::kResourceExhausted, "cannot listen at ", address.text(), ": ", strerror(error));
  }
  thread_ = std::thread([this] { run(); });
}

Listener::~Listener() {
  const uint64_t one = 1;
  while (write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  for (const int socket : sockets_) close(socket);
  close(wake_);
}

void Listener::open(const Address& address, const std::vector<Endpoint>& endpoints) {
  int error = 0;
  for (const Endpoint& endpoint : endpoints) {
    const int socket = listen_at(endpoint);
    if (socket >= 0) {
      sockets_.push_back(socket);
    } else if (error != EADDRINUSE) {
      error = errno;  // a port in use says more than what another address of the host had
    }
  }
  // A name may stand for addresses that this host lacks, such as ::1; a port in use is a mistake.
  if (!sockets_.empty() && error != EADDRINUSE) return;
  for (const int socket : sockets_) close(socket);
  if (error == EADDRINUSE) {
    fail(Code::kFailedPrecondition, "the leader cannot listen at ", address.text(), ": port ",
         address.port(), " is in use, by another job or a process that an old run left behind");
  }
  if (error == EADDRNOTAVAIL) {
    fail(Code::kFailedPrecondition, "the leader cannot listen at ", address.text(),
         ": it is no address of this host; check which host rank 0 runs on");
  }
  fail(Code::kUnavailable, "the leader cannot listen at ", address.text(), ": ", strerror(error));
}

void Listener::run() {
  std::vector<pollfd> waiting;
  for (const int socket : sockets_) waiting.push_back({.fd = socket, .events = POLLIN});
  waiting.push_back({.fd = wake_, .events = POLLIN});
  for (;;) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;  // a signal
    if (waiting.back().revents) return;
    for (const pollfd& socket : waiting) {
      if (socket.revents) accept_all(socket.fd);
    }
  }
}

void Listener::accept_all(int listening) {
  const int reserved = first_reserved_descriptor();
  for (;;) {
    const int descriptor = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor >= 0 && descriptor < reserved) {
      const int yes = 1;
      setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      accepted_(descriptor);
      continue;
    }
    if (descriptor >= 0) {
      close(descriptor);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    pollfd wake{.fd = wake_, .events = POLLIN};
    poll(&wake, 1, kPauseMilliseconds);
    return;
  }
}

}  // namespace cohort::coordination
