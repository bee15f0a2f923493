#include "strategies/cluster/coordination/endpoint.h"

#include <algorithm>

namespace cohort::coordination {

std::vector<net::InternetAddress> resolve(const Address& address) {
  return net::InternetAddress::resolve(address.host(), address.port());
}

bool all_loopback(const std::vector<net::InternetAddress>& endpoints) {
  return std::ranges::all_of(endpoints, &net::InternetAddress::is_loopback);
}

std::string grpc_target(const net::InternetAddress& endpoint) {
  return (endpoint.is_v6() ? "ipv6:" : "ipv4:") + endpoint.text();
}

}  // namespace cohort::coordination
