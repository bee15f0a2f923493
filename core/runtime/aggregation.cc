#include "core/runtime/aggregation.h"

#include <algorithm>

#include "core/collective/communicator.h"
#include "core/graph/op.h"
#include "core/runtime/replica_group.h"

namespace cohort {
namespace {

bool aggregates_writes(const Variable& variable) {
  return traced_group().num_replicas > 1 && is_written_together(variable.synchronization());
}

// Of a value that is the same on all replicas: whether the program gives it to them, rather than
// letting each compute it.
bool is_given(const Value& value) {
  const std::string& op = value.node().op().name;
  return op == "Constant" || op == "Input";
}

bool is_zero(const Value& value) {
  if (value.node().op().name != "Constant") return false;
  const Tensor& constant = value.node().attributes().get<Tensor>("value");
  const auto* bytes = static_cast<const char*>(constant.raw());
  return std::all_of(bytes, bytes + constant.bytes(), [](char byte) { return byte == 0; });
}

Value number(const Value& like, size_t n) {
  const Tensor value = Tensor::full(like.dtype(), {}, static_cast<double>(n));
  return like.graph().add("Constant", {}, {{"value", value}}).output();
}

Value binary(std::string_view op, const Value& a, const Value& b) {
  return a.graph().add(op, {a, b}).output();
}

Value cast(const Value& value, DType dtype) {
  if (value.dtype() == dtype) return value;
  return value.graph().add("Cast", {value}, {{"dtype", dtype}}).output();
}

// `then` where an element of the floating `value` is finite.
Value where_finite(const Value& value, const Value& then, const Value& otherwise) {
  const Value finite = value.graph().add("IsFinite", {value}).output();
  return value.graph().add("Select", {finite, then, otherwise}).output();
}

Value all_reduce(const Value& value, ReduceOp op) {
  return value.graph().add("AllReduce", {value}, {{"op", static_cast<int64_t>(op)}}).output();
}

Value from_first_replica(const Value& value) {
  return value.graph().add("Broadcast", {value}, {{"root", int64_t{0}}}).output();
}

Value all_gather(const Value& value, const std::vector<int64_t>& extents) {
  return value.graph().add("AllGather", {value}, {{"extents", extents}}).output();
}

Value first_rows(const Value& value, int64_t count) {
  std::vector<int64_t> begin(static_cast<size_t>(value.shape().rank()));
  return value.graph()
      .add("Slice", {value},
           {{"begin", begin}, {"size", value.shape().with_dim(0, count).to_vector()}})
      .output();
}

std::vector<int64_t> counts_on_replicas(const RowUpdates& rows) {
  std::vector<int64_t> counts;
  for (const Shape& shape : shapes_on_replicas(rows.indices)) counts.push_back(shape[0]);
  return counts;
}

RowUpdates of_all_replicas(const RowUpdates& rows) {
  const auto counts = counts_on_replicas(rows);
  return {all_gather(rows.indices, counts), all_gather(rows.updates, counts)};
}

// A broadcast needs the same number of rows everywhere.
RowUpdates of_first_replica(const RowUpdates& rows) {
  const auto counts = counts_on_replicas(rows);
  if (std::all_of(counts.begin(), counts.end(), [&](int64_t n) { return n == counts[0]; }))
    return {from_first_replica(rows.indices), from_first_replica(rows.updates)};
  return {first_rows(all_gather(rows.indices, counts), counts[0]),
          first_rows(all_gather(rows.updates, counts), counts[0])};
}

std::vector<Value> split_integers(const Value& value, size_t copies) {
  const Value part = binary("Div", value, number(value, copies));
  std::vector<Value> parts(copies, part);
  parts[0] = binary("Sub", value, binary("Mul", part, number(part, copies - 1)));
  return parts;
}

// Of floating numbers. In float64 the parts of less wide ones, and all their sums, are exact but
// for the rounding of the first part, by less than half of the value's last digit. Parts of float64
// itself have no digit beyond the last one of the value, so that their sums need none either: half
// the value, which leaves room for the sum, takes these from its part.
std::vector<Value> split_floats(const Value& value, size_t copies) {
  Value part = binary("Div", value, number(value, copies));
  if (value.dtype() == DType::kFloat64) {
    const Value two = number(value, 2), half = binary("Div", value, two);
    const Value rounded = binary("Sub", binary("Add", half, binary("Div", part, two)), half);
    part = where_finite(value, binary("Mul", rounded, two), part);
  }
  const Value wide = cast(value, DType::kFloat64);
  const Value others = binary("Mul", cast(part, DType::kFloat64), number(wide, copies - 1));
  const Value first = cast(binary("Sub", wide, others), value.dtype());
  std::vector<Value> parts(copies, part);
  parts[0] = where_finite(value, first, part);
  return parts;
}

[[noreturn]] void refuse_own_values(const Variable& variable) {
  invalid("variable \"", variable.name(),
          "\" has no aggregation, but each replica writes a value of its own; create it with "
          "Aggregation::kSum, kMean or kOnlyFirstReplica, or write what is the same on every "
          "replica, as the result of an all-reduce is");
}

[[noreturn]] void refuse_given(const Variable& variable) {
  const int replicas = traced_group().num_replicas;
  invalid("variable \"", variable.name(), "\" sums what replicas write, and each of the ", replicas,
          " would add this same value; divide it by ", replicas,
          ", or create the variable with Aggregation::kMean or kOnlyFirstReplica");
}

// Rows that replace or bound others cannot be summed.
void require_summable(const Variable& variable, ScatterOp op) {
  if (op == ScatterOp::kMin || op == ScatterOp::kMax || op == ScatterOp::kUpdate)
    fail(Code::kUnimplemented, "variable \"", variable.name(), "\": a scatter of ",
         op == ScatterOp::kMin   ? "minima"
         : op == ScatterOp::kMax ? "maxima"
                                 : "new rows",
         " has no sum or mean over replicas; use Aggregation::kOnlyFirstReplica or kNone");
}

}  // namespace

Value aggregate(const Variable& variable, const Value& value) {
  if (!aggregates_writes(variable)) return value;
  const bool same = is_same_on_replicas(value);
  switch (variable.aggregation()) {
    case Aggregation::kNone:
      if (!same) refuse_own_values(variable);
      return value;
    case Aggregation::kSum:
      if (same && is_zero(value)) return value;
      if (same && is_given(value)) refuse_given(variable);
      return all_reduce(value, ReduceOp::kSum);
    case Aggregation::kMean:
      require_mean(variable);
      return same ? value : all_reduce(value, ReduceOp::kMean);
    case Aggregation::kOnlyFirstReplica:
      return same ? value : from_first_replica(value);
  }
  return value;
}

RowUpdates aggregate(const Variable& variable, ScatterOp op, const RowUpdates& rows) {
  if (!aggregates_writes(variable)) return rows;
  const bool same = is_same_on_replicas(rows.indices) && is_same_on_replicas(rows.updates);
  switch (variable.aggregation()) {
    case Aggregation::kNone:
      if (!same) refuse_own_values(variable);
      return rows;
    case Aggregation::kSum:
      require_summable(variable, op);
      if (same && is_given(rows.indices) && is_given(rows.updates)) refuse_given(variable);
      return of_all_replicas(rows);
    case Aggregation::kMean: {
      require_summable(variable, op);
      require_mean(variable);
      // Also where rows are multiplied or divided, and by what is the same on every replica:
      // tf.distribute takes the mean of the updates, not of their effects.
      const auto replicas = static_cast<size_t>(traced_group().num_replicas);
      return of_all_replicas(
          {rows.indices, binary("Div", rows.updates, number(rows.updates, replicas))});
    }
    case Aggregation::kOnlyFirstReplica:
      return same ? rows : of_first_replica(rows);
  }
  return rows;
}

bool is_written_together(Synchronization kept) {
  return kept == Synchronization::kAuto || kept == Synchronization::kOnWrite;
}

bool is_made_on_read(const Variable& variable) {
  return variable.synchronization() == Synchronization::kOnRead &&
         variable.aggregation() != Aggregation::kOnlyFirstReplica;
}

void require_value(const Variable& variable) {
  if (is_made_on_read(variable) && variable.aggregation() == Aggregation::kNone)
    invalid("variable \"", variable.name(),
            "\" is synchronised on read without an aggregation: it has a value only inside a "
            "replica");
}

void require_addable(const Variable& variable) {
  require_value(variable);
  if (is_made_on_read(variable) && variable.aggregation() == Aggregation::kSum)
    invalid("variable \"", variable.name(),
            "\" sums its copies when it is read: each would count what is added outside replicas; "
            "assign the new value instead");
}

void require_mean(const Variable& variable) {
  if (!is_floating(variable.spec().dtype))
    invalid("variable \"", variable.name(), "\": the mean of ", variable.spec().dtype,
            " values is not a ", variable.spec().dtype,
            "; choose Aggregation::kSum or kOnlyFirstReplica");
}

// In float64, so that the result is rounded once.
Value merge_copies(const Variable& variable, const std::vector<Value>& copies) {
  require_value(variable);
  if (!is_made_on_read(variable)) return copies[0];
  const DType dtype = variable.spec().dtype, wide = is_floating(dtype) ? DType::kFloat64 : dtype;
  Value sum = cast(copies[0], wide);
  for (size_t i = 1; i < copies.size(); ++i) sum = binary("Add", sum, cast(copies[i], wide));
  if (variable.aggregation() == Aggregation::kMean)
    sum = binary("Div", sum, number(sum, copies.size()));
  return cast(sum, dtype);
}

std::vector<Value> split_over_copies(const Variable& variable, const Value& value, size_t copies) {
  const bool is_sum = is_made_on_read(variable) && variable.aggregation() == Aggregation::kSum;
  if (!is_sum || copies == 1) return std::vector(copies, value);
  return is_floating(value.dtype()) ? split_floats(value, copies) : split_integers(value, copies);
}

}  // namespace cohort
