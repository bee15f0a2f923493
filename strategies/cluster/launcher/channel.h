#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "strategies/cluster/launcher/messages.h"
#include "strategies/cluster/net/stream.h"

namespace cohort::launcher {

// One end of a connection, in plain text or by TLS, that carries messages: each a length of four
// bytes, the highest first, and as many bytes of JSON. Nothing here waits. What comes in may be any
// bytes; it fills at most one message's memory.
class Channel {
 public:
  // The kernel gives up a connection on which sent bytes have not arrived for `patience`. `check`
  // looks at the other end of TLS before anything is said to it; what it throws ends the channel.
  Channel(net::Stream link, std::chrono::milliseconds patience,
          std::function<void(const net::Stream&)> check = {});

  const net::Stream& link() const { return link_; }
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
  // Of which kind that is: kUnavailable, or one that another attempt will meet again.
  Code end_code() const { return end_code_; }

 private:
  void shake_hands();
  void write_some();
  void read_some();
  void break_off(std::string why, Code code = Code::kUnavailable);

  net::Stream link_;
  std::function<void(const net::Stream&)> check_;
  bool ready_;  // hands have been shaken
  std::string incoming_, outgoing_;
  size_t taken_ = 0;  // of incoming_, by receive()
  std::string end_;
  Code end_code_ = Code::kUnavailable;
};

}  // namespace cohort::launcher
