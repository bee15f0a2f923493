#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/collective/communicator.h"
#include "strategies/collective/host/host_rank.h"

namespace cohort {

// The messages of one rank. A sender tells of a message in a slot of its lane to the receiver, who
// chooses: a small one is in the slot itself, the bytes of another then pass through the lane's
// window. Whoever waits for a message moves them on, and else a thread that the first message
// starts. Thread-safe.
class SharedMessages {
 public:
  explicit SharedMessages(const HostRank& host);
  // Forgets what is not finished, so that nobody touches its memory.
  ~SharedMessages();
  SharedMessages(const SharedMessages&) = delete;
  SharedMessages& operator=(const SharedMessages&) = delete;

  // As Communicator's; the results are never negative.
  int64_t start(const SendCall& call);
  int64_t start(const ReceiveCall& call);
  Received wait(int64_t id);

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Send {
    int64_t id;
    SendCall call;
    std::optional<uint64_t> sequence = std::nullopt;  // in the lane, from when it is in a slot
    int64_t written = 0;
    bool ended = false;
    std::optional<Error> error = std::nullopt;
  };
  struct Receive {
    int64_t id;
    ReceiveCall call;
    Received received = {};
    bool matched = false, ended = false;
    std::optional<Error> error = std::nullopt;
  };
  // A message that a sender has told of.
  struct Announced {
    uint64_t sequence;
    int tag;
    int64_t bytes;
  };
  // A message that is being received.
  struct Transfer {
    uint64_t sequence;
    int64_t receive_id;
    int64_t bytes, read = 0;
  };
  // This rank's end of the lanes to and from another one.
  struct Peer {
    uint64_t next_sent = 0, next_seen = 0;
    uint64_t window_written = 0, window_read = 0;  // bytes since the beginning
    std::deque<Announced> announced;               // and not yet asked for
    std::deque<Transfer> transfers;                // asked for; the first moves
  };

  // One round of whatever can be done without waiting; whether anything was.
  bool advance();
  bool advance_send(Send& send);
  bool announce(Send& send);
  bool write_window(Send& send, Lane& lane);
  bool look(int sender);
  bool match(Receive& receive);
  void accept(Receive& receive, int sender, const Announced& message);
  bool read_window(int sender);
  void loop();
  bool has_unfinished() const;
  void start_thread();
  std::optional<Received> finish(int64_t id);
  Error late(int64_t id, std::chrono::milliseconds limit) const;
  Receive* find_receive(int64_t id);
  MessageSlot& slot(int sender, int receiver, uint64_t sequence) const;

  const HostRank host_;
  std::atomic<uint32_t>& bell_;
  std::mutex mutex_;
  std::deque<Send> sends_;        // not waited for, in the order of starting
  std::deque<Receive> receives_;  // likewise
  std::vector<Peer> peers_;
  int64_t started_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cohort
