#include "strategies/cluster/launcher/reserved_port.h"

#include <cerrno>

#include "core/base/error.h"
#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {
namespace {

net::Descriptor bound_socket(const net::InternetAddress& address) {
  net::Descriptor socket = address.socket();
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.bind(socket) != 0) {
    if (errno == EADDRNOTAVAIL) invalid(address.host(), " is no address of this host");
    const int port = address.port();
    fail_system("cannot bind ", port ? str("port ", port) : "a free port", " of ", address.host());
  }
  return socket;
}

}  // namespace

ReservedPort::ReservedPort(const net::InternetAddress& host)
    : holder_(bound_socket(host.with_port(0))), address_(net::InternetAddress::of(holder_)) {}

net::Descriptor ReservedPort::socket() const { return bound_socket(address_); }

}  // namespace cohort::launcher
