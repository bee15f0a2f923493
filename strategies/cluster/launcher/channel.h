#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "strategies/cluster/launcher/messages.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// One end of a TCP connection that carries messages: each a length of four bytes, the highest
// first, and as many bytes of JSON. Nothing here waits. What comes in may be any bytes; it fills at
// most one message's memory.
class Channel {
 public:
  // Takes over a connected socket, or one that is connecting, and makes it non-blocking. The kernel
  // gives up a connection on which sent bytes have not arrived for `patience`.
  Channel(net::Descriptor socket, std::chrono::milliseconds patience);

  const net::Descriptor& socket() const { return socket_; }
  // The events of poll(2) to wait for.
  short events() const;
  // Sends as soon as possible. Messages to an end that reads too little break the channel.
  void send(const Message& message);
  // Writes and reads what is possible now.
  void move();
  // The next message that has arrived whole.
  std::optional<Message> receive();
  // Why nothing will arrive any more, after what receive() still returns; "" while something may.
  const std::string& end() const { return end_; }
  bool has_unsent() const { return !outgoing_.empty(); }

 private:
  void write_some();
  void read_some();
  void break_off(std::string why);

  net::Descriptor socket_;
  std::string incoming_, outgoing_;
  std::string end_;
};

}  // namespace cohort::launcher
