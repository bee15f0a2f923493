#include "strategies/cluster/coordination/endpoint.h"

#include <arpa/inet.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "core/base/error.h"

namespace cohort::coordination {
namespace {

Endpoint endpoint(const sockaddr* found, int port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (found->sa_family == AF_INET6) {
    const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(found)->sin6_addr;
    inet_ntop(AF_INET6, &ip, text, sizeof text);
    return {text, true, static_cast<bool>(IN6_IS_ADDR_LOOPBACK(&ip)), port};
  }
  const in_addr& ip = reinterpret_cast<const sockaddr_in*>(found)->sin_addr;
  inet_ntop(AF_INET, &ip, text, sizeof text);
  return {text, false, ntohl(ip.s_addr) >> 24 == 127, port};
}

}  // namespace

std::string Endpoint::target() const {
  return v6 ? str("ipv6:[", ip, "]:", port) : str("ipv4:", ip, ":", port);
}

std::vector<Endpoint> resolve(const Address& address) {
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int status = getaddrinfo(address.host().c_str(), nullptr, &hints, &found);
  if (status != 0) {
    fail(Code::kUnavailable, "the name ", address.host(), " is not known: ", gai_strerror(status));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    endpoints.push_back(endpoint(entry->ai_addr, address.port()));
  }
  if (endpoints.empty()) fail(Code::kUnavailable, "the name ", address.host(), " has no address");
  return endpoints;
}

}  // namespace cohort::coordination
