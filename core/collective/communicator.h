#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/collective/call.h"
#include "core/tensor/tensor.h"

namespace cohort {

class DeviceCollectives;  // core/collective/device_collectives.h

// One collective of one rank: the time in which data moved, without the wait for late ranks.
struct CommunicationEvent {
  std::string_view kind;  // "AllReduce"
  int64_t bytes;          // of the combined value
  std::chrono::steady_clock::time_point begin, end;
};
using CommunicationObserver = std::function<void(const CommunicationEvent&)>;

// Messages between two ranks. Those of one sender with one tag arrive in the order in which they
// were sent. Tags are 0 or more.
inline constexpr int kAnyRank = -1, kAnyTag = -1;
struct SendCall {
  const void* source;
  int64_t bytes;
  int destination;
  int tag = 0;
};
struct ReceiveCall {
  void* target;
  int64_t capacity;  // in bytes; a longer message is kInvalidArgument on both ranks
  int source = kAnyRank;
  int tag = kAnyTag;
};
struct Received {
  int source = kAnyRank;
  int tag = kAnyTag;
  int64_t bytes = 0;
};

// A group of ranks that combine data. Every rank makes the same collective calls in the same order:
// kinds of call, sizes, dtypes, ops and roots must be equal on every rank. A mistake is
// kInvalidArgument on all ranks, names both sides, and ends the group as `abort` does; it never
// gives a wrong number. One thread at a time per rank; ranks may be threads or processes, as the
// backend says. Destroying one rank's communicator ends the group for the others (kUnavailable).
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns when this rank's targets are written and its sources may be reused.
  virtual void run(const Call& call) = 0;
  // Starts a collective that goes on in the background until `wait`; its memory, and the arrays
  // that spans in `call` refer to, must stay until then. Collectives take effect in the order of
  // these calls, whether started or run. The result, never negative, identifies the operation.
  virtual int64_t start(const Call& call) = 0;

  // Starts to send or receive a message; independent of collectives. Sending ends when the message
  // has been taken over, which may be when its receiver asks for it. A rank cannot send to itself.
  virtual int64_t start_send(const SendCall& call) = 0;
  virtual int64_t start_receive(const ReceiveCall& call) = 0;

  // Waits for something started. Waits may come in any order, each once, and throw the operation's
  // error. The result tells what a receive has got.
  virtual Received wait(int64_t operation) = 0;
  // Whether `wait` would return or throw at once. For asking again and again: where ranks are
  // processes, the time limit of an operation counts from its start; where they are threads, in
  // `wait` alone.
  virtual bool is_done(int64_t operation) = 0;

  // A new group of the ranks that give the same color, in the order of their keys and then their
  // ranks here: a part of this one. Null for a negative color. A collective call.
  virtual std::unique_ptr<Communicator> split(int color, int key = 0) = 0;

  // Ends the group: calls on any rank that still wait for others, and every later call, throw
  // `error` (the first one given wins). Collectives that all ranks have joined are finished. From
  // any thread.
  //
  // It also ends the parts of the group that this rank is in, those that it makes later, and
  // theirs: where every process aborts its ranks because the job has failed, nobody waits in a
  // part. No other end of a group reaches its parts, and none of a part reaches the group.
  virtual void abort(const Error& error) = 0;

  // Memory that the backend can combine in place where memory from elsewhere would have to be
  // copied; it outlives the group if need be. After a call on it that fails its targets may be
  // zeros, and it may be as memory from elsewhere: allocate anew where speed counts, and apart
  // what groups combine that may fail without each other. kResourceExhausted.
  virtual std::shared_ptr<Buffer> allocate(size_t bytes) { return allocate_host_buffer(bytes); }

  // Collectives on the memory of this rank's device; null where there are none.
  virtual DeviceCollectives* on_device() { return nullptr; }

  // Tells `observer` of every later collective that moves data, on the thread that ran it, before
  // the call (or the wait for it) returns. Not while calls are under way. Backends may ignore it.
  virtual void set_observer(const CommunicationObserver& /*observer*/) {}

  // The calls by name; call.h says what they do.
  void barrier(uint64_t topic = 0) { run(BarrierCall{topic}); }
  void all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) {
    run(AllReduceCall{segments, dtype, op});
  }
  int64_t start_all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) {
    return start(AllReduceCall{segments, dtype, op});
  }
  void reduce(const void* source, void* target, int64_t count, DType dtype, ReduceOp op, int root) {
    run(ReduceCall{source, target, count, dtype, op, root});
  }
  void reduce_scatter(const void* source, void* target, std::span<const int64_t> counts,
                      DType dtype, ReduceOp op) {
    run(ReduceScatterCall{source, target, counts, dtype, op});
  }
  void broadcast(const void* source, void* target, int64_t bytes, int root,
                 std::string_view topic = {}) {
    run(BroadcastCall{source, target, bytes, root, topic});
  }
  void all_gather(const void* source, void* target, std::span<const int64_t> bytes,
                  std::string_view topic = {}) {
    run(AllGatherCall{source, target, bytes, topic});
  }
  void gather(const void* source, void* target, std::span<const int64_t> bytes, int root) {
    run(GatherCall{source, target, bytes, root});
  }
  void scatter(const void* source, void* target, std::span<const int64_t> bytes, int root) {
    run(ScatterCall{source, target, bytes, root});
  }
  void all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                  std::span<const int64_t> receive_bytes) {
    run(AllToAllCall{source, send_bytes, target, receive_bytes});
  }
  void send(const void* source, int64_t bytes, int destination, int tag = 0) {
    wait(start_send({source, bytes, destination, tag}));
  }
  Received receive(void* target, int64_t capacity, int source = kAnyRank, int tag = kAnyTag) {
    return wait(start_receive({target, capacity, source, tag}));
  }
};

// What is wrong with a message's call, kInvalidArgument, before it waits for anybody.
void check_send(const SendCall& call, int rank, int size);
void check_receive(const ReceiveCall& call, int rank, int size);
// Of a message that a backend does not know.
[[noreturn]] void refuse_unknown_message(int64_t id);

// How ranks that are threads of this process reduce.
enum class InProcessReduction {
  kSlices,    // in place, in parallel: every rank reduces its slice straight out of the others'
              // memory
  kFirstRank  // rank 0 adds everything up and the others copy (tf.distribute.ReductionToOneDevice)
};

// The communicators of `size` ranks that are threads of this process. Both reductions give the same
// bits.
std::vector<std::unique_ptr<Communicator>> make_in_process_communicators(
    int size, InProcessReduction reduction = InProcessReduction::kSlices);

}  // namespace cohort
