#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/collective/communicator.h"
#include "core/collective/stall_warning.h"
#include "strategies/collective/tcp/connection.h"
#include "strategies/collective/tcp/control.h"

namespace cohort::tcp {

// The messages of one rank. A sender offers a message; when a receive fits, its content follows,
// and ends with the receiver's word that it has it. A thread, made with the first message, moves
// them, so that they arrive whatever their ranks do meanwhile. Thread-safe.
class Messages final : private Receiver {
 public:
  Messages(Control& control, std::vector<net::Stream> links, bool check_payloads,
           std::chrono::milliseconds timeout, StallWarning stall);
  // Lets what has been taken over be known to its sender.
  ~Messages() override;

  // As Communicator's.
  int64_t start(const SendCall& call);
  int64_t start(const ReceiveCall& call);
  Received wait(int64_t id);
  bool is_done(int64_t id);
  // To be called before the group is ended by this rank's leaving: tells senders that their
  // messages have come.
  void flush();

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class State { kWaiting, kMoving, kEnded };
  struct Operation {
    int64_t id;
    bool is_send;
    int peer, tag;  // of a receive, possibly any
    Memory memory;
    State state = State::kWaiting;
    uint64_t message = 0;  // the sender's number
    int64_t got = 0;
    Received received = {};
    std::optional<Error> error = std::nullopt;
  };
  struct Offer {
    int peer, tag;
    uint64_t message;
    int64_t bytes;
  };
  // What is to be sent to one peer after what is being sent.
  struct Outbox {
    std::deque<FrameHeader> words;
    std::deque<Operation*> contents;
  };

  bool accept(int peer, const FrameHeader& header, Destination& destination) override;
  void arrived(int peer, const FrameHeader& header) override;

  int64_t add(Operation operation);
  // kInvalidArgument for one that is not here.
  std::list<Operation>::iterator find(int64_t id);
  // Says whom a message waits for; without the lock while it does.
  void warn(const Operation& operation, Lock& lock) const;
  void loop();
  // What can be done without waiting; false when the group has ended.
  bool move();
  void fill(Connection& connection);
  void wait_for_news();
  void match(const Offer& offer, Operation& receive);
  void say(int peer, const FrameHeader& word);
  Operation* find(bool is_send, int peer, uint64_t message);
  // The receiver has taken a message, or has no room for it.
  void take_word_of_end(Operation& send, int peer, const FrameHeader& header);
  bool is_sending(const Operation& send) const;
  bool has_words() const;

  Control& control_;
  const std::chrono::milliseconds timeout_;
  const StallWarning stall_;
  net::WakeUp wake_up_;
  std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Outbox> outboxes_;
  std::list<Operation> operations_;
  std::list<Offer> offers_;
  int64_t started_ = 0;
  bool stopping_ = false;  // the communicator goes away
  bool closing_ = false;   // the group has ended: only words of what has been taken are heard
  bool stopped_ = false;   // nothing will move any more
  Clock::time_point idle_since_{};  // of the thread alone
  std::thread thread_;
};

}  // namespace cohort::tcp
