#pragma once

#include <chrono>
#include <list>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/internet_address.h"

namespace cohort::coordination {

// Finds out whether the host of a silent peer is there: tells a cut cable from a process that
// hangs. It begins a new connection to where the peer listens, again and again. The host's system
// answers it, for a process that hangs too, and at once after an outage, unlike an old connection,
// which repeats what was lost ever more rarely. Neither waits nor fails. Not synchronised.
class HostProbe {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit HostProbe(const net::InternetAddress& peer) : peer_(peer) {}

  // Questions without an answer that prove something.
  static constexpr int kEnough = 4;

  // Asks once in `interval`; more rarely after an answer, which takes a place in the host's queue.
  // Returns whether kEnough questions before this one have got no answer, each for an interval at
  // least.
  bool ask(Time now, std::chrono::milliseconds interval);
  // When ask() will ask again.
  Time next_question() const { return next_question_; }
  // The peer is heard.
  void forget();

 private:
  bool is_answered();

  const net::InternetAddress peer_;
  std::list<net::Descriptor> questions_;  // being connected
  int unanswered_ = 0;
  Time next_question_{};
};

}  // namespace cohort::coordination
