#include "core/distribute/cross_device_ops.h"

#include <algorithm>
#include <cstring>

#include "core/base/notice.h"
#include "core/base/wrapping.h"

namespace cohort {
namespace {

// What to do about values that differ like these.
std::string_view remedy(const TensorSpec& a, const TensorSpec& b) {
  if (a.dtype != b.dtype) return "cast them to one dtype";
  if (a.shape.rank() != b.shape.rank()) return "values to reduce have equally many axes";
  return "give an axis to reduce values of different extents along it";
}

void require_reduction(ReduceOp op, const PerReplica<Tensor>& values) {
  if (op != ReduceOp::kSum && op != ReduceOp::kMean)
    invalid("values are reduced over replicas by sum or mean, not by ", reduce_op_name(op));
  if (values.size() == 0) invalid("there is no value to reduce");
  for (size_t r = 0; r < values.size(); ++r) {
    if (values[r].dtype() == DType::kBool)
      invalid("replica ", r, " has ", values[r].spec(), ", which cannot be added; cast it first");
    if (!(values[r].spec() == values[0].spec()))
      invalid("replica 0 has ", values[0].spec(), " but replica ", r, " has ", values[r].spec(),
              "; ", remedy(values[0].spec(), values[r].spec()));
  }
}

// Element by element, as T.
template <typename T>
Tensor add_up(const PerReplica<Tensor>& values) {
  Tensor sum = values[0].cast(dtype_of<T>).clone();
  for (size_t r = 1; r < values.size(); ++r) {
    const Tensor wide = values[r].cast(dtype_of<T>);
    std::transform(wide.data<T>(), wide.data<T>() + wide.num_elements(), sum.data<T>(),
                   sum.data<T>(), wrapping_sum<T>);
  }
  return sum;
}

void divide(Tensor& values, double divisor) {
  for (int64_t i = 0; i < values.num_elements(); ++i) values.data<double>()[i] /= divisor;
}

bool are_cpus(const std::vector<Device>& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [](const Device& device) { return device.type == DeviceType::kCpu; });
}

class OneDevice final : public CrossDeviceOps {
 public:
  std::string name() const override { return "ReductionToOneDevice"; }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) override {
    return make_in_process_communicators(static_cast<int>(devices.size()),
                                         InProcessReduction::kFirstRank);
  }
};

class SharedMemory final : public CrossDeviceOps {
 public:
  std::string name() const override { return "SharedMemoryAllReduce"; }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) override {
    if (!are_cpus(devices)) invalid("SharedMemoryAllReduce is for CPU devices only");
    return make_in_process_communicators(static_cast<int>(devices.size()));
  }
};

}  // namespace

Tensor CrossDeviceOps::reduce(ReduceOp op, const PerReplica<Tensor>& values) {
  require_reduction(op, values);
  const DType dtype = values[0].dtype();
  const bool exact = is_integer(dtype);
  if (op == ReduceOp::kSum)
    return (exact ? add_up<int64_t>(values) : add_up<double>(values)).cast(dtype);
  Tensor mean = exact ? add_up<int64_t>(values).cast(DType::kFloat64) : add_up<double>(values);
  divide(mean, static_cast<double>(values.size()));
  return exact ? mean : mean.cast(dtype);
}

std::vector<Tensor> CrossDeviceOps::batch_reduce(ReduceOp op,
                                                 const std::vector<PerReplica<Tensor>>& values) {
  std::vector<Tensor> results;
  for (const auto& value : values) results.push_back(reduce(op, value));
  return results;
}

PerReplica<Tensor> CrossDeviceOps::broadcast(const Tensor& value, int replicas) {
  PerReplica<Tensor> copies(static_cast<size_t>(replicas));
  for (Tensor& copy : copies) copy = value.clone();
  return copies;
}

Tensor CrossDeviceOps::gather(const PerReplica<Tensor>& values, int64_t axis) {
  if (values.size() == 0) invalid("there is no value to gather");
  const Tensor& first = values[0];
  const int rank = first.shape().rank();
  if (rank == 0) invalid("scalars cannot be gathered; give them an axis: reshape({1})");
  const int at = first.shape().normalize_axis(axis);
  int64_t extent = 0;
  for (size_t r = 0; r < values.size(); ++r) {
    const Shape& shape = values[r].shape();
    if (values[r].dtype() != first.dtype() || shape.rank() != rank ||
        shape.without_axis(at) != first.shape().without_axis(at))
      invalid("replica 0 has ", first.spec(), " but replica ", r, " has ", values[r].spec(),
              "; only axis ", at, ", along which they are gathered, may differ");
    extent += shape[at];
  }
  Tensor all(first.dtype(), first.shape().with_dim(at, extent));
  const int64_t outer = first.shape().count(0, at);
  const size_t row = static_cast<size_t>(first.shape().count(at + 1, rank)) *
                     static_cast<size_t>(dtype_size(first.dtype()));
  auto* to = static_cast<char*>(all.raw());
  for (int64_t o = 0; o < outer; ++o) {
    for (const Tensor& value : values) {
      const size_t bytes = static_cast<size_t>(value.shape()[at]) * row;
      if (bytes > 0)
        std::memcpy(to, static_cast<const char*>(value.raw()) + static_cast<size_t>(o) * bytes,
                    bytes);
      to += bytes;
    }
  }
  return all;
}

std::shared_ptr<CrossDeviceOps> ReductionToOneDevice() { return std::make_shared<OneDevice>(); }
std::shared_ptr<CrossDeviceOps> SharedMemoryAllReduce() { return std::make_shared<SharedMemory>(); }

std::shared_ptr<CrossDeviceOps> select_cross_device_ops(const std::vector<Device>& devices) {
  const auto chosen = are_cpus(devices) ? SharedMemoryAllReduce() : ReductionToOneDevice();
  const auto other_kind = [&](const Device& device) { return device.type != devices[0].type; };
  if (std::any_of(devices.begin(), devices.end(), other_kind))
    print_notice(str("warning: the devices are of several kinds; replicas combine values by ",
                     chosen->name(), ", which is slower than among devices of one kind\n"));
  return chosen;
}

}  // namespace cohort
