#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort {

// How elements of different ranks combine. The numbers are part of the serialised graph format.
enum class ReduceOp : int64_t { kSum = 0, kMean = 1, kMin = 2, kMax = 3, kProduct = 4 };

// "sum", "MEAN", ...: in any case. kInvalidArgument lists the allowed names.
ReduceOp reduce_op_from_name(std::string_view name);
std::string_view reduce_op_name(ReduceOp op);

// A part of a bucket: `count` elements that a rank reads from `source` and whose result goes to
// `target`, which may be the same memory, or null where this rank does not want the result.
struct Segment {
  const void* source;
  void* target;
  int64_t count;
};

// One collective of one rank: the time in which data moved, without the wait for late ranks.
struct CommunicationEvent {
  std::string_view kind;  // "AllReduce"
  int64_t bytes;          // of the combined value
  std::chrono::steady_clock::time_point begin, end;
};
using CommunicationObserver = std::function<void(const CommunicationEvent&)>;

// A group of ranks that combine data. Every rank makes the same calls in the same order: kinds of
// call, sizes, dtypes, ops and roots must be equal on every rank. A mistake is kInvalidArgument on
// all ranks, names both sides, and ends the group as `abort` does; it never gives a wrong number.
// One thread at a time per rank; ranks may be threads or processes, as the backend says. Destroying
// one rank's communicator ends the group for the others (kUnavailable).
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Combines the segments of all ranks element by element. Every rank gets the same bits, and the
  // same on every run. Half types are added in float and rounded once; integers wrap around; NaN
  // wins a min or max; integers and bool have no mean, bool no reduction. Returns when this rank's
  // targets are written and its sources may be reused.
  virtual void all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) = 0;
  // Starts an all_reduce that goes on in the background until `wait`. Segments and their memory
  // must stay until then. Operations take effect in the order of these calls, whether started or
  // blocking. The result, never negative, identifies the operation; waits may come in any order,
  // each once, and throw the operation's error.
  virtual int64_t start_all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) = 0;
  virtual void wait(int64_t operation) = 0;

  // Puts the ranks' parts one behind the other, in rank order, into every rank's `target`.
  // `bytes[r]` is the size of rank r's part; this rank's is at `source`, which may be its place in
  // `target`.
  virtual void all_gather(const void* source, void* target, std::span<const int64_t> bytes) = 0;
  // Copies `bytes` bytes from `source` on rank `root` to `target` on every rank. `source` is not
  // read elsewhere; on the root it may be `target`.
  virtual void broadcast(const void* source, void* target, int64_t bytes, int root) = 0;
  // Returns when every rank has called it.
  virtual void barrier() = 0;
  // Ends the group: calls on any rank that still wait for others, and every later call, throw
  // `error` (the first one given wins). Collectives that all ranks have joined are finished. From
  // any thread.
  virtual void abort(const Error& error) = 0;

  // Tells `observer` of every later collective that moves data, on the thread that ran it, before
  // the call (or the wait for it) returns. Not while calls are under way. Backends may ignore it.
  virtual void set_observer(CommunicationObserver /*observer*/) {}
};

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
