#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace cohort {

// Where a task can be reached: a host and a TCP port from 1 to 65535.
class Address {
 public:
  // The text "host:port"; the host is a name, an IPv4 address, or an IPv6 address in brackets.
  // kInvalidArgument names `place`, where the text was written.
  static Address parse(std::string_view text, std::string_view place = "address");
  // The same from a host and a port that were written apart. Brackets are optional here.
  static Address of(std::string_view host, int64_t port, std::string_view place = "address");

  // In lower case; an IPv6 address in its shortest form and without brackets, with its zone as
  // given.
  const std::string& host() const { return host_; }
  int port() const { return port_; }
  // "host:port", which parse() reads back.
  std::string text() const;

  auto operator<=>(const Address&) const = default;

 private:
  Address(std::string host, int port) : host_(std::move(host)), port_(port) {}

  std::string host_;
  int port_;
};

}  // namespace cohort
