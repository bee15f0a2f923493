#include "strategies/cluster/coordination/listener.h"

#include <cerrno>
#include <netinet/tcp.h>
#include <new>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "core/base/error.h"
#include "core/base/start_threads.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::coordination {
namespace {

// How long to leave it when the system has no descriptor, or another passing trouble.
constexpr int kPauseMilliseconds = 50;

// A socket that listens at `endpoint`, or none with the reason in errno.
net::Descriptor listen_at(const net::InternetAddress& endpoint) {
  net::Descriptor socket = endpoint.try_socket(SOCK_NONBLOCK);
  if (!socket) return socket;
  net::set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (endpoint.is_v6()) net::set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (endpoint.bind(socket) == 0 && listen(socket.get(), SOMAXCONN) == 0) return socket;
  const int error = errno;
  socket.reset();
  errno = error;
  return socket;
}

}  // namespace

Listener::Listener(const std::string& name, const Address& address,
                   const std::vector<net::InternetAddress>& endpoints, Accepted accepted)
    : accepted_(std::move(accepted)) {
  open(name, address, endpoints);
  thread_ = start_thread([this] { run(); });
}

Listener::~Listener() {
  wake_up_.signal();
  thread_.join();
}

void Listener::open(const std::string& name, const Address& address,
                    const std::vector<net::InternetAddress>& endpoints) {
  int error = 0;
  for (const net::InternetAddress& endpoint : endpoints) {
    net::Descriptor socket = listen_at(endpoint);
    if (socket) {
      sockets_.push_back(std::move(socket));
    } else if (error != EADDRINUSE) {
      error = errno;  // a port in use says more than what another address of the host had
    }
  }
  // A name may stand for addresses that this host lacks, such as ::1; a port in use is a mistake.
  if (!sockets_.empty() && error != EADDRINUSE) return;
  sockets_.clear();
  net::fail_to_listen(str("the ", name, " cannot listen at ", address.text()), error,
                      address.port());
}

void Listener::run() {
  std::vector<pollfd> waiting;
  for (const auto& socket : sockets_) waiting.push_back({.fd = socket.get(), .events = POLLIN});
  waiting.push_back({.fd = wake_up_.fd(), .events = POLLIN});
  for (;;) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;  // a signal
    if (waiting.back().revents) return;
    for (const pollfd& socket : waiting) {
      if (socket.revents) accept_all(socket.fd);
    }
  }
}

void Listener::accept_all(int listening) {
  for (;;) {
    const int descriptor = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor >= 0) {
      net::set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
      try {
        accepted_(descriptor);
      } catch (const std::bad_alloc&) {  // who has called may call again
      }
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    pollfd wake{.fd = wake_up_.fd(), .events = POLLIN};
    poll(&wake, 1, kPauseMilliseconds);
    return;
  }
}

}  // namespace cohort::coordination
