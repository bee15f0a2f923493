#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/collective/call.h"
#include "core/kernels/kernel.h"

// What the kernels of a step's collectives have in common on all devices. With one replica there is
// no communicator, and every op is the identity.
namespace cohort {

// The attribute "op".
ReduceOp reduce_op_of(const KernelSpec& spec);

// Which of the replicas runs the step.
size_t rank_of(const StepInfo& step);
// Of a Broadcast: kInvalidArgument where the step has no replica `root`.
void check_root(int root, const StepInfo& step);

// What an AllReduce asks of the replicas: each run of one dtype is one bucket.
class AllReduceCalls {
 public:
  explicit AllReduceCalls(const KernelSpec& spec);
  AllReduceCalls(const AllReduceCalls&) = delete;
  AllReduceCalls& operator=(const AllReduceCalls&) = delete;

  // With these inputs and outputs, until it is asked again.
  std::span<const Call> with(const KernelContext& context);

 private:
  std::vector<Segment> segments_;
  std::vector<Call> calls_;  // of the segments
};

// The rows that every replica has of a value whose replicas' rows lie one behind the other: the
// attribute "extents". A graph is traced for certain numbers of rows; another is a mistake of
// whoever traced it.
class Extents {
 public:
  // This replica has `own` rows, which are as those of `value`.
  Extents(const KernelSpec& spec, int64_t own, const TensorSpec& value);

  // kInvalidArgument where the step has another number of replicas, or this one other rows.
  void check(const StepInfo& step) const;
  // By replica.
  const std::vector<int64_t>& elements() const { return elements_; }
  const std::vector<int64_t>& bytes() const { return bytes_; }

 private:
  std::string op_;
  std::vector<int64_t> extents_, elements_, bytes_;
  int64_t own_;
};

}  // namespace cohort
