#pragma once

#include "core/graph/graph.h"

// Elementwise arithmetic, reductions and matrix products. Every function adds nodes to the graph of
// its arguments (or to the current graph where it has none) and throws kInvalidArgument at once
// when shapes or dtypes do not fit. Binary functions broadcast as NumPy does and need equal dtypes;
// a C++ number takes the dtype of the other operand. Arithmetic, order and reductions are for
// numbers, logic is for bools; `pow`, `is_finite`, `reduce_mean`, `matmul` and, of the functions
// from `neg` to `silu`, all but `neg`, `abs`, `sign` and `square` are for floating numbers. The
// quotient of integers is cut off towards zero, and 0 where the divisor is. Unless said otherwise
// every op is differentiable.
namespace cohort {
namespace ops {

// A tensor known while tracing, embedded in the graph.
Value constant(const Tensor& value);
// A scalar constant of the given dtype, which has to have that number: 0.5 is no integer. An
// integer beyond 2^53 is given as a tensor: Tensor::scalar<int64_t>(...).
Value constant(double value, DType dtype);

Value add(const Value& a, const Value& b);
Value sub(const Value& a, const Value& b);
Value mul(const Value& a, const Value& b);
Value div(const Value& a, const Value& b);
// What division leaves where the quotient is rounded down, as in NumPy and TensorFlow: 0 or of b's
// sign, so that mod(-7, 3) is 2. Of integers by 0 it is 0, of floating numbers NaN.
Value mod(const Value& a, const Value& b);
Value pow(const Value& a, const Value& b);
Value maximum(const Value& a, const Value& b);  // gradient goes to a where a >= b, else to b
Value minimum(const Value& a, const Value& b);

// Comparisons and logic give bool; not differentiable.
Value equal(const Value& a, const Value& b);
Value not_equal(const Value& a, const Value& b);
Value less(const Value& a, const Value& b);
Value less_equal(const Value& a, const Value& b);
Value greater(const Value& a, const Value& b);
Value greater_equal(const Value& a, const Value& b);
Value logical_and(const Value& a, const Value& b);
Value logical_or(const Value& a, const Value& b);
Value logical_not(const Value& x);
Value is_finite(const Value& x);
Value is_nan(const Value& x);  // false for what is not floating

// condition ? a : b element by element, all three broadcast; `condition` is bool.
Value where(const Value& condition, const Value& a, const Value& b);
Value clip(const Value& x, double low, double high);
// x itself where it is of that dtype. To bool is "not zero". From a floating type to an integer
// truncates; what lies beyond the integer's range becomes its nearest end, and NaN becomes 0.
// Between integers wraps around.
Value cast(const Value& x, DType dtype);

Value neg(const Value& x);
Value abs(const Value& x);
Value sign(const Value& x);   // gradient 0
Value floor(const Value& x);  // gradient 0
Value ceil(const Value& x);   // gradient 0
Value round(const Value& x);  // halves to the even number; gradient 0
Value exp(const Value& x);
Value expm1(const Value& x);
Value log(const Value& x);
Value log1p(const Value& x);
Value sqrt(const Value& x);
Value rsqrt(const Value& x);
Value square(const Value& x);
Value reciprocal(const Value& x);
Value sin(const Value& x);
Value cos(const Value& x);
Value tan(const Value& x);
Value erf(const Value& x);
Value tanh(const Value& x);
Value sigmoid(const Value& x);
Value softplus(const Value& x);  // log(1 + exp(x)), stable
// max(x, 0), and NaN for NaN. Where a CPU computes it together with a product or convolution and
// its bias in front, -inf stays -inf, and what is below -1e15 becomes a number from -1e-21 to 0.
Value relu(const Value& x);
// x * Phi(x) with the exact normal distribution function, or with its tanh approximation.
Value gelu(const Value& x, bool approximate = false);
Value silu(const Value& x);  // x * sigmoid(x)

// Reductions over `axes` (negative ones count from the end; none at all means every axis). An empty
// sum is 0, product 1; the mean, max and min of no elements are NaN, -inf/lowest and +inf/highest.
// The gradient of max and min is shared equally among ties. That of a product is right where the
// product of all nonzero elements is within the range of float32, or of float64 where x is float64.
Value reduce_sum(const Value& x, const std::vector<int64_t>& axes = {}, bool keep_dims = false);
Value reduce_mean(const Value& x, const std::vector<int64_t>& axes = {}, bool keep_dims = false);
Value reduce_max(const Value& x, const std::vector<int64_t>& axes = {}, bool keep_dims = false);
Value reduce_min(const Value& x, const std::vector<int64_t>& axes = {}, bool keep_dims = false);
Value reduce_prod(const Value& x, const std::vector<int64_t>& axes = {}, bool keep_dims = false);
// Whether any, or all, of the bools are true: of none, false and true.
Value reduce_any(const Value& x, const std::vector<int64_t>& axes = {}, bool keep_dims = false);
Value reduce_all(const Value& x, const std::vector<int64_t>& axes = {}, bool keep_dims = false);
// log(sum(exp(x))) of floating numbers, without overflow; -inf of none.
Value reduce_logsumexp(const Value& x, const std::vector<int64_t>& axes = {},
                       bool keep_dims = false);
// The mean of squared deviations of floating numbers from their mean, as in NumPy and TensorFlow
// (PyTorch divides by one less than their number), and its root, whose gradient is NaN where it is
// 0.
Value reduce_variance(const Value& x, const std::vector<int64_t>& axes = {},
                      bool keep_dims = false);
Value reduce_std(const Value& x, const std::vector<int64_t>& axes = {}, bool keep_dims = false);
// int64 index of the first largest, or smallest, element along `axis`, which is removed; NaN counts
// as either. Not differentiable.
Value argmax(const Value& x, int64_t axis = -1);
Value argmin(const Value& x, int64_t axis = -1);
// Running sums and products along `axis`. Exclusive starts with 0, or 1; reverse runs from the end.
// The gradient of products is right also where elements are zero, as long as the running products
// of all but the first zero are within the range of float32, or of float64 where x is float64;
// second derivatives where no line has two zeros.
Value cumsum(const Value& x, int64_t axis, bool exclusive = false, bool reverse = false);
Value cumprod(const Value& x, int64_t axis, bool exclusive = false, bool reverse = false);
// The k largest along the last axis in falling order (ties: lower index first) and their int32
// indices.
struct TopK {
  Value values, indices;
};
TopK top_k(const Value& x, int64_t k);

struct MatMulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};
// Matrix product of the last two axes, [.., m, k] x [.., k, n] -> [.., m, n]; leading axes are
// batches, which broadcast as in NumPy. A b without batches is shared; otherwise matrices that are
// repeated are copied.
Value matmul(const Value& a, const Value& b, const MatMulOptions& options = {});

}  // namespace ops

// Arithmetic notation for values; numbers take the value's dtype.
Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value operator/(const Value& a, const Value& b);
Value operator-(const Value& x);
Value operator+(const Value& a, double b);
Value operator-(const Value& a, double b);
Value operator*(const Value& a, double b);
Value operator/(const Value& a, double b);
Value operator+(double a, const Value& b);
Value operator-(double a, const Value& b);
Value operator*(double a, const Value& b);
Value operator/(double a, const Value& b);

}  // namespace cohort
