#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <vector>

#include "strategies/collective/tcp/frame.h"

namespace cohort::tcp {

// Finds peers whose hosts answer nothing any more, for threads that wait: where a network drops
// what is sent, a connection takes long to break. A host is asked on a connection on which nothing
// is under way, and its system answers, however slow its processes are. Thread-safe.
class HostWatch {
 public:
  // A wait that has lasted less needs no look.
  static constexpr std::chrono::milliseconds kPatience{500};

  // Of peers 0 to size - 1, of which each may be silent for `silence` after it was asked.
  HostWatch(size_t size, std::chrono::milliseconds silence) : silence_(silence), peers_(size) {}

  // A connection with a peer, which is open as long as there are looks.
  void add(int peer, int fd);

  struct Silent {
    int peer;
    std::chrono::milliseconds time;
  };
  // Asks the hosts that were not heard of lately; a peer whose host has not answered, once.
  std::optional<Silent> look(Clock::time_point now);
  // When the next look is due.
  Clock::time_point next_look() const;

 private:
  struct Peer {
    std::vector<int> fds;
    bool is_asked = false, is_given_up = false;
    Clock::time_point asked;              // first, without an answer so far
    std::chrono::milliseconds waited{0};  // for an answer, while there were looks
  };

  void look_at(Peer& peer, Clock::time_point now, std::chrono::milliseconds step);

  const std::chrono::milliseconds silence_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Peer> peers_;
  Clock::time_point last_look_{}, next_look_{};
};

}  // namespace cohort::tcp
