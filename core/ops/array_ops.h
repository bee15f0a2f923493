#pragma once

#include "core/graph/graph.h"

// Shape changes, indexing and assembly. All are differentiable with respect to their floating
// inputs. Axes may be negative; errors are kInvalidArgument and name shapes.
namespace cohort::ops {

Value identity(const Value& x);
Value stop_gradient(const Value& x);  // x itself, through which no gradient flows
// x itself, for what may not go on unless `condition`, a bool scalar, is true: else running the
// function is kOutOfRange, with this message. Nothing is asked where nobody needs the result.
Value require(const Value& x, const Value& condition, const std::string& message);
// One extent may be -1: it takes what the others leave.
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
// `before[i]` and `after[i]` elements of `value` around each axis.
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

}  // namespace cohort::ops
