#include "tests/testing/gradient_check.h"

#include <gtest/gtest.h>

#include "core/base/random.h"
#include "core/graph/gradients.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "tests/testing/evaluate.h"

namespace cohort::testing {
namespace {

constexpr uint64_t kSeed = 20240229;
constexpr double kStep =
    1e-5;  // balances the error of the formula, step^2, and rounding, 1e-16 / step

Tensor random_tensor(RandomStream& random, const RandomInput& input) {
  Tensor tensor(DType::kFloat64, input.shape);
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    tensor.data<double>()[i] = input.low + (input.high - input.low) * random.uniform();
  return tensor;
}

std::vector<Tensor> random_tensors(const std::vector<RandomInput>& inputs) {
  RandomStream random(kSeed);
  std::vector<Tensor> points;
  for (const auto& input : inputs) points.push_back(random_tensor(random, input));
  return points;
}

// A scalar that depends on every element of y in its own way.
Value weighted_sum(const Value& y) {
  RandomStream random(kSeed + 1);
  return ops::reduce_sum(y * ops::constant(random_tensor(random, {y.shape(), 0.5, 1.5})));
}

Value dense(const Gradient& gradient, const Value& x) {
  if (!gradient) return ops::broadcast_to(ops::constant(0, x.dtype()), x.shape());
  return gradient.sparse() ? ops::scatter_add(gradient.indices, gradient.values, x.shape()[0])
                           : gradient.values;
}

struct Loss {
  std::vector<Value> inputs;
  Value value;
};

Loss build_loss(Graph& graph, const GraphBuilder& fn, const std::vector<Tensor>& feeds) {
  const GraphScope scope(graph);
  Loss loss;
  for (const Tensor& feed : feeds)
    loss.inputs.push_back(graph.add_input(str("x", loss.inputs.size()), feed.spec()));
  loss.value = weighted_sum(fn(loss.inputs));
  return loss;
}

std::vector<Value> dense_gradients(const Value& loss, const std::vector<Value>& inputs,
                                   size_t count) {
  const std::vector<Value> xs(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(count));
  const auto found = gradients(loss, xs);
  const GraphScope scope(loss.graph());
  std::vector<Value> values;
  for (size_t i = 0; i < count; ++i) values.push_back(dense(found[i], xs[i]));
  return values;
}

double evaluate_scalar(const Value& value, const std::vector<Tensor>& feeds) {
  return evaluate({value}, feeds)[0].item();
}

}  // namespace

void check_gradients_at(const GraphBuilder& fn, const std::vector<Tensor>& points,
                        const std::vector<Tensor>& fixed, double tolerance) {
  SCOPED_TRACE(str("seed ", kSeed));
  std::vector<Tensor> feeds;
  for (const Tensor& point : points) feeds.push_back(point.clone());
  feeds.insert(feeds.end(), fixed.begin(), fixed.end());
  Graph graph, loss_graph;  // two, so that differences do not pay for the gradients
  const Loss differentiated = build_loss(graph, fn, feeds);
  const auto computed =
      evaluate(dense_gradients(differentiated.value, differentiated.inputs, points.size()), feeds);
  const Value loss = build_loss(loss_graph, fn, feeds).value;
  for (size_t i = 0; i < points.size(); ++i) {
    double* x = feeds[i].data<double>();
    for (int64_t j = 0; j < feeds[i].num_elements(); ++j) {
      const double center = x[j];
      x[j] = center + kStep;
      const double above = evaluate_scalar(loss, feeds);
      x[j] = center - kStep;
      const double expected = (above - evaluate_scalar(loss, feeds)) / (2 * kStep),
                   got = computed[i].data<double>()[j];
      x[j] = center;
      EXPECT_NEAR(got, expected, tolerance * (1 + std::abs(expected)))
          << "input " << i << ", element " << j;
    }
  }
}

void check_gradients(const GraphBuilder& fn, const std::vector<RandomInput>& inputs,
                     const std::vector<Tensor>& fixed, double tolerance) {
  check_gradients_at(fn, random_tensors(inputs), fixed, tolerance);
}

void check_second_gradients(const GraphBuilder& fn, const std::vector<RandomInput>& inputs,
                            const std::vector<Tensor>& fixed, double tolerance) {
  const auto gradient_sum = [&](const std::vector<Value>& values) {
    Value total = ops::constant(0, DType::kFloat64);
    for (const Value& gradient : dense_gradients(weighted_sum(fn(values)), values, inputs.size()))
      total = total + weighted_sum(gradient);
    return total;
  };
  check_gradients(gradient_sum, inputs, fixed, tolerance);
}

}  // namespace cohort::testing
