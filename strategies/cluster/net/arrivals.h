#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <poll.h>
#include <thread>
#include <vector>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/wake_up.h"

namespace cohort::net {

// Where new connections wait until their first byte has come, which tells what they speak: so one
// port serves several protocols. Who says nothing for some seconds is hung up on, and so is for
// whom there is no memory. Thread-safe.
class Arrivals {
 public:
  // `arrived` is called on a thread of this, with the byte still to be read. It may throw
  // std::bad_alloc.
  using Arrived = std::function<void(Descriptor socket, char first)>;
  explicit Arrivals(Arrived arrived);
  // Hangs up on who is still waited for.
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  void add(Descriptor socket);

 private:
  struct Waiting {
    Descriptor socket;
    std::chrono::steady_clock::time_point until;
  };

  void run();
  // Of too many the oldest are hung up on. Then `polled` has room for all.
  void take_added(std::vector<Waiting>& waiting, std::vector<pollfd>& polled);
  // Lets go of those that have arrived, have gone, or have been silent for too long; `polled` is
  // what was found of each.
  void look(std::vector<Waiting>& waiting, const std::vector<pollfd>& polled);
  // Whether it is still to be waited for.
  bool is_awaited(Waiting& one, const pollfd& polled);

  const Arrived arrived_;
  const WakeUp wake_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<Waiting> added_;
  std::thread thread_;
};

}  // namespace cohort::net
