#pragma once

#include <chrono>
#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>

namespace cohort::tcp {

using Clock = std::chrono::steady_clock;

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

// A numeric IPv4 or IPv6 address with a port.
class Endpoint {
 public:
  // What "host:port" stands for, with brackets around an IPv6 address; port 0 lets the system
  // choose. A name is looked up. kInvalidArgument names `place`; kUnavailable for unknown names.
  static Endpoint parse(std::string_view text, std::string_view place);
  // Where a listening socket is bound.
  static Endpoint of_socket(int fd);

  int port() const;
  void set_port(int port);
  std::string text() const;  // parse() reads it back
  bool is_loopback() const;
  bool is_unspecified() const;  // 0.0.0.0 or ::
  bool same_host(const Endpoint& other) const;

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const;

 private:
  sockaddr_storage storage_ = {};
};

// A socket that listens on `endpoint`. kUnavailable names the endpoint.
Descriptor listen_on(const Endpoint& endpoint);
// Begins to connect; the socket becomes writable when that has ended.
Descriptor start_connecting(const Endpoint& endpoint);
// What became of it: 0, or the errno.
int connection_error(int fd);

// For a connected socket: no delay of small frames, non-blocking, and memory for `buffer_bytes` in
// each direction, where that is not 0.
void prepare_for_data(int fd, int buffer_bytes);
// A connection that carries little is watched by the system, and breaks when the other host has
// been silent for so long. (One that carries much would break as well when its reader is just slow
// to read.)
void break_when_silent(int fd, std::chrono::milliseconds silence);

// "Connection refused".
std::string error_text(int error);

// Wakes a thread that waits in poll().
class WakeUp {
 public:
  WakeUp();
  int fd() const { return fd_.get(); }
  void signal() const;
  void clear() const;

 private:
  Descriptor fd_;
};

}  // namespace cohort::tcp
