#include "strategies/cluster/net/internet_address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <net/if.h>
#include <netdb.h>

#include "core/base/error.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::net {
namespace {

constexpr uint32_t kLoopbackNetwork = 127;  // 127.0.0.0/8

// Whether this host has the address.
bool can_bind(const InternetAddress& address) {
  const Descriptor socket = address.try_socket();
  return socket && address.bind(socket) == 0;
}

}  // namespace

InternetAddress::InternetAddress() {
  auto& address = reinterpret_cast<sockaddr_in&>(storage_);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

InternetAddress InternetAddress::own_loopback() {
  const InternetAddress v4;
  InternetAddress v6;
  auto& address = reinterpret_cast<sockaddr_in6&>(v6.storage_);
  address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  return !can_bind(v4) && can_bind(v6) ? v6 : v4;
}

std::vector<InternetAddress> InternetAddress::resolve(const std::string& host, int port) {
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (status != 0)
    fail(Code::kUnavailable, "the name ", host, " is not known: ", gai_strerror(status));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  std::vector<InternetAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    InternetAddress address;
    std::memcpy(&address.storage_, entry->ai_addr, entry->ai_addrlen);
    addresses.push_back(address.with_port(port));
  }
  if (addresses.empty()) fail(Code::kUnavailable, "the name ", host, " has no internet address");
  return addresses;
}

InternetAddress InternetAddress::parse(std::string_view text, std::string_view place) {
  const size_t colon = text.rfind(':');
  std::string host(text.substr(0, colon == std::string_view::npos ? 0 : colon));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string::npos)
    host.clear();  // an IPv6 address without brackets
  const std::string_view digits = text.substr(std::min(text.size(), colon + 1));
  int port = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty() || error != std::errc() || end != digits.data() + digits.size() || port < 0 ||
      port > 65535)
    invalid(place, " \"", text.substr(0, 200),
            "\" is not host:port; allowed are a name, an IPv4 address or an IPv6 address in ",
            "brackets, and a port from 0 to 65535");
  try {
    return resolve(host, port)[0];
  } catch (const Error& unknown) {
    throw unknown.with_context(place);
  }
}

InternetAddress InternetAddress::of(const Descriptor& socket) {
  InternetAddress address;
  socklen_t size = sizeof address.storage_;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage_), &size) != 0)
    fail(Code::kInternal, "a socket has no address: ", error_text(errno));
  return address;
}

std::optional<InternetAddress> InternetAddress::of_peer(const Descriptor& socket) {
  InternetAddress address;
  socklen_t size = sizeof address.storage_;
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address.storage_), &size) != 0)
    return std::nullopt;
  return address;
}

std::string InternetAddress::host() const {
  std::array<char, INET6_ADDRSTRLEN + IF_NAMESIZE> text{};
  getnameinfo(generic(), size(), text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

int InternetAddress::port() const { return ntohs(is_v6() ? v6().sin6_port : v4().sin_port); }

std::string InternetAddress::text() const {
  return is_v6() ? str("[", host(), "]:", port()) : str(host(), ":", port());
}

bool InternetAddress::is_loopback() const {
  if (!is_v6()) return ntohl(v4().sin_addr.s_addr) >> 24 == kLoopbackNetwork;
  const in6_addr& ip = v6().sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ip) ||
         (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == kLoopbackNetwork);
}

bool InternetAddress::is_unspecified() const {
  if (!is_v6()) return v4().sin_addr.s_addr == 0;
  const in6_addr& ip = v6().sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&ip);
}

bool InternetAddress::is_same_host(const InternetAddress& other) const {
  if (is_v6() != other.is_v6()) return false;
  if (!is_v6()) return v4().sin_addr.s_addr == other.v4().sin_addr.s_addr;
  return std::memcmp(&v6().sin6_addr, &other.v6().sin6_addr, sizeof(in6_addr)) == 0;
}

InternetAddress InternetAddress::with_port(int port) const {
  InternetAddress out = *this;
  const auto number = htons(static_cast<uint16_t>(port));
  if (is_v6())
    reinterpret_cast<sockaddr_in6&>(out.storage_).sin6_port = number;
  else
    reinterpret_cast<sockaddr_in&>(out.storage_).sin_port = number;
  return out;
}

Descriptor InternetAddress::socket(int flags) const {
  Descriptor socket = try_socket(flags);
  if (!socket)
    fail(Code::kResourceExhausted, "cannot make a socket for ", text(), ": ", error_text(errno));
  return socket;
}

Descriptor InternetAddress::try_socket(int flags) const {
  return Descriptor(::socket(storage_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

int InternetAddress::bind(const Descriptor& socket) const {
  return ::bind(socket.get(), generic(), size());
}

int InternetAddress::connect(const Descriptor& socket) const {
  return ::connect(socket.get(), generic(), size());
}

}  // namespace cohort::net
