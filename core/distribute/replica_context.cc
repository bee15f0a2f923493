#include "core/distribute/replica_context.h"

#include <iterator>
#include <map>

#include "core/distribute/strategy.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"

namespace cohort {
namespace {

void check(ReduceOp op, const CommunicationOptions& options) {
  if (op != ReduceOp::kSum && op != ReduceOp::kMean)
    invalid("ReplicaContext::all_reduce takes sum or mean, not ", reduce_op_name(op));
  options.validate();
  if (options.timeout_seconds || options.implementation != CommunicationImplementation::kAuto)
    invalid("timeout_seconds and implementation belong to a whole strategy: give them to its ",
            "constructor, not to all_reduce");
}

void check(ReduceOp op, const Value& value) {
  if (op == ReduceOp::kMean && !is_floating(value.dtype()))
    invalid("all_reduce: the mean of ", value.spec(), " is not of its dtype; cast it first");
}

// The places of `values` in packs of one dtype and about `bytes_per_pack` bytes; 0: of any size.
std::vector<std::vector<size_t>> make_packs(const std::vector<Value>& values,
                                            int64_t bytes_per_pack) {
  struct Pack {
    std::vector<size_t> places;
    int64_t bytes = 0;
  };
  std::map<DType, Pack> open;
  std::vector<std::vector<size_t>> packs;
  for (size_t i = 0; i < values.size(); ++i) {
    Pack& pack = open[values[i].dtype()];
    pack.places.push_back(i);
    pack.bytes += static_cast<int64_t>(values[i].spec().bytes());
    if (bytes_per_pack == 0 || pack.bytes < bytes_per_pack) continue;
    packs.push_back(std::move(pack.places));
    pack = {};
  }
  for (auto& [dtype, pack] : open)
    if (!pack.places.empty()) packs.push_back(std::move(pack.places));
  return packs;
}

// Along axis 0.
Value gather_rows(const Value& value) {
  std::vector<int64_t> extents;
  for (const Shape& shape : shapes_on_replicas(value)) {
    // Of another rank where that replica asks about another value in its place.
    if (shape.rank() != value.shape().rank() ||
        shape.without_axis(0) != value.shape().without_axis(0))
      invalid("all_gather: one replica has ", value.spec(), " and another the shape ", shape,
              "; only the axis along which they are gathered may differ");
    extents.push_back(shape[0]);
  }
  return ops::all_gather(value, extents);
}

}  // namespace

int ReplicaContext::num_replicas_in_sync() const { return strategy_.num_replicas_in_sync(); }

Value ReplicaContext::replica_id_in_sync_group() const {
  strategy_.require_replica("ReplicaContext::replica_id_in_sync_group");
  return ops::replica_id();
}

Value ReplicaContext::all_reduce(ReduceOp op, const Value& value,
                                 const CommunicationOptions& options) const {
  return all_reduce(op, std::vector{value}, options)[0];
}

std::vector<Value> ReplicaContext::all_reduce(ReduceOp op, const std::vector<Value>& values,
                                              const CommunicationOptions& options) const {
  strategy_.require_replica("ReplicaContext::all_reduce");
  check(op, options);
  for (const Value& value : values) check(op, value);
  std::vector<Value> reduced = values;
  if (num_replicas_in_sync() == 1) return reduced;
  for (const auto& places : make_packs(values, options.bytes_per_pack)) {
    std::vector<Value> pack;
    for (const size_t i : places) pack.push_back(values[i]);
    const auto results = ops::all_reduce(pack, op);
    for (size_t k = 0; k < places.size(); ++k) reduced[places[k]] = results[k];
  }
  return reduced;
}

Gradient ReplicaContext::all_reduce(ReduceOp op, const Gradient& value,
                                    const CommunicationOptions& options) const {
  return all_reduce(op, std::vector{value}, options)[0];
}

std::vector<Gradient> ReplicaContext::all_reduce(ReduceOp op, const std::vector<Gradient>& values,
                                                 const CommunicationOptions& options) const {
  check(op, options);
  std::vector<Gradient> reduced = values;
  std::vector<Value> dense;
  for (const Gradient& value : values)
    if (value && !value.sparse()) dense.push_back(value.values);
  const auto results = all_reduce(op, dense, options);
  auto next = results.begin();
  for (Gradient& value : reduced) {
    if (value.sparse())
      value = gather_slices(op, value);
    else if (value)
      value.values = *next++;
  }
  return reduced;
}

Gradient ReplicaContext::gather_slices(ReduceOp op, const Gradient& slices) const {
  check(op, slices.values);
  Gradient all = slices;
  if (num_replicas_in_sync() > 1) {
    all.values = gather_rows(slices.values);
    all.indices = gather_rows(slices.indices);
  }
  Gradient combined = ops::combine_slices(all);
  if (op == ReduceOp::kMean)
    combined.values = combined.values / static_cast<double>(num_replicas_in_sync());
  return combined;
}

Value ReplicaContext::all_gather(const Value& value, int64_t axis) const {
  strategy_.require_replica("ReplicaContext::all_gather");
  if (value.shape().rank() == 0)
    invalid("a scalar cannot be gathered; give it an axis: reshape(x, {1})");
  const int at = value.shape().normalize_axis(axis);
  if (num_replicas_in_sync() == 1) return value;
  if (at == 0) return gather_rows(value);
  std::vector<int64_t> perm;  // brings the axis to the front, and is its own inverse
  for (int64_t i = 0; i < value.shape().rank(); ++i) perm.push_back(i);
  std::swap(perm[0], perm[static_cast<size_t>(at)]);
  return ops::transpose(gather_rows(ops::transpose(value, perm)), perm);
}

int64_t ReplicaContext::global_extent(const Value& value, int64_t axis) const {
  strategy_.require_replica("ReplicaContext::global_extent");
  const int at = value.shape().normalize_axis(axis);
  int64_t total = 0;
  for (const Shape& shape : shapes_on_replicas(value)) total += shape[at];
  return total;
}

Value ReplicaContext::first_row(const Value& value) const {
  strategy_.require_replica("ReplicaContext::first_row");
  if (value.shape().rank() == 0) invalid("a scalar has no rows; give it an axis: reshape(x, {1})");
  std::vector<int64_t> counts;
  for (const Shape& shape : shapes_on_replicas(value)) counts.push_back(shape[0]);
  const int64_t replicas = std::ssize(counts);
  const Value is_before =
      ops::less(ops::arange(0, static_cast<double>(replicas)), ops::replica_id());
  const Value rows_before = ops::where(is_before, ops::constant(Tensor::from(counts, {replicas})),
                                       ops::constant(0, DType::kInt64));
  return ops::reduce_sum(rows_before);
}

}  // namespace cohort
