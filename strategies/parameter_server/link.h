#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/patience.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace cohort::parameter_server {

// Between attempts to reach a server.
inline constexpr std::chrono::milliseconds kFirstPause(20), kLongestPause(500);

// A connection of its own to a server, which gRPC makes when a call needs it. A server that is
// silent is asked for a sign of life, for which there is `patience`. Errors of resolve() and
// Security::check.
std::shared_ptr<grpc::Channel> open_channel(const Address& server,
                                            const coordination::Security& security,
                                            std::chrono::milliseconds patience = kUsualPatience);

// A client's open call to a server: requests and replies in turn. One thread at a time, but for
// cancel(). After an error it is of no use any more.
class Link {
 public:
  using Time = std::chrono::steady_clock::time_point;
  class Carrier;
  // One of another kind than a gRPC call.
  explicit Link(std::unique_ptr<Carrier> carrier);
  // What a call does while there is no connection. gRPC only makes one while somebody waits for it.
  enum class Unconnected { kWait, kFail };
  Link(const std::shared_ptr<grpc::Channel>& channel, Unconnected unconnected);
  ~Link();

  // Waits until the call is connected; to be called once, before all else. False when it is not by
  // then.
  bool connect(Time deadline);
  // Sends a message, in as many parts as it takes. Errors, here and below: kDeadlineExceeded,
  // kCancelled, and what the server ended the call with (kUnavailable when it has gone).
  void send(Message message, Time deadline);
  // A reply's next message. `begin` is called with the header and the size of the payload, then
  // `take` with the payload, part by part, which may be in memory from `room` already; `changed`
  // says that what was just taken, a whole value, has changed meanwhile, and may be half of one and
  // half of another.
  struct Receiver {
    std::function<void(const std::string& header, size_t payload_bytes)> begin;
    std::function<void(const char* data, size_t bytes)> take;
    std::function<std::span<char>()> room = [] { return std::span<char>(); };
    std::function<void()> changed = [] {};
  };
  void receive(const Receiver& receiver, Time deadline);
  // Between a reply and the next request: tells the server that this process is there. Does not
  // wait. False when it is known that the server has gone.
  bool beat();
  // Ends a wait of another thread.
  void cancel();

 private:
  std::unique_ptr<Carrier> carrier_;
};

// What carries the messages of a link, whose contract it has.
class Link::Carrier {
 public:
  using Time = Link::Time;
  virtual ~Carrier() = default;
  virtual bool connect(Time deadline) = 0;
  virtual void send(Message message, Time deadline) = 0;
  virtual void receive(const Receiver& receiver, Time deadline) = 0;
  virtual bool beat() { return true; }  // gRPC does so by itself
  virtual void cancel() = 0;
};

}  // namespace cohort::parameter_server
