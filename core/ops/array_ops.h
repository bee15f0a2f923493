#pragma once

#include "core/graph/graph.h"

// Shape changes, indexing and assembly. All are differentiable with respect to their floating
// inputs. Axes may be negative; errors are kInvalidArgument and name shapes.
namespace cohort::ops {

Value identity(const Value& x);
// x itself, through which no gradient flows. It also gives an op another gradient: the value of
// x + stop_gradient(f(x) - x) is f(x), and its gradient that of x.
Value stop_gradient(const Value& x);
// x itself, for what may not go on unless `condition`, a bool scalar, is true: else running the
// function is kOutOfRange, with this message. Nothing is asked where nobody needs the result.
Value require(const Value& x, const Value& condition, const std::string& message);
// x itself where it has that shape. One extent may be -1: it takes what the others leave.
Value reshape(const Value& x, const std::vector<int64_t>& dims);
Value flatten_from(const Value& x, int axis);  // merges the axes from `axis` on into one
// A new axis, 1 long, which is axis `axis` of the result (-1: the last).
Value expand_dims(const Value& x, int64_t axis);
// Without the axis, which has to be 1 long.
Value squeeze(const Value& x, int64_t axis);
// Repeated along missing axes and those that are 1 long, by NumPy's rules.
Value broadcast_to(const Value& x, const Shape& shape);
// output axis i is input axis perm[i]; an empty perm reverses the axes.
Value transpose(const Value& x, const std::vector<int64_t>& perm = {});
// One after the other along `axis`; the other axes are equal.
Value concat(const std::vector<Value>& values, int64_t axis);
// Parts of these sizes along `axis`, which add up to it.
std::vector<Value> split(const Value& x, const std::vector<int64_t>& sizes, int64_t axis);
// Elements begin[i] .. begin[i] + size[i] of each axis; size -1 means to the end.
Value slice(const Value& x, const std::vector<int64_t>& begin, const std::vector<int64_t>& size);
// `before[i]` and `after[i]` elements of `value`, a number of x's dtype, around each axis.
Value pad(const Value& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
          double value = 0);
// Rows of `params` along `axis` at integer `indices`: the shape is params with that axis replaced
// by the shape of indices. An index out of range is kOutOfRange at run time. The gradient with
// respect to a whole variable along axis 0 is sparse.
Value gather(const Value& params, const Value& indices, int64_t axis = 0);
// The same along axis 0, where index -1 names no row and gives zeros.
Value gather_rows_or_zero(const Value& params, const Value& indices);
// A tensor of zeros with `rows` along axis 0 to which updates[i] is added at row indices[i];
// updates has shape indices.shape + row shape. Index -1 names no row. Sums of 16-bit floats are
// rounded once, at the end.
Value scatter_add(const Value& indices, const Value& updates, int64_t rows);
// [..] integers to [.., depth] of `dtype`: 1 at the index, 0 elsewhere; all 0 for indices out of
// range.
Value one_hot(const Value& indices, int64_t depth, DType dtype = DType::kFloat32);
// Which of `length` places each of some lengths, integers [..], has: bool [.., length], true for
// the first ones (tf.sequence_mask). Not differentiable.
Value sequence_mask(const Value& lengths, int64_t length);

// What follows is made of the ops above.

// Of x's shape and dtype; no gradient flows to x.
Value zeros_like(const Value& x);
Value ones_like(const Value& x);
// start, start + step, ... as long as they lie before `limit`, which a negative step reaches from
// above: a constant of one axis, which may be empty. An integer dtype needs whole numbers.
Value arange(double start, double limit, double step = 1, DType dtype = DType::kInt64);
// `count` floating numbers at equal distances from `start` to `stop`, both included; `start` alone
// where count is 1.
Value linspace(double start, double stop, int64_t count, DType dtype = DType::kFloat32);
// x with its axis `from` at place `to`; the others keep their order.
Value move_axis(const Value& x, int64_t from, int64_t to);
// Values of one shape and dtype, next to each other along a new axis, which is axis `axis` of the
// result (-1: the last).
Value stack(const std::vector<Value>& values, int64_t axis = 0);
// x multiples[i] times in a row along each axis i; 0 times leaves nothing.
Value tile(const Value& x, const std::vector<int64_t>& multiples);
// x back to front along `axes`; none at all means every axis.
Value flip(const Value& x, const std::vector<int64_t>& axes = {});
// The elements of x at integer `indices` along `axis`: of an x [2, 5], along its last axis, element
// [i, j] is x[i, indices[i, j]]. The other axes of x and indices are equal (no broadcasting). An
// index that is negative or too large is kOutOfRange at run time. argmax, with its axis put back by
// expand_dims, is such indices.
Value take_along_axis(const Value& x, const Value& indices, int64_t axis);

}  // namespace cohort::ops
