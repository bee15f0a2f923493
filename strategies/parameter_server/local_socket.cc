#include "strategies/parameter_server/local_socket.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/error.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::parameter_server {
namespace {

net::Descriptor new_socket() {
  net::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail(Code::kResourceExhausted, "no socket: ", net::error_text(errno));
  return socket;
}

// Calls `f`, which is bind() or connect(), with the address of a name.
template <typename F>
void with_address(const net::Descriptor& socket, const std::string& name, const char* what,
                  const F& f) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A leading zero: no file.
  if (name.empty() || name.size() >= sizeof address.sun_path)
    invalid("a Unix socket cannot have a name of ", name.size(), " bytes");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (f(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    fail(Code::kUnavailable, "cannot ", what, " a Unix socket: ", net::error_text(errno));
}

}  // namespace

net::Descriptor listen_locally(const std::string& name) {
  net::Descriptor socket = new_socket();
  with_address(socket, name, "bind", ::bind);
  if (listen(socket.get(), SOMAXCONN) != 0)
    fail(Code::kUnavailable, "cannot listen at a Unix socket: ", net::error_text(errno));
  return socket;
}

net::Descriptor connect_locally(const std::string& name) {
  net::Descriptor socket = new_socket();
  with_address(socket, name, "connect to", ::connect);
  return socket;
}

bool is_of_this_user(const net::Descriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == geteuid();
}

}  // namespace cohort::parameter_server
