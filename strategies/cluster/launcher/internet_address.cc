#include "strategies/cluster/launcher/internet_address.h"

#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

constexpr uint32_t kLoopbackNetwork = 127;  // 127.0.0.0/8

const sockaddr_in& v4(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in&>(address);
}
const sockaddr_in6& v6(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in6&>(address);
}
bool is_v6(const sockaddr_storage& address) { return address.ss_family == AF_INET6; }

}  // namespace

InternetAddress::InternetAddress() : size_(sizeof(sockaddr_in)) {
  auto& address = reinterpret_cast<sockaddr_in&>(address_);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

std::vector<InternetAddress> InternetAddress::resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    fail(Code::kUnavailable, "cannot find the address of ", host, ": ", gai_strerror(error));
  }
  std::vector<InternetAddress> out;
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    InternetAddress& address = out.emplace_back();
    std::memcpy(&address.address_, entry->ai_addr, entry->ai_addrlen);
    address.size_ = entry->ai_addrlen;
  }
  freeaddrinfo(found);
  if (out.empty()) fail(Code::kUnavailable, host, " has no internet address");
  return out;
}

InternetAddress InternetAddress::of(const Descriptor& socket) {
  InternetAddress out;
  out.size_ = sizeof(out.address_);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&out.address_), &out.size_) != 0) {
    fail_system("cannot read the address of a socket");
  }
  return out;
}

std::string InternetAddress::host() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = is_v6(address_) ? static_cast<const void*>(&v6(address_).sin6_addr)
                                      : static_cast<const void*>(&v4(address_).sin_addr);
  inet_ntop(address_.ss_family, bytes, text.data(), text.size());
  return text.data();
}

int InternetAddress::port() const {
  return ntohs(is_v6(address_) ? v6(address_).sin6_port : v4(address_).sin_port);
}

std::string InternetAddress::text() const {
  return is_v6(address_) ? str("[", host(), "]:", port()) : str(host(), ":", port());
}

bool InternetAddress::is_loopback() const {
  if (is_v6(address_)) return IN6_IS_ADDR_LOOPBACK(&v6(address_).sin6_addr);
  return ntohl(v4(address_).sin_addr.s_addr) >> 24 == kLoopbackNetwork;
}

InternetAddress InternetAddress::with_port(int port) const {
  InternetAddress out = *this;
  const auto number = htons(static_cast<uint16_t>(port));
  if (is_v6(address_)) {
    reinterpret_cast<sockaddr_in6&>(out.address_).sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in&>(out.address_).sin_port = number;
  }
  return out;
}

Descriptor InternetAddress::socket(int flags) const {
  Descriptor socket(::socket(address_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!socket.is_open()) fail_system("cannot make a socket");
  return socket;
}

int InternetAddress::bind(const Descriptor& socket) const {
  return ::bind(socket.get(), generic(), size_);
}

int InternetAddress::connect(const Descriptor& socket) const {
  return ::connect(socket.get(), generic(), size_);
}

}  // namespace cohort::launcher
