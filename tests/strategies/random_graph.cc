#include "tests/strategies/random_graph.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "core/distribute/strategy.h"
#include "core/ops/array_ops.h"
#include "core/ops/embedding_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "tests/strategies/training_testing.h"

namespace cohort {
namespace {

constexpr int64_t kTableRows = 11, kClasses = 3;
constexpr int64_t kMaxFeatures = 60;  // elements that a row of a value may have

// Every value has a row for each of the batch, and features of one to three axes behind it. A
// decision may depend on the features alone.
class Drawing {
 public:
  Drawing(uint64_t seed, const BatchValues& batch, const ReadParameter& read)
      : random_(seed), batch_(batch), read_(read), values_{batch["x"], batch["image"]} {}

  Value loss() {
    for (int64_t steps = pick(6, 16); steps > 0; --steps) {
      const Value value = step();
      if (features(value) <= kMaxFeatures) values_.push_back(value);
    }
    Value of_rows = one_in(3) ? cross_entropy() : squared_error();
    if (one_in(3)) of_rows = of_rows * ops::sigmoid(batch_["target"]);
    const Value loss = ops::reduce_sum(of_rows) / static_cast<double>(batch_.global_rows());
    return one_in(3) ? loss + penalty() : loss;
  }

 private:
  // --- Chance

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool one_in(int64_t n) { return pick(1, n) == 1; }
  // One of the values, rather one of the last.
  Value any() {
    const int64_t last = std::ssize(values_) - 1;
    const int64_t first_draw = pick(0, last), second_draw = pick(0, last);
    return values_[static_cast<size_t>(std::max(first_draw, second_draw))];
  }
  int64_t feature_axis(const Value& a) { return pick(1, a.shape().rank() - 1); }

  // A new parameter, or one of this shape that there is.
  Value parameter(const Shape& shape) {
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i] == shape && one_in(2)) return read_(i, shape);
    parameters_.push_back(shape);
    return read_(parameters_.size() - 1, shape);
  }

  // --- Shapes

  static int64_t features(const Value& a) { return a.shape().count(1, a.shape().rank()); }
  static Value flat(const Value& a) { return ops::flatten_from(a, 1); }
  // By what a sum of `count` products with weights is multiplied to stay of their size.
  static double scale(int64_t count) { return 1 / std::sqrt(static_cast<double>(count)); }
  Value image_for(const Value& a) const { return a.shape().rank() == 4 ? a : batch_["image"]; }

  // `a`, with no two elements of a row that are equal but for rounding.
  Value untied(const Value& a) {
    return a + parameter(Shape(std::vector<int64_t>(a.shape().begin() + 1, a.shape().end())));
  }

  // --- Ops

  Value step() {
    using Op = Value (Drawing::*)(const Value&);
    static constexpr Op kOps[] = {
        &Drawing::curved,     &Drawing::combined,  &Drawing::combined, &Drawing::multiplied,
        &Drawing::multiplied, &Drawing::paired,    &Drawing::reduced,  &Drawing::normalized,
        &Drawing::rearranged, &Drawing::cut,       &Drawing::joined,   &Drawing::summed_up,
        &Drawing::looked_up,  &Drawing::convolved, &Drawing::pooled,   &Drawing::attended};
    const Op op = kOps[pick(0, std::ssize(kOps) - 1)];
    return (this->*op)(any());
  }

  Value curved(const Value& a) {
    static constexpr Value (*kCurves[])(const Value&) = {
        ops::tanh, ops::sigmoid, ops::sin,      ops::cos, ops::erf,
        ops::relu, ops::silu,    ops::softplus, ops::abs, ops::neg};
    const int64_t which = pick(0, std::ssize(kCurves));
    return which == std::ssize(kCurves) ? ops::gelu(a, one_in(2)) : kCurves[which](a);
  }

  // With a parameter or another value, where either may be broadcast.
  Value combined(const Value& a) {
    const Value b = one_in(2) ? parameter_beside(a) : value_beside(a);
    switch (pick(0, 5)) {
      case 0:
        return (a + b) * 0.5;
      case 1:
        return (a - b) * 0.5;
      case 2:
        return a * ops::tanh(b);
      case 3:
        return a / (1.0 + ops::square(b));
      case 4:
        return ops::maximum(a, b);
      default:
        return ops::where(ops::greater(a, b), a, 0.5 * b);
    }
  }

  Value parameter_beside(const Value& a) {
    const int64_t left_out = pick(1, a.shape().rank());
    std::vector<int64_t> dims(a.shape().begin() + left_out, a.shape().end());
    for (int64_t& extent : dims)
      if (one_in(3)) extent = 1;
    if (left_out == 1 && one_in(3)) dims.insert(dims.begin(), 1);
    return parameter(Shape(dims));
  }

  // A value whose features broadcast with those of `a`: another one, or the means of its rows.
  Value value_beside(const Value& a) {
    const Value b = any();
    const int rank = a.shape().rank();
    bool fits = b.shape().rank() == rank;
    for (int axis = 1; fits && axis < rank; ++axis) {
      const int64_t of_a = a.shape()[axis], of_b = b.shape()[axis];
      fits = of_a == of_b || of_a == 1 || of_b == 1;
    }
    if (fits) return b;
    std::vector<int64_t> dims(static_cast<size_t>(rank), 1);
    dims[0] = batch_.rows();
    return ops::reshape(ops::reduce_mean(flat(b), {1}), dims);
  }

  // The last axis times a matrix.
  Value multiplied(const Value& a) {
    const int64_t from = a.shape().dim(-1), to = pick(1, 6);
    const Value scaled = a * scale(from);
    Value product;
    if (a.shape().rank() == 2 && one_in(4))  // rows as columns
      product = ops::transpose(ops::matmul(parameter({to, from}), ops::transpose(scaled)));
    else if (one_in(3))
      product = ops::matmul(scaled, parameter({to, from}), {.transpose_b = true});
    else
      product = ops::matmul(scaled, parameter({from, to}));
    if (one_in(2)) product = product + parameter({to});
    return one_in(2) ? ops::tanh(product) : ops::relu(product);
  }

  // A product of two matrices of each row.
  Value paired(const Value& a) {
    const Value matrix = a.shape().rank() > 2 ? a : ops::expand_dims(a, 1);
    const bool first = one_in(2);
    return ops::tanh(
        ops::matmul(matrix, curved(matrix), {.transpose_a = first, .transpose_b = !first}));
  }

  Value reduced(const Value& a) {
    const int64_t axis = feature_axis(a);
    const bool keep_dims = a.shape().rank() == 2 || one_in(2);
    switch (pick(0, 3)) {
      case 0:
        return ops::tanh(ops::reduce_sum(a, {axis}, keep_dims));
      case 1:
        return ops::reduce_mean(a, {axis}, keep_dims);
      case 2:
        return ops::reduce_max(untied(a), {axis}, keep_dims);
      default:
        return ops::reduce_min(untied(a), {axis}, keep_dims);
    }
  }

  Value normalized(const Value& a) {
    constexpr double kEpsilon = 0.1;  // a small one makes much of rows that are nearly constant
    const Shape last{a.shape().dim(-1)};
    switch (pick(0, 3)) {
      case 0:
        return ops::softmax(a);
      case 1:
        return ops::log_softmax(a) * 0.25;
      case 2: {
        const Value gamma = parameter(last), beta = parameter(last);
        return ops::layer_norm(a, gamma, beta, kEpsilon);
      }
      default:
        return ops::rms_norm(a, parameter(last), kEpsilon);
    }
  }

  Value rearranged(const Value& a) {
    std::vector<int64_t> dims = a.shape().to_vector();
    if (one_in(3)) return flat(a);
    if (dims.size() < 4 && dims.back() % 2 == 0 && one_in(2)) {
      dims.back() /= 2;
      dims.insert(dims.end() - 1, 2);
      return ops::reshape(a, dims);
    }
    std::vector<int64_t> axes;
    for (int64_t axis = 0; axis < std::ssize(dims); ++axis) axes.push_back(axis);
    std::shuffle(axes.begin() + 1, axes.end(), random_);
    return ops::transpose(a, axes);
  }

  // Some of it along an axis, or in another order.
  Value cut(const Value& a) {
    const int64_t axis = feature_axis(a), extent = a.shape()[static_cast<int>(axis)],
                  at = pick(0, extent - 1);
    std::vector<int64_t> none(static_cast<size_t>(a.shape().rank()), 0), some = none;
    switch (pick(0, 3)) {
      case 0: {
        if (at == 0) return a;
        const auto parts = ops::split(a, {at, extent - at}, axis);
        return ops::concat({parts[1], ops::sin(parts[0])}, axis);
      }
      case 1: {
        std::vector<int64_t> sizes = a.shape().to_vector();
        some[static_cast<size_t>(axis)] = at;
        sizes[static_cast<size_t>(axis)] = pick(1, extent - at);
        return ops::slice(a, some, sizes);
      }
      case 2:
        return ops::gather(a, ops::constant(Tensor::from<int64_t>({at, 0, at}, {3})), axis);
      default:
        some[static_cast<size_t>(axis)] = 1;
        return one_in(2) ? ops::pad(a, some, none) : ops::pad(a, none, some, 0.5);
    }
  }

  // With another value behind it.
  Value joined(const Value& a) { return ops::concat({flat(a), flat(any())}, 1); }

  Value summed_up(const Value& a) {
    const int64_t axis = feature_axis(a);
    const bool exclusive = one_in(2), reverse = one_in(2);
    return ops::cumsum(a, axis, exclusive, reverse) * scale(a.shape()[static_cast<int>(axis)]);
  }

  // Rows of a table, whose gradient is sparse where they are taken from it as it is.
  Value looked_up(const Value&) {
    const Value& ids = batch_["ids"];
    const Value table = parameter({kTableRows, pick(1, 5)});
    switch (pick(0, 3)) {
      case 0:
        return ops::gather(table, ids);
      case 1:
        return ops::gather(ops::tanh(table), ids);
      case 2:
        return ops::matmul(ops::gather(table, ids), table, {.transpose_b = true}) * 0.25;
      default: {
        const Value few = ops::where(ops::greater(ids, ops::constant(6, ids.dtype())),
                                     ops::constant(-1, ids.dtype()), ids);
        return ops::embedding_lookup_sparse(table, few, {}, ops::Combiner::kSqrtN);
      }
    }
  }

  Value convolved(const Value& a) {
    const Value image = image_for(a);
    const Shape& shape = image.shape();
    const int64_t groups = shape[3] % 2 == 0 && one_in(3) ? 2 : 1;
    const Shape filter{pick(1, std::min<int64_t>(shape[1], 3)),
                       pick(1, std::min<int64_t>(shape[2], 3)), shape[3] / groups,
                       groups * pick(1, 2)};
    const ops::Conv2DOptions options{
        .strides = {pick(1, 2), pick(1, 2)},
        .padding = one_in(2) ? ops::Padding::same() : ops::Padding::valid(),
        .groups = groups};
    Value y = ops::conv2d(image * scale(filter.count(0, 3)), parameter(filter), options);
    if (one_in(2)) y = y + parameter({filter[3]});
    return one_in(2) ? ops::tanh(y) : ops::relu(y);
  }

  Value pooled(const Value& a) {
    const Value image = image_for(a);
    const ops::Pool2DOptions options{
        .size = {2, pick(1, 3)}, .strides = {pick(1, 2), 1}, .padding = ops::Padding::same()};
    return one_in(2) ? ops::avg_pool2d(image, options) : ops::max_pool2d(untied(image), options);
  }

  Value attended(const Value& a) {
    const Value queries = image_for(a);
    const Value keys = ops::tanh(untied(queries));
    return ops::scaled_dot_product_attention(queries, keys, queries, {.causal = one_in(2)});
  }

  // --- The end: [rows]

  // `outputs` for each row, of the last value, another one and x.
  Value head(int64_t outputs) {
    Value sum;
    for (const Value& value : {values_.back(), any(), batch_["x"]}) {
      const Value weights = parameter({features(value), outputs});
      const Value product = ops::matmul(flat(value) * scale(features(value)), weights);
      sum = sum.defined() ? sum + product : product;
    }
    return sum;
  }
  Value squared_error() { return ops::square(ops::squeeze(head(1), 1) - batch_["target"]); }
  Value cross_entropy() {
    return ops::sparse_softmax_cross_entropy(head(kClasses), batch_["label"]);
  }
  // Every replica adds its part, rows or no rows.
  Value penalty() {
    return ops::reduce_sum(ops::square(read_(0, parameters_[0]))) *
           (0.01 / current_strategy().num_replicas_in_sync());
  }

  std::mt19937_64 random_;
  const BatchValues& batch_;
  const ReadParameter& read_;
  std::vector<Value> values_;
  std::vector<Shape> parameters_;
};

// Numbers from 0 to below `end`.
Tensor whole_numbers(const Shape& shape, int64_t end, int64_t salt) {
  Tensor t(DType::kInt64, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i) t.data<int64_t>()[i] = (3 * salt + i * i) % end;
  return t;
}

}  // namespace

data::Batch random_graph_batch(int64_t rows, int index) {
  return {{"x", numbers(DType::kFloat64, {rows, 6}, 10.0 + index)},
          {"image", numbers(DType::kFloat64, {rows, 4, 5, 2}, 20.0 + index)},
          {"ids", whole_numbers({rows, 3}, kTableRows, index)},
          {"label", whole_numbers({rows}, kClasses, index)},
          {"target", numbers(DType::kFloat64, {rows}, 30.0 + index)}};
}

Value draw_loss(uint64_t seed, const BatchValues& batch, const ReadParameter& read) {
  return Drawing(seed, batch, read).loss();
}

}  // namespace cohort
