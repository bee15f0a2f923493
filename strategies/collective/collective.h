#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/collective/communicator.h"
#include "core/tensor/tensor.h"

// Collectives of tensors, for programs that talk to their group directly. Every rank makes the same
// calls in the same order; what Communicator says about threads, errors and the end of a group
// holds. Results are new tensors, arguments stay as they are.
//
// Where ranks need not know beforehand what others give, they tell each other dtypes and shapes
// first. What does not fit is then kInvalidArgument on every rank, names both sides, and leaves the
// group as it was; in a reduction it ends the group.
namespace cohort::collective {

// Combines the elements of all ranks' tensors, whose dtypes and shapes are equal.
Tensor all_reduce(Communicator& group, const Tensor& value, ReduceOp op = ReduceOp::kSum);
// As all_reduce, but only rank `root` gets a tensor; others get one that is not defined().
Tensor reduce(Communicator& group, const Tensor& value, int root, ReduceOp op = ReduceOp::kSum);
// As all_reduce, of which each rank gets a part: rows along the first axis in rank order, as many
// for each as there are, and one more for the first ranks where they do not divide.
Tensor reduce_scatter(Communicator& group, const Tensor& value, ReduceOp op = ReduceOp::kSum);

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

// A reduction that goes on in the background. Its tensors live until `wait` has returned; who never
// waits waits in the destructor, which keeps errors to itself.
class Pending {
 public:
  Pending(Communicator& group, const Tensor& value, ReduceOp op);
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) = delete;
  ~Pending();
  // The result; once.
  Tensor wait();

 private:
  struct Work {
    Communicator& group;
    Tensor value, result;
    Segment segment;
    int64_t operation;
  };
  std::unique_ptr<Work> work_;  // null when it has been waited for
};
// The group outlives the result, and `value` is not written to until then.
Pending start_all_reduce(Communicator& group, const Tensor& value, ReduceOp op = ReduceOp::kSum);

}  // namespace cohort::collective
