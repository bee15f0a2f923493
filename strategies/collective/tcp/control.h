#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/net/stream.h"
#include "strategies/cluster/net/wake_up.h"
#include "strategies/collective/tcp/frame.h"
#include "strategies/collective/tcp/host_watch.h"

namespace cohort::tcp {

// How a group ends, and what its ranks tell each other when something is wrong: over connections
// that carry nothing else, so that it is never stuck behind data. Thread-safe.
class Control {
 public:
  struct Peer {
    std::string address;  // for messages
    std::string task;     // "worker:2", or unknown
    int number;           // what messages call it
    net::Stream link;     // none for this rank itself
  };
  // `silence` and `on_unreachable` are TcpOptions'.
  Control(int rank, std::vector<Peer> peers, std::chrono::milliseconds silence,
          std::function<void(const Error&)> on_unreachable);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  // "worker:2 (rank 2) at 10.0.0.3:4000", or "rank 2 at 10.0.0.3:4000".
  std::string name(int peer) const;
  // "worker:2", or unknown.
  const std::string& task(int peer) const { return peers_[static_cast<size_t>(peer)].task; }
  // A peer has sent a frame that nobody expects: kDataLoss.
  [[noreturn]] void refuse_frame(int peer) const;

  // Ends the group on all ranks; the first error given wins. Collectives up to `finish` still end
  // well.
  void end(const Error& error, uint64_t finish);
  // As end, called by the application: what all ranks have joined is finished, as long as its data
  // keep coming. An error that another rank has told, and nobody here has read, was given first;
  // but why a rank is gone the application knows better.
  void abort(const Error& error);
  // As abort, by a rank that goes away: it has finished what it had joined, whatever has happened
  // to the group.
  void leave();
  // How long what is still to be finished may stand still: none before abort and leave.
  std::optional<std::chrono::milliseconds> patience() const;
  // All ranks have joined the collective `sequence`.
  void set_joined(uint64_t sequence) { joined_ = sequence; }
  // Throws the error with which the group has ended, unless `sequence` is to be finished.
  void check(uint64_t sequence) const;
  bool has_ended() const { return ended_; }

  // What a thread that waits must poll besides its own sockets: all of that appended to `polled`.
  void add_polled(const net::WakeUp& wake_up, std::vector<pollfd>& polled) const;
  // To be called after poll() has reported something of it.
  void read_notices();
  // Two threads at most wait, each with a net::WakeUp of its own, which every news signals.
  void add_listener(const net::WakeUp* wake_up);
  void remove_listener(const net::WakeUp* wake_up);

  // The connection to a peer has failed: ends the group unless the peer has told the reason, for
  // which this waits a moment.
  void lost(int peer, const std::string& what, uint64_t sequence);
  // Another connection with a peer, as long as there is somebody who waits.
  void watch(int peer, int fd) { hosts_.add(peer, fd); }
  // For a thread that has waited since then: ends the group when the host of a peer answers nothing
  // any more. Returns when to call again.
  Clock::time_point look_after_hosts(Clock::time_point since, uint64_t sequence);
  // Whether a peer has said that it ends.
  bool has_left(int peer) const;

  // Tells the others what this rank does in collective `sequence`: once, and again with two ranks
  // whose sizes do not fit where it had named none.
  void report(const Notice& report);
  // Whether somebody wants such a report.
  bool wants_report(uint64_t sequence) const { return reported_ == sequence; }
  // Who has not reported of this call, or a later one; own report included.
  std::vector<int> missing_reports(uint64_t sequence) const;
  std::optional<Notice> report_of(int peer, uint64_t sequence) const;

 private:
  using Lock = std::lock_guard<std::mutex>;
  struct State {
    std::string incoming;
    bool open = false;
    bool has_left = false;
    std::optional<Notice> report;
  };

  Error failure_of(int peer, const std::string& what, Code code = Code::kUnavailable) const;
  void end_locked(const Error& error, uint64_t finish, bool tell);
  void tell_end_locked(uint64_t finish);
  void send_locked(const std::string& bytes);
  void read_all_locked();
  void read_locked(int peer);
  void take_locked(int peer, const Notice& notice);
  void signal() const;

  const int rank_;
  const std::function<void(const Error&)> on_unreachable_;
  HostWatch hosts_;
  std::vector<Peer> peers_;  // mutex_ guards what goes over their links
  std::atomic<bool> ended_ = false, is_aborted_ = false, has_left_ = false;
  std::atomic<uint64_t> joined_ = 0;
  std::atomic<uint64_t> reported_ = 0;  // the latest collective that somebody has reported
  mutable std::mutex mutex_;
  std::vector<State> states_;
  std::optional<Error> error_;
  uint64_t finish_ = 0;
  std::vector<const net::WakeUp*> listeners_;
};

}  // namespace cohort::tcp
