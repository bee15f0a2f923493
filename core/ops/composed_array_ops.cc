#include <algorithm>
#include <cmath>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

// Functions of arrays that have no op of their own: they add others, whose kernels and gradients
// are theirs.
namespace cohort::ops {
namespace {

using Dims = std::vector<int64_t>;

constexpr double kMaxCount = 0x1p40;  // of what a graph holds in one value

// A constant of `count` numbers, of which value(i) is number i.
template <typename F>
Value sequence(int64_t count, DType dtype, const F& value) {
  Tensor numbers(DType::kFloat64, Shape{count});
  for (int64_t i = 0; i < count; ++i) numbers.data<double>()[i] = value(static_cast<double>(i));
  return constant(numbers.cast(dtype));
}

// [outer, extent, inner], as which x is seen where one of its axes matters.
struct Lines {
  int64_t outer, extent, inner;
  Lines(const Shape& shape, int axis)
      : outer(shape.count(0, axis)),
        extent(shape[axis]),
        inner(shape.count(axis + 1, shape.rank())) {}
};

Value repeat(const Value& x, int axis, int64_t times) {
  const Lines lines(x.shape(), axis);
  const Value apart = reshape(x, {lines.outer, 1, lines.extent, lines.inner});
  const Shape repeated{lines.outer, times, lines.extent, lines.inner};
  return reshape(broadcast_to(apart, repeated),
                 x.shape().with_dim(axis, times * lines.extent).to_vector());
}

}  // namespace

Value zeros_like(const Value& x) { return broadcast_to(scalar_like(x, 0), x.shape()); }
Value ones_like(const Value& x) { return broadcast_to(scalar_like(x, 1), x.shape()); }

Value arange(double start, double limit, double step, DType dtype) {
  const std::string name = in_scope("arange");
  const double count = std::ceil((limit - start) / step);
  const auto refuse = [&](const char* why) {
    invalid(name, ": ", why, ": from ", start, " to ", limit, " in steps of ", step);
  };
  if (!std::isfinite(start) || !std::isfinite(limit) || !std::isfinite(step) || step == 0)
    refuse("the numbers must be finite, and the step not 0");
  if (count > kMaxCount) refuse("there are too many numbers");
  if (dtype == DType::kBool) invalid(name, ": the numbers cannot be bool");
  const auto length = static_cast<int64_t>(std::max(count, 0.0));
  const double last = start + static_cast<double>(length - 1) * step;
  for (const double number : {start, step, length > 0 ? last : start})
    prepare("arange", [&] { require_number_of(number, dtype); });
  return sequence(length, dtype, [&](double i) { return start + i * step; });
}

Value linspace(double start, double stop, int64_t count, DType dtype) {
  const std::string name = in_scope("linspace");
  if (!std::isfinite(start) || !std::isfinite(stop))
    invalid(name, ": the ends must be finite, are ", start, " and ", stop);
  if (count < 0 || static_cast<double>(count) > kMaxCount)
    invalid(name, ": there cannot be ", count, " numbers");
  if (!is_floating(dtype)) invalid(name, ": the numbers must be floating, not ", dtype);
  const double steps = std::max(static_cast<double>(count) - 1, 1.0);
  return sequence(count, dtype, [&](double i) { return std::lerp(start, stop, i / steps); });
}

Value move_axis(const Value& x, int64_t from, int64_t to) {
  const int moved = axis_of("move_axis", x, from), place = axis_of("move_axis", x, to);
  if (moved == place) return x;
  Dims perm;
  for (int axis = 0; axis < x.shape().rank(); ++axis)
    if (axis != moved) perm.push_back(axis);
  perm.insert(perm.begin() + place, moved);
  return transpose(x, perm);
}

Value stack(const Values& values, int64_t axis) {
  if (values.empty()) invalid(in_scope("stack"), ": there is nothing to join");
  Values parts;
  for (const Value& value : values) parts.push_back(expand_dims(value, axis));
  return concat(parts, axis);
}

Value tile(const Value& x, const Dims& multiples) {
  const int rank = x.shape().rank();
  if (multiples.size() != static_cast<size_t>(rank))
    invalid(in_scope("tile"), ": ", multiples.size(), " multiples for the ", rank, " axes of ",
            x.shape());
  Value result = x;
  for (int axis = rank - 1; axis >= 0; --axis) {
    const int64_t times = multiples[static_cast<size_t>(axis)];
    if (times < 0) invalid(in_scope("tile"), ": a multiple must not be negative, is ", times);
    if (times != 1) result = prepare("tile", [&] { return repeat(result, axis, times); });
  }
  return result;
}

Value flip(const Value& x, const Dims& axes) {
  const GraphScope scope(x.graph());
  Value result = identity(x);  // so that the gradient of a whole variable is dense
  for (const int64_t axis : axes_of("flip", x, axes)) {
    const int64_t extent = x.shape()[static_cast<int>(axis)];
    result = gather(result, arange(static_cast<double>(extent - 1), -1, -1), axis);
  }
  return result;
}

// The lines of x along the axis one after the other, from which each line of indices takes its own.
Value take_along_axis(const Value& x, const Value& indices, int64_t axis) {
  const GraphScope scope(x.graph());
  const int along = axis_of("take_along_axis", x, axis);
  const Shape& shape = x.shape();
  prepare("take_along_axis", [&] {
    require_integer(indices.spec(), "indices");
    if (indices.shape().rank() != shape.rank() ||
        indices.shape().with_dim(along, 0) != shape.with_dim(along, 0))
      invalid("indices of shape ", indices.shape(), " and x of shape ", shape,
              " differ in more than axis ", along);
  });
  const int64_t extent = shape[along], count = indices.shape()[along],
                lines = shape.count(0, along) * shape.count(along + 1, shape.rank());
  const Value index = cast(indices, DType::kInt64);
  const Value inside = logical_and(greater_equal(index, scalar_like(index, 0)),
                                   less(index, scalar_like(index, static_cast<double>(extent))));
  const Value chosen = require(
      index, reduce_all(inside),
      str(in_scope("take_along_axis"), ": an index is not one of axis ", along, " of ", shape));
  const Value moved = move_axis(chosen, along, -1);
  const Value starts = sequence(lines, DType::kInt64,
                                [&](double line) { return line * static_cast<double>(extent); });
  const Value places = reshape(moved, {lines, count}) + reshape(starts, {lines, 1});
  const Value taken = gather(reshape(move_axis(x, along, -1), {lines * extent}), places);
  return move_axis(reshape(taken, moved.shape().to_vector()), -1, along);
}

}  // namespace cohort::ops
