#include "strategies/cluster/launcher/reserved_port.h"

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

Descriptor bound_socket(const InternetAddress& address) {
  Descriptor socket = address.socket();
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.bind(socket) != 0) {
    const int port = address.port();
    fail_system("cannot bind ", port ? str("port ", port) : "a free port", " of ", address.host());
  }
  return socket;
}

}  // namespace

ReservedPort::ReservedPort(const InternetAddress& host)
    : holder_(bound_socket(host.with_port(0))), address_(InternetAddress::of(holder_)) {}

Descriptor ReservedPort::socket() const { return bound_socket(address_); }

}  // namespace cohort::launcher
