#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <poll.h>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/coordination/refusal_log.h"
#include "strategies/cluster/coordination/running_clock.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/launcher/channel.h"
#include "strategies/cluster/launcher/job_state.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// Where the nodes of a job meet: the connections to all of them, and the JobState that decides.
// It lives in the loop of whoever owns it and never waits.
class RendezvousServer {
 public:
  // `listener` listens and does not block. A node that is silent for `patience` is lost, one whose
  // certificate is not for tasks such as its own is refused. Who begins with anything else than a
  // Join is hung up on, and nobody is listened to who has been refused, or could not agree with
  // this end on how to talk: of these `note` gets a line fit for a terminal (RefusalLog).
  RendezvousServer(net::Descriptor listener, JobRules rules, std::chrono::milliseconds patience,
                   coordination::Security security, std::function<void(const std::string&)> note);

  // Adds what to wait for. step() is to be called then, and at least every kStepInterval.
  void watch(std::vector<pollfd>& events) const;
  void step();
  // Ends the job for all nodes.
  void finish(int code, const std::vector<std::string>& lines);
  // Whether the job is over and all nodes have been told, or had time for that.
  bool is_done() const;

 private:
  using Time = JobState::Time;
  struct Peer {
    Channel channel;
    std::string host;
    Time since, heard, told;
    bool is_leaving = false;   // it has got its last message
    bool is_intruder = false;  // it speaks, and has not said who it is
  };

  void watch_peers(std::vector<pollfd>& events) const;
  void accept_some(Time now);
  void serve(int node, Peer& peer, Time now);
  void admit(int node, Peer& peer, const Join& join, Time now);
  void take(int node, Peer& peer, const Message& message, Time now);
  // Why a peer is to be dropped; "" when it is not.
  std::string fault(int node, const Peer& peer, Time now) const;
  void send_all(Time now);
  void drop_faulty(Time now);
  void note_refusal(const Peer& peer, const Error& error, Time now);

  net::Descriptor listener_;
  bool lacks_descriptors_ = false;  // for those who want to connect
  const std::chrono::milliseconds patience_;
  const coordination::Security security_;
  const std::function<void(const std::string&)> note_;
  coordination::RefusalLog refusals_{"a node"};
  coordination::RunningClock clock_;
  JobState state_;
  std::map<int, Peer> peers_;
  int next_node_ = 0;
};

inline constexpr std::chrono::milliseconds kStepInterval(200);
// How often both ends of a connection say something so as not to be taken for lost.
inline std::chrono::milliseconds ping_interval(std::chrono::milliseconds patience) {
  return std::min<std::chrono::milliseconds>(std::chrono::seconds(1), patience / 4);
}

}  // namespace cohort::launcher
