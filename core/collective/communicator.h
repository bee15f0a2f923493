#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort {

// How elements of different ranks combine. The numbers are part of the serialised graph format.
enum class ReduceOp : int64_t { kSum = 0, kMean = 1, kMin = 2, kMax = 3, kProduct = 4 };

// A part of a bucket: `count` elements that a rank reads from `source` and whose result goes to
// `target` (which may be the same memory).
struct Segment {
  const void* source;
  void* target;
  int64_t count;
};

// A group of ranks that combine data. Every rank makes the same calls in the same order. One thread
// at a time per rank; ranks may be threads or processes, as the backend says.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Combines the segments of all ranks element by element; segment sizes, dtype and op must be
  // equal on every rank (kInvalidArgument on all of them otherwise). Every rank gets the same bits,
  // and the same on every run. Returns when this rank's targets are written and its sources may be
  // reused.
  virtual void all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) = 0;
  // Returns when every rank has called it.
  virtual void barrier() = 0;
  // Ends the group: every present and later call on any rank throws `error` (the first one given
  // wins).
  virtual void abort(const Error& error) = 0;
};

// The communicators of `size` ranks that are threads of this process. Reduction happens in place,
// in parallel: every rank reduces its slice straight out of the other ranks' memory.
std::vector<std::unique_ptr<Communicator>> make_in_process_communicators(int size);

}  // namespace cohort
