#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "core/collective/call.h"
#include "core/collective/stall_warning.h"
#include "strategies/collective/tcp/connection.h"
#include "strategies/collective/tcp/control.h"

namespace cohort::tcp {

class Exchange;

// What is particular to one kind of collective. Besides, every collective has rounds in which each
// rank hears, through others, of all ranks that they make the same call; a small payload can go
// along with them.
class Operation {
 public:
  virtual ~Operation() = default;
  // Sets streams.
  virtual void begin(Exchange& exchange) = 0;
  // Where a frame's payload goes; false leaves it for later.
  virtual bool accept(Exchange& exchange, int peer, const FrameHeader& header,
                      Destination& destination) = 0;
  virtual void arrived(Exchange& exchange, int peer, const FrameHeader& header) = 0;
  // Whether everything has come.
  virtual bool is_complete() const = 0;
  // Whether a frame of `peer` is still to come.
  virtual bool expects(int peer) const = 0;
  // Whether this rank may tell others that it has joined.
  virtual bool may_join() const { return true; }
};

// Makes the collectives of one rank happen, one after the other, on the calling thread: moves what
// can be moved on all connections, and polls when nothing can. One thread at a time.
class Exchange final : private Receiver {
 public:
  // Places of a connection's streams: what others wait for comes first.
  static constexpr size_t kRounds = 0, kResults = 1, kParts = 2;

  Exchange(Control& control, std::vector<net::Stream> links, bool check_payloads,
           std::chrono::milliseconds timeout, StallWarning stall, bool spin);
  ~Exchange() override;

  int rank() const { return control_.rank(); }
  int size() const { return control_.size(); }

  // `blocks`: what the rounds carry, size() blocks of as many bytes, of which the first is this
  // rank's and block b will be that of rank (rank + b) % size; or null.
  void run(const Call& call, Operation& operation, const Memory* blocks = nullptr);
  // What errors call the collectives that follow; without it, they are counted from 1. Of which
  // call they are a part, as warnings say; null where each is one by itself.
  void set_name(std::optional<uint64_t> number, const Call* whole) {
    number_ = number;
    whole_ = whole;
  }
  // When the first frame of the last collective came: no rank was waited for any more by then, or
  // data moved already.
  Clock::time_point first_heard() const { return first_heard_; }
  // What errors call the next collective.
  uint64_t next_number() const { return number_.value_or(sequence_ + 1); }
  // net::sending_time() to another rank.
  std::chrono::microseconds sending_time(int peer) const;
  // Returns when the other ranks' hosts have all that was sent, or after a short time.
  void flush();

  // For operations.
  Stream& stream(int peer, size_t place) {
    return connections_[static_cast<size_t>(peer)]->stream(place);
  }
  FrameHeader header(FrameKind kind) const;
  // Frames that were left may be accepted now.
  void unpark();
  // What was received cannot be: what two ranks exchange has not the same size.
  void report_sizes(int sender, int receiver);
  // As Control's.
  [[noreturn]] void refuse_frame(int peer) const { control_.refuse_frame(peer); }

 private:
  bool accept(int peer, const FrameHeader& header, Destination& destination) override;
  void arrived(int peer, const FrameHeader& header) override;

  void move_until_done();
  bool is_done() const;
  void look_after_connections();
  void wait();
  void poll_once(Clock::time_point until, bool data);
  // Finds out, together with the other ranks, what is wrong; throws if something is, as it always
  // is where this rank has seen it or the time is over.
  void diagnose(bool timed_out);
  std::vector<int> absent() const;
  // Finds out who does not come, and says so.
  void warn();
  std::optional<Error> verdict(bool timed_out) const;
  std::string names(const std::vector<int>& peers) const;
  // What a rank waits in.
  std::string described() const;
  void send_rounds();
  int rounds() const;

  Control& control_;
  const std::chrono::milliseconds timeout_;
  const StallWarning stall_;
  const bool spin_;
  net::WakeUp wake_up_;
  std::vector<std::unique_ptr<Connection>> connections_;  // null at the own rank
  std::vector<bool> given_up_;                            // connections that are closed
  std::vector<pollfd> polled_;

  // Of the collective under way.
  const Call* call_ = nullptr;
  Operation* operation_ = nullptr;
  const Memory* blocks_ = nullptr;
  Fingerprint fingerprint_;
  uint64_t sequence_ = 0;
  std::optional<uint64_t> number_;
  const Call* whole_ = nullptr;
  int sent_rounds_ = 0;
  uint32_t heard_rounds_ = 0;  // a bit each
  int sender_ = -1, receiver_ = -1;
  bool is_wrong_ = false, has_reported_ = false, may_warn_ = false;
  Clock::time_point deadline_;
  Clock::time_point last_ended_;  // the last call
  Clock::time_point first_heard_;
  bool has_heard_ = false;
  Clock::time_point idle_since_;
  bool idle_ = false;
};

}  // namespace cohort::tcp
