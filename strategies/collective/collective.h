#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/collective/communicator.h"
#include "core/tensor/tensor.h"

// Collectives of tensors, for programs that talk to their group directly. Every rank makes the same
// calls in the same order; what Communicator says about threads, errors and the end of a group
// holds. Results are new tensors, arguments stay as they are.
//
// Where ranks need not know beforehand what others give, they tell each other dtypes and shapes
// first. What does not fit is then kInvalidArgument on every rank, names both sides, and leaves the
// group as it was.
//
// Any other mistake is kInvalidArgument on every rank, too, but ends the group: tensors that differ
// in a reduction, and what a rank alone can see to be wrong, as an integer mean or a root that is
// none of the ranks. A rank that threw by itself, caught that and went on would be a call behind
// the others, where the next one may well fit: a wrong number. Check beforehand what the program
// may get wrong. Only a message is refused on its own rank, and leaves the group as it was.
namespace cohort::collective {

// Combines the elements of all ranks' tensors, whose dtypes and shapes are equal.
Tensor all_reduce(Communicator& group, const Tensor& value, ReduceOp op = ReduceOp::kSum);
// The same for many tensors, or none, of any dtypes: values[i] with those of the other ranks, in
// one collective for each dtype.
std::vector<Tensor> all_reduce(Communicator& group, std::span<const Tensor> values,
                               ReduceOp op = ReduceOp::kSum);
// As all_reduce, but only rank `root` gets a tensor; others get one that is not defined().
Tensor reduce(Communicator& group, const Tensor& value, int root, ReduceOp op = ReduceOp::kSum);
// As all_reduce, of which each rank gets a part: rows along the first axis in rank order, as many
// for each as there are, and one more for the first ranks where they do not divide.
Tensor reduce_scatter(Communicator& group, const Tensor& value, ReduceOp op = ReduceOp::kSum);
// The same with rows[r] rows for rank r; the numbers are equal on all ranks.
Tensor reduce_scatter(Communicator& group, const Tensor& value, std::span<const int64_t> rows,
                      ReduceOp op = ReduceOp::kSum);

// The tensor of rank `root`. Others' `value` is not looked at.
Tensor broadcast(Communicator& group, const Tensor& value, int root);
// All ranks' tensors one behind the other along the first axis, in which alone they may differ.
Tensor all_gather(Communicator& group, const Tensor& value);
// As all_gather, but only rank `root` gets a tensor.
Tensor gather(Communicator& group, const Tensor& value, int root);
// The rows of the root's tensor, divided as in reduce_scatter. Others' `value` is not looked at.
Tensor scatter(Communicator& group, const Tensor& value, int root);
// values[r] goes to rank r; the result has what came from each rank. Any dtypes and shapes.
std::vector<Tensor> all_to_all(Communicator& group, const std::vector<Tensor>& values);
void barrier(Communicator& group);

// Returns when the tensor has been taken over, which may be when its receiver asks for it.
void send(Communicator& group, const Tensor& value, int destination, int tag = 0);
// The next tensor of a rank, or of any, and who sent it with which tag. Tags of tensors are not
// used for other messages.
struct Message {
  Tensor value;
  int source, tag;
};
Message receive(Communicator& group, int source = kAnyRank, int tag = kAnyTag);

class Pending;

// What goes on in the background. Its tensors live until it has ended; who never waits waits in the
// destructor, or where another one is assigned, which keep errors to themselves. An exception that
// destroys it before it has ended ends the group on all ranks (kAborted), so that none waits for
// what this one would have done next.
class PendingTensors {
 public:
  PendingTensors(PendingTensors&&) noexcept;
  PendingTensors& operator=(PendingTensors other) noexcept;
  ~PendingTensors();
  // The results; once.
  std::vector<Tensor> wait();
  // Whether `wait` would return or throw at once.
  bool is_done() const;

 private:
  struct Work;
  explicit PendingTensors(std::unique_ptr<Work> work);
  friend PendingTensors start_all_reduce(Communicator& group, std::span<const Tensor> values,
                                         ReduceOp op);
  friend Pending start_send(Communicator& group, const Tensor& value, int destination, int tag);

  std::unique_ptr<Work> work_;  // null when it has been waited for
};
// The same of a single tensor.
class Pending {
 public:
  // The result, of a send its tensor; once.
  Tensor wait() { return tensor_.wait()[0]; }
  bool is_done() const { return tensor_.is_done(); }

 private:
  explicit Pending(PendingTensors tensor) : tensor_(std::move(tensor)) {}
  friend Pending start_all_reduce(Communicator& group, const Tensor& value, ReduceOp op);
  friend Pending start_send(Communicator& group, const Tensor& value, int destination, int tag);

  PendingTensors tensor_;
};
// The group outlives the result, and what is reduced is not written to until then.
Pending start_all_reduce(Communicator& group, const Tensor& value, ReduceOp op = ReduceOp::kSum);
PendingTensors start_all_reduce(Communicator& group, std::span<const Tensor> values,
                                ReduceOp op = ReduceOp::kSum);
// As send, for ranks that send to each other before they receive.
Pending start_send(Communicator& group, const Tensor& value, int destination, int tag = 0);

// Bytes, such as an object that was written to a string. Ranks need not know beforehand how many
// others give, up to kMostBytes each; more is kInvalidArgument on every rank and leaves the group
// as it was.
inline constexpr int64_t kMostBytes = int64_t{1} << 30;
// Those of rank `root`. Others' `bytes` are not looked at.
std::string broadcast_bytes(Communicator& group, std::string_view bytes, int root);
// Those of each rank, by rank.
std::vector<std::string> all_gather_bytes(Communicator& group, std::string_view bytes);

}  // namespace cohort::collective
