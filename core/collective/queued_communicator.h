#pragma once

#include <optional>

#include "core/collective/background_queue.h"
#include "core/collective/communicator.h"

namespace cohort {

// The base of communicators that do a collective on the thread that asks for it: those that are
// started run on a thread of their own, in order. A backend has what is done at once.
class QueuedCommunicator : public Communicator {
 public:
  void run(const Call& call) final;
  int64_t start(const Call& call) final;
  int64_t start_send(const SendCall& call) final;
  int64_t start_receive(const ReceiveCall& call) final;
  Received wait(int64_t operation) final;
  bool is_done(int64_t operation) final;
  void set_observer(const CommunicationObserver& observer) final { observer_ = observer; }

 protected:
  // One call at a time, and none after `end_queue`.
  virtual void run_now(const Call& call) = 0;
  // Messages, of which the calls are checked. The results are never negative.
  virtual int64_t post(const SendCall& call) = 0;
  virtual int64_t post(const ReceiveCall& call) = 0;
  virtual Received wait_for_message(int64_t id) = 0;
  virtual bool is_message_done(int64_t id) = 0;

  // Returns when nothing runs in the background any more. Every destructor of a backend calls it
  // when what runs, here or on other ranks, has been told to end: it would wait for ever.
  void end_queue() { queue_.reset(); }

  bool has_observer() const { return static_cast<bool>(observer_); }
  // Tells of a call that has just ended well.
  void observe(const Call& call, std::chrono::steady_clock::time_point begin) const;

 private:
  // Identifies a message rather than a collective to wait().
  static constexpr int64_t kMessage = int64_t{1} << 62;

  CommunicationObserver observer_;
  std::optional<BackgroundQueue> queue_{std::in_place, [this](const Call& call) { run_now(call); }};
};

}  // namespace cohort
