#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/collective/call.h"
#include "core/collective/stall_warning.h"
#include "strategies/collective/mpi/group.h"

namespace cohort::mpi {

// What the ranks of a group exchange for one collective. Each wait for others has the same limit:
// kDeadlineExceeded names the ranks that did not come. Waits throw the group's error when it ends.
class Traffic {
 public:
  // All that is given outlives this.
  Traffic(Group& group, const Call& call, uint64_t number, Clock::duration limit,
          const StallWarning& stall)
      : group_(group), call_(call), number_(number), limit_(limit), stall_(stall) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  // As Group's.
  std::string name(int rank) const { return group_.name(rank); }
  std::string peer(int rank) const { return group_.peer(rank); }
  // The number of the call, from 1.
  uint64_t collective() const { return number_ + 1; }
  PiecePool& pool() { return group_.transport().pool(); }

  // Says to rank r, for each other rank, `statements[r]`, and returns what all said, by rank. This
  // rank then takes part in the call to the end.
  std::vector<Control> join(std::vector<Control> statements);

  // Tells all others a text, cut to what a control message holds, or hears the one of `rank`.
  void tell(const std::string& text);
  std::string hear(int rank);

  // Pieces of data between two ranks arrive in the order in which they were sent.
  TransferPtr send(int rank, Piece piece, int64_t bytes);
  TransferPtr receive(int rank, int64_t bytes);
  void wait(std::span<const TransferPtr> transfers);
  void cancel(std::span<const TransferPtr> transfers);

  // Returns when MPI has passed on what `join` and `tell` said: this rank may not come back to MPI
  // for a long time.
  void finish() { wait(said_); }

 private:
  // `missing` are the ranks for which `ready` waits, in order. An error that names them says it
  // between `before` and `after`.
  void wait_until(const std::function<bool()>& ready, const std::vector<int>& missing,
                  std::string_view before, std::string_view after);

  Group& group_;
  const Call& call_;
  const uint64_t number_;
  const Clock::duration limit_;
  const StallWarning& stall_;
  std::vector<int> tags_;  // of the others, to receive data
  std::vector<TransferPtr> said_;
};

// Pieces that are waited for together. What has not come is cancelled when it goes.
class Batch {
 public:
  explicit Batch(Traffic& traffic) : traffic_(&traffic) {}
  Batch(Batch&&) = default;
  Batch& operator=(Batch&&) = default;
  ~Batch() { traffic_->cancel(receives_); }

  void send(int rank, Piece piece, int64_t bytes) {
    sends_.push_back(traffic_->send(rank, std::move(piece), bytes));
  }
  // Results come in the order of these calls.
  void receive(int rank, int64_t bytes) { receives_.push_back(traffic_->receive(rank, bytes)); }
  // Until all has come.
  void wait_for_receives() { traffic_->wait(receives_); }
  const char* received(size_t index) const { return receives_[index]->piece.get(); }
  // Until all has gone.
  void wait_for_sends() { traffic_->wait(sends_); }

 private:
  Traffic* traffic_;
  std::vector<TransferPtr> sends_, receives_;
};

}  // namespace cohort::mpi
