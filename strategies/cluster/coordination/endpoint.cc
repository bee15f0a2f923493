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
  std::string target = (endpoint.is_v6() ? "ipv6:" : "ipv4:") + endpoint.text();
  if (const size_t zone = target.find('%'); zone != std::string::npos)
    target.insert(zone + 1, "25");
  return target;
}

}  // namespace cohort::coordination
