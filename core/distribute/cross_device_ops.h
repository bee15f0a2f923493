#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/collective/communicator.h"
#include "core/device/device.h"
#include "core/distribute/per_replica.h"

namespace cohort {

// How a strategy combines the values of its local replicas (tf.distribute.CrossDeviceOps). Derive
// from it to plug in a way of one's own: `make_communicators` is what a running step reduces with;
// the others act on host tensors between steps and have defaults. Of these, Strategy::reduce calls
// `reduce`, and Strategy::gather `gather`; `batch_reduce` and `broadcast` are for programs, and the
// library calls neither: inside a step both are the communicators' affair. Only kSum and kMean are
// reductions over replicas (kInvalidArgument else). Values have equal shapes and dtypes, but for
// the gathered axis.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;
  virtual std::string name() const = 0;

  // One communicator for each device, in order. Called for each strategy with several replicas, and
  // again after an error has broken a group.
  virtual std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) = 0;

  // Integers are added exactly, others in float64. The mean of integers is float64. A single value
  // is its own sum and mean.
  virtual Tensor reduce(ReduceOp op, const PerReplica<Tensor>& values);
  // Reduces several values; the results are in their order.
  virtual std::vector<Tensor> batch_reduce(ReduceOp op,
                                           const std::vector<PerReplica<Tensor>>& values);
  // A copy of `value` for each of `replicas` replicas.
  virtual PerReplica<Tensor> broadcast(const Tensor& value, int replicas);
  // The values one behind the other along `axis` (negative: from the end).
  virtual Tensor gather(const PerReplica<Tensor>& values, int64_t axis);
};

// Copies to one device, adds there, and copies back. Works everywhere.
std::shared_ptr<CrossDeviceOps> ReductionToOneDevice();
// In place, in parallel: each replica's thread reduces its slice of every bucket straight out of
// the others' memory. For CPU devices of one process (kInvalidArgument for others); the default for
// them.
std::shared_ptr<CrossDeviceOps> SharedMemoryAllReduce();
// The best for these devices, by the memory of the host; with a warning for devices of several
// kinds. Strategies add NCCL's collectives to its communicators where they can.
std::shared_ptr<CrossDeviceOps> select_cross_device_ops(const std::vector<Device>& devices);

}  // namespace cohort
