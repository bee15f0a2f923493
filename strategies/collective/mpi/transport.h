#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/base/error.h"
#include "strategies/collective/mpi/control.h"
#include "strategies/collective/mpi/mpi_library.h"
#include "strategies/collective/mpi/piece_pool.h"

namespace cohort::mpi {

using Clock = std::chrono::steady_clock;

// A piece of data on its way. To be looked at under the transport's lock.
struct Transfer {
  Piece piece;
  int64_t bytes;  // to move
  int process;    // the other one, a rank of MPI's world
  bool is_send;
  bool done = false;
  bool cancelled = false;
  int error = MPI_SUCCESS;
};
using TransferPtr = std::shared_ptr<Transfer>;

// This process's one connection with the others over MPI: a stream of control messages, and pieces
// of data under tags that their receivers choose. MPI sees no memory but the transport's own, so
// that a caller can give up at any time. Nothing here blocks: who waits, polls. MPI is called under
// one lock, so that MPI_THREAD_SERIALIZED is enough.
class Transport {
 public:
  // A group, as far as it gets control messages. Called under the lock; must not throw.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    // From the process of that rank in MPI's world.
    virtual void receive(int process, Control control) = 0;
    // Something may have moved.
    virtual void advance() = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  // MPI is initialised. Collective over all processes; kDeadlineExceeded when one does not come:
  // then another may be made here, which waits for the same.
  explicit Transport(Clock::duration limit);

  int rank() const { return rank_; }
  int size() const { return size_; }
  PiecePool& pool() { return pool_; }
  Lock lock() { return Lock(mutex_); }

  // Polls until `ready`, which is called under the lock; false when the deadline comes first.
  bool poll_until(Clock::time_point deadline, const std::function<bool()>& ready);

  // --- All below under the lock.

  // Takes what has come and moves what can be moved, once; whether anything happened.
  bool progress();

  // Control messages that came for the group already are handed to it at once.
  void add(uint64_t group, Receiver* receiver);
  void remove(uint64_t group);
  // A tag that no group of this process has received under.
  int new_tag();

  TransferPtr send(int process, const Control& control);
  TransferPtr send(int process, int tag, Piece piece, int64_t bytes);
  TransferPtr receive(int process, int tag, int64_t bytes);
  // Nobody waits for it any more; its memory goes when MPI is done with it.
  void cancel(const TransferPtr& transfer);

  // Tells all processes that this one ends; whether all have said so by the deadline. Takes the
  // lock itself.
  bool leave(Clock::time_point deadline);
  // The last use of MPI, before it is finalised. Takes the lock itself.
  void close();
  bool closed() const { return closed_; }

 private:
  static constexpr int kControlTag = 0;
  struct Slot {  // of the control messages that MPI may deliver
    Piece memory;
    MPI_Request request;
  };

  // MPI ends the process when it is used after its end: kUnavailable instead.
  void check_open() const;
  bool receive_controls();
  bool complete_transfers();
  void post(Slot& slot);
  void dispatch(int process, const char* bytes, int count);
  void start(MPI_Request request, const TransferPtr& transfer);

  const Library& mpi_ = library();
  MPI_Comm comm_ = nullptr;
  int rank_ = 0, size_ = 0, max_tag_ = 0, last_tag_ = kControlTag;
  PiecePool controls_, pool_;
  std::mutex mutex_;
  std::vector<Slot> slots_;  // used in turn
  size_t next_slot_ = 0;
  std::vector<MPI_Request> requests_;  // on their way, with
  std::vector<TransferPtr> transfers_;
  std::vector<int> indices_;  // of those that are done
  std::vector<MPI_Status> statuses_;
  std::unordered_map<uint64_t, Receiver*> groups_;
  std::unordered_map<uint64_t, std::vector<std::pair<int, Control>>> early_;
  std::unordered_set<uint64_t> removed_;
  int left_ = 0;  // processes
  bool closed_ = false;
};

}  // namespace cohort::mpi
