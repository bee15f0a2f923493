#include "strategies/cluster/launcher/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

Descriptor bound_socket(int port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) fail_system("cannot make a socket");
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_in address = loopback(port);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    fail_system("cannot bind ", port ? str("port ", port) : "a free port", " of 127.0.0.1");
  }
  return socket;
}

}  // namespace

ReservedPort::ReservedPort() : holder_(bound_socket(0)) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  if (getsockname(holder_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail_system("cannot read the number of a bound port");
  }
  port_ = ntohs(address.sin_port);
}

std::string ReservedPort::address() const { return str("127.0.0.1:", port_); }

Descriptor ReservedPort::socket() const { return bound_socket(port_); }

}  // namespace cohort::launcher
