#include <algorithm>

#include "core/base/wrapping.h"
#include "core/distribute/packing.h"
#include "core/distribute/strategy.h"

// Strategy's reductions of values between steps.
namespace cohort {
namespace {

constexpr std::string_view kInsteadOfReduce = "use ReplicaContext::all_reduce there";

void require_sum_or_mean(ReduceOp op) {
  if (op != ReduceOp::kSum && op != ReduceOp::kMean)
    invalid("values are reduced over replicas by sum or mean, not by ", reduce_op_name(op));
}

bool is_zero(const Tensor& value) {
  const Tensor wide = value.cast(DType::kFloat64);
  return std::all_of(wide.data<double>(), wide.data<double>() + wide.num_elements(),
                     [](double x) { return x == 0; });
}

// The sum along one axis, as T.
template <typename T>
Tensor sum_as(const Tensor& value, int axis) {
  const Shape& shape = value.shape();
  const int64_t outer = shape.count(0, axis), extent = shape[axis],
                inner = shape.count(axis + 1, shape.rank());
  Tensor sums = Tensor::full(dtype_of<T>, shape.without_axis(axis), 0);
  const Tensor wide = value.cast(dtype_of<T>);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t e = 0; e < extent; ++e)
      for (int64_t i = 0; i < inner; ++i) {
        T& sum = sums.data<T>()[o * inner + i];
        sum = wrapping_sum(sum, wide.data<T>()[(o * extent + e) * inner + i]);
      }
  return sums;
}

// In the widest dtype of its kind: integers stay exact.
Tensor sum_along(const Tensor& value, int axis) {
  if (value.dtype() == DType::kBool)
    invalid("reduce: ", value.spec(), " cannot be added; cast it first");
  return is_integer(value.dtype()) ? sum_as<int64_t>(value, axis) : sum_as<double>(value, axis);
}

// Whether values can be added up once each has been added up along the axis.
bool differ_along_alone(const Tensor& a, const Tensor& b, int64_t axis) {
  if (a.dtype() != b.dtype() || a.shape().rank() != b.shape().rank()) return false;
  const int at = a.shape().normalize_axis(axis);
  return a.shape().without_axis(at) == b.shape().without_axis(at);
}

// The sums of each value along an axis, and how many there are.
void sum_each(const PerReplica<Tensor>& values, int64_t axis, PerReplica<Tensor>& sums,
              PerReplica<Tensor>& counts) {
  for (size_t r = 0; r < values.size(); ++r) {
    if (!differ_along_alone(values[0], values[r], axis))
      invalid("reduce: replica 0 has ", values[0].spec(), " but replica ", r, " has ",
              values[r].spec(), "; only extents along the axis may differ");
    const int at = values[r].shape().normalize_axis(axis);
    sums[r] = sum_along(values[r], at);
    counts[r] = Tensor::scalar(values[r].shape()[at]);
  }
}

// What workers ask for, which has to be the same: "a reduce by mean along axis 0 of int32".
std::string topic_of(ReduceOp op, std::optional<int64_t> axis, const Tensor& value) {
  return str("a reduce by ", reduce_op_name(op),
             axis ? str(" along axis ", *axis, " of ", value.dtype()) : "");
}

// `total` over `count` elements of `dtype`; the mean of integers is float64.
Tensor mean_of(const Tensor& total, double count, DType dtype) {
  Tensor mean = total.cast(DType::kFloat64).clone();
  for (int64_t i = 0; i < mean.num_elements(); ++i) mean.data<double>()[i] /= count;
  return is_integer(dtype) ? mean : mean.cast(dtype);
}

}  // namespace

void Strategy::require_value_of_each_replica(const PerReplica<Tensor>& value) const {
  if (value.size() != devices().size() || value.size() == 0)
    invalid(name(), " has ", devices().size(), " replicas, got values of ", value.size());
  for (size_t r = 0; r < value.size(); ++r)
    if (!value[r].defined())
      invalid(name(), ": the tensor of replica ", r, " has no value; it was never assigned");
}

PerReplica<Tensor> Strategy::of_all_workers(const std::string& topic,
                                            const PerReplica<Tensor>& value) const {
  if (workers().size() == 1) return value;
  Packer packer;
  for (const Tensor& tensor : value) packer.add(tensor);
  std::vector<Tensor> all;
  for (const std::string& bytes : workers().exchange_for_step(topic, packer.bytes()))
    for (Unpacker unpacker(bytes); !unpacker.at_end();) all.push_back(unpacker.tensor());
  return all;
}

Tensor Strategy::reduce_over_workers(const std::string& topic, ReduceOp op,
                                     const PerReplica<Tensor>& value, std::optional<int64_t> axis) {
  if (!axis) return cross_device_ops().reduce(op, of_all_workers(topic, value));
  PerReplica<Tensor> sums(value.size()), counts(value.size());
  together(workers(), [&] { sum_each(value, *axis, sums, counts); });
  const DType dtype = value[0].dtype();
  const PerReplica<Tensor> all_sums = of_all_workers(topic, sums);
  Tensor total;
  try {
    total = cross_device_ops().reduce(ReduceOp::kSum, all_sums);
  } catch (const Error& error) {
    throw error.with_context(str("the sums along axis ", *axis));
  }
  if (op == ReduceOp::kSum) return total.cast(dtype);
  const auto all_counts = of_all_workers("the counts of " + topic, counts);
  return mean_of(total, cross_device_ops().reduce(ReduceOp::kSum, all_counts).item(), dtype);
}

Tensor Strategy::reduce(ReduceOp op, const PerReplica<Tensor>& value, std::optional<int64_t> axis) {
  require_cross_replica("reduce", kInsteadOfReduce);
  together(workers(), [&] {
    require_sum_or_mean(op);
    require_value_of_each_replica(value);
  });
  return reduce_over_workers(topic_of(op, axis, value[0]), op, value, axis);
}

Tensor Strategy::reduce(ReduceOp op, const Tensor& value, std::optional<int64_t> axis) {
  require_cross_replica("reduce", kInsteadOfReduce);
  const bool is_alone = workers().size() == 1;
  together(workers(), [&] {
    require_sum_or_mean(op);
    if (!value.defined())
      invalid(name(), "::reduce: the tensor has no value; it was never assigned");
    if (is_alone && num_replicas_in_sync() > 1 && op == ReduceOp::kSum && !is_zero(value))
      invalid(name(), "::reduce: a sum over ", num_replicas_in_sync(),
              " replicas needs a value of each, got one value that is not distributed; pass what "
              "run returned, or take the mean");
  });
  if (!is_alone)
    return reduce_over_workers(topic_of(op, axis, value) + ", one of each worker", op,
                               PerReplica<Tensor>{value}, axis);
  if (!axis) return value;
  const int at = value.shape().normalize_axis(*axis);
  const Tensor total = sum_along(value, at);
  if (op == ReduceOp::kSum) return total.cast(value.dtype());
  return mean_of(total, static_cast<double>(value.shape()[at]), value.dtype());
}

Tensor Strategy::gather(const PerReplica<Tensor>& value, int64_t axis) {
  require_cross_replica("gather", "use ReplicaContext::all_gather there");
  together(workers(), [&] { require_value_of_each_replica(value); });
  return cross_device_ops().gather(of_all_workers(str("a gather along axis ", axis), value), axis);
}

CrossDeviceOps& Strategy::cross_device_ops() {
  static const auto ops = ReductionToOneDevice();
  return *ops;
}

}  // namespace cohort
