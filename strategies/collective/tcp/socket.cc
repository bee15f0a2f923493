#include "strategies/collective/tcp/socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>

#include "core/base/error.h"

namespace cohort::tcp {
namespace {

constexpr int kBacklog = 1024;

void set(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

Descriptor new_socket(const Endpoint& endpoint) {
  Descriptor fd(socket(endpoint.data()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd)
    fail(Code::kResourceExhausted, "no socket for ", endpoint.text(), ": ", error_text(errno));
  return fd;
}

}  // namespace

void Descriptor::reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

Endpoint Endpoint::parse(std::string_view text, std::string_view place) {
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
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0)
    fail(Code::kUnavailable, place, ": the name ", host, " is not known: ", gai_strerror(status));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  Endpoint endpoint;
  std::memcpy(&endpoint.storage_, found->ai_addr, found->ai_addrlen);
  return endpoint;
}

Endpoint Endpoint::of_socket(int fd) {
  Endpoint endpoint;
  socklen_t size = sizeof endpoint.storage_;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&endpoint.storage_), &size) != 0)
    fail(Code::kInternal, "a socket has no name: ", error_text(errno));
  return endpoint;
}

int Endpoint::port() const {
  return ntohs(storage_.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

void Endpoint::set_port(int port) {
  const in_port_t network = htons(static_cast<uint16_t>(port));
  if (storage_.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(storage_).sin6_port = network;
  else
    reinterpret_cast<sockaddr_in&>(storage_).sin_port = network;
}

std::string Endpoint::text() const {
  char host[INET6_ADDRSTRLEN] = "";
  if (storage_.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage_);
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
    return str("[", host, "]:", ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage_);
  inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
  return str(host, ":", ntohs(v4.sin_port));
}

bool Endpoint::is_loopback() const {
  if (storage_.ss_family == AF_INET6) {
    const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
  }
  return ntohl(reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr) >> 24 == 127;
}

bool Endpoint::is_unspecified() const {
  if (storage_.ss_family == AF_INET6) {
    const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr;
    return IN6_IS_ADDR_UNSPECIFIED(&ip);
  }
  return reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr == 0;
}

bool Endpoint::same_host(const Endpoint& other) const {
  if (storage_.ss_family != other.storage_.ss_family) return false;
  if (storage_.ss_family == AF_INET6)
    return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(other.storage_).sin6_addr,
                       sizeof(in6_addr)) == 0;
  return reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr ==
         reinterpret_cast<const sockaddr_in&>(other.storage_).sin_addr.s_addr;
}

socklen_t Endpoint::size() const {
  return storage_.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

Descriptor listen_on(const Endpoint& endpoint) {
  Descriptor fd = new_socket(endpoint);
  if (bind(fd.get(), endpoint.data(), endpoint.size()) != 0 || listen(fd.get(), kBacklog) != 0)
    fail(Code::kUnavailable, "cannot listen on ", endpoint.text(), ": ", error_text(errno));
  return fd;
}

Descriptor start_connecting(const Endpoint& endpoint) {
  Descriptor fd = new_socket(endpoint);
  set(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (connect(fd.get(), endpoint.data(), endpoint.size()) != 0 && errno != EINPROGRESS)
    fail(Code::kUnavailable, "cannot connect to ", endpoint.text(), ": ", error_text(errno));
  return fd;
}

int connection_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

void prepare_for_data(int fd, int buffer_bytes) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (buffer_bytes == 0) return;
  set(fd, SOL_SOCKET, SO_SNDBUF, buffer_bytes);
  set(fd, SOL_SOCKET, SO_RCVBUF, buffer_bytes);
}

void break_when_silent(int fd, std::chrono::milliseconds silence) {
  const int seconds = std::max<int>(1, static_cast<int>(silence.count() / 1000) / 3);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
}

std::string error_text(int error) { return std::generic_category().message(error); }

WakeUp::WakeUp() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!fd_) fail(Code::kResourceExhausted, "no event descriptor: ", error_text(errno));
}

void WakeUp::signal() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof one);
}

void WakeUp::clear() const {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_.get(), &count, sizeof count);
}

}  // namespace cohort::tcp
