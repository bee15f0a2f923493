#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <thread>
#include <vector>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/http2_sizes.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/wake_up.h"

namespace cohort::net {

// Stands between gRPC and clients that speak to it in plain text: passes on what both say, and
// hangs up on a client that sends what Http2Sizes does not accept, or for whom there is no memory.
// What it does to a first message that is too long, Http2Sizes tells.
// A long message is passed on at 64 MB/s, in small pieces: whoever else is served on these cores
// hardly has to wait for it, and who sends nothing else is kept busy.
// (By TLS there is nothing to be seen from outside; there clients have shown certificates.)
// Thread-safe.
class Http2Guard {
 public:
  // Hears of each client that is hung up on for what he sends: who that is, if it is known, and
  // with which byte he has begun. On the thread of the guard; does not wait.
  using HungUp = std::function<void(const std::optional<InternetAddress>& peer, char first)>;

  explicit Http2Guard(Http2Sizes::Limits limits, HungUp hung_up = {});
  // Passes on for a second at most what gRPC has said before it closed its sockets.
  ~Http2Guard();
  Http2Guard(const Http2Guard&) = delete;
  Http2Guard& operator=(const Http2Guard&) = delete;

  // What gRPC is to have in place of the client's connection. The name of its peer, of gRPC's
  // scheme "unix-abstract", is the client's address. None, and the client is hung up on, where
  // there are no descriptors left.
  Descriptor guard(Descriptor client);

 private:
  class Connection;

  void run();
  void tell_of(const Connection& connection) const;
  // Then `polled` has room for all.
  void take_added(std::vector<std::unique_ptr<Connection>>& connections,
                  std::vector<pollfd>& polled);

  const Http2Sizes::Limits limits_;
  const HungUp hung_up_;
  const WakeUp wake_;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> added_;
  std::thread thread_;
};

}  // namespace cohort::net
