#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>

#include "strategies/cluster/net/internet_address.h"

// What an HTTP/2 client sends, made by hand (RFC 9113).
namespace cohort::testing::http2 {

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline constexpr int kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kContinuation = 9;
inline constexpr int kEndStream = 1, kPadded = 8;

inline std::string big_endian(uint32_t value, size_t bytes) {
  std::string text;
  while (bytes-- > 0) text.push_back(static_cast<char>(value >> (8 * bytes)));
  return text;
}

inline std::string frame(int type, int flags, uint32_t stream, const std::string& payload) {
  return big_endian(static_cast<uint32_t>(payload.size()), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + big_endian(stream, 4) + payload;
}

// How a message of so many bytes begins in gRPC.
inline std::string message_prefix(uint32_t bytes) {
  return std::string(1, '\0') + big_endian(bytes, 4);
}

// How many of `count` copies of `more` a server takes behind the preface and `first`, before it
// hangs up.
inline int copies_taken(const std::string& address, const std::string& first,
                        const std::string& more, int count) {
  const auto server = net::InternetAddress::parse(address, "the server");
  const net::Descriptor socket = server.socket();
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (server.connect(socket) != 0) return -1;
  const auto say = [&socket](const std::string& text) {
    return send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  };
  int taken = 0;
  if (!say(std::string(kPreface) + first)) return 0;
  while (taken < count && say(more)) ++taken;
  return taken;
}

}  // namespace cohort::testing::http2
