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

// The messages of one rank. A sender tells of each in its lane to the receiver, who answers, in any
// order, when it wants one; its bytes then pass through the lane's window. Those of a small message
// are told along, for a receiver that waits for it already. A send ends when its receiver has all
// of it, and a receive when its sender can see that: either may then leave the group at once.
// Whoever waits for a message moves them all on, and else a thread that the first message starts.
// Thread-safe.
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
  bool is_done(int64_t id);

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum Verdict : int32_t { kTaken, kWanted, kTooLong };

  struct Send {
    int64_t id;
    SendCall call;
    std::optional<uint64_t> number = std::nullopt;  // among those told to the receiver
    int64_t written = 0;
    bool ended = false;
    std::optional<Error> error = std::nullopt;
  };
  struct Receive {
    int64_t id;
    ReceiveCall call;
    Received received = {};
    int64_t read = 0;
    bool matched = false, ended = false;
    std::optional<Error> error = std::nullopt;
  };
  struct Message {
    uint64_t number;
    int tag;
    int64_t bytes;
  };
  struct Answer {
    Verdict verdict;
    uint64_t number;
    int64_t capacity;
    int64_t receive;
  };
  // A message that is in the window up to its end.
  struct Unread {
    uint64_t number, end;
  };
  // This rank's ends of the two lanes that it has with another one.
  struct Peer {
    // Of the lane to it.
    uint64_t told = 0, answers_taken = 0, written = 0;
    bool full = false;
    std::deque<uint64_t> wanted;  // numbers of messages; the first goes through the window
    std::deque<Unread> unread;
    // Of the lane from it.
    uint64_t heard = 0, answered = 0, read = 0;
    std::deque<Message> unmatched;
    std::deque<Answer> answers;  // that have no slot yet
    std::deque<int64_t> coming;  // receives; that of the first is going through the window
  };

  // One round of whatever can be done without waiting; whether anything was.
  bool advance();
  // For the lane to `receiver`.
  bool tell_all();
  bool tell(Send& send);
  bool take_answers(int receiver);
  bool end_read(int receiver);
  bool write_window(int receiver);
  Send* find_send(int receiver, uint64_t number);
  // For the lane from `sender`.
  bool hear(int sender);
  bool match(Receive& receive);
  void accept(Receive& receive, int sender, const Message& message, const char* payload);
  bool answer(int sender);
  bool read_window(int sender);
  Receive* find_receive(int64_t id);

  void loop();
  void finish_in_background();
  bool has_unfinished() const;
  bool has_ended(int64_t id) const;
  std::optional<Received> finish(int64_t id);
  Error late(int64_t id, std::chrono::milliseconds limit) const;
  // Says whom a message waits for.
  void warn(int64_t id);

  Lane& lane_to(int receiver) const { return host_.control.lane(host_.rank, receiver); }
  Lane& lane_from(int sender) const { return host_.control.lane(sender, host_.rank); }
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }

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
