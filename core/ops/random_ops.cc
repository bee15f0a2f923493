#include "core/ops/random_ops.h"

#include "core/base/random.h"
#include "core/ops/op_helpers.h"
#include "core/ops/shape_checks.h"

namespace cohort::ops {
namespace {

// Numbers of a range are computed, in at least float32, from its start and its length.
void require_range(double low, double high, DType dtype) {
  if (low > high) invalid("the range ", low, " to ", high, " is empty");
  const double largest = largest_finite(dtype), longest = largest_finite(statistics_dtype(dtype));
  if (low < -largest || high > largest || high - low > longest)
    invalid("the range ", low, " to ", high, " is too large for ", dtype,
            "; allowed are bounds from ", -largest, " to ", largest, " that are at most ", longest,
            " apart");
}

Specs infer_random(const InferenceContext& c) {
  const TensorSpec y{c.attributes.get<DType>("dtype"), shape_attribute(c)};
  require_floating(y, "random numbers");
  const double a = finite_attribute(c, "a"), b = finite_attribute(c, "b");
  if (c.op == "RandomUniform") require_range(a, b, y.dtype);
  if (c.op != "RandomUniform" && b < 0) invalid("the standard deviation ", b, " is negative");
  c.attributes.get<int64_t>("seed");
  return {y};
}

Specs infer_dropout(const InferenceContext& c) {
  require_floating(c.inputs[0], "x");
  const double rate = c.attributes.get<double>("rate");
  if (!(rate >= 0 && rate < 1)) invalid("rate must be in [0, 1), is ", rate);
  c.attributes.get<int64_t>("seed");
  return {c.inputs[0]};
}

// The same seed keeps and drops the same elements.
Values dropout_gradient(const Node& node, const Values& dys) {
  return {apply("Dropout", {dys[0]}, node.attributes())};
}

COHORT_REGISTER_OP({.name = "RandomUniform",
                    .num_inputs = 0,
                    .attributes = {"shape", "dtype", "a", "b", "seed"},
                    .infer = infer_random,
                    .gradient = no_gradient,
                    .stateful = true});
COHORT_REGISTER_OP({.name = "RandomNormal",
                    .num_inputs = 0,
                    .attributes = {"shape", "dtype", "a", "b", "seed"},
                    .infer = infer_random,
                    .gradient = no_gradient,
                    .stateful = true});
COHORT_REGISTER_OP({.name = "TruncatedNormal",
                    .num_inputs = 0,
                    .attributes = {"shape", "dtype", "a", "b", "seed"},
                    .infer = infer_random,
                    .gradient = no_gradient,
                    .stateful = true});
COHORT_REGISTER_OP({.name = "Dropout",
                    .num_inputs = 1,
                    .attributes = {"rate", "seed"},
                    .infer = infer_dropout,
                    .gradient = dropout_gradient,
                    .stateful = true});

// `seed`, or where it is 0 a number that depends on how many random ops `graph` has already.
int64_t resolve_seed(int64_t seed, const Graph& graph) {
  if (seed != 0) return seed;
  uint64_t count = 0;
  for (const auto& node : graph.nodes()) count += node->attributes().has("seed");
  return static_cast<int64_t>(mix(0, count));
}

Value random(std::string_view op, const Shape& shape, double a, double b, DType dtype,
             int64_t seed) {
  return apply(op, {},
               {{"shape", shape.to_vector()},
                {"dtype", dtype},
                {"a", a},
                {"b", b},
                {"seed", resolve_seed(seed, current_graph())}});
}

}  // namespace

Value random_uniform(const Shape& shape, double low, double high, DType dtype, int64_t seed) {
  return random("RandomUniform", shape, low, high, dtype, seed);
}

Value random_normal(const Shape& shape, double mean, double stddev, DType dtype, int64_t seed) {
  return random("RandomNormal", shape, mean, stddev, dtype, seed);
}

Value truncated_normal(const Shape& shape, double mean, double stddev, DType dtype, int64_t seed) {
  return random("TruncatedNormal", shape, mean, stddev, dtype, seed);
}

Value dropout(const Value& x, double rate, int64_t seed) {
  return apply("Dropout", {x}, {{"rate", rate}, {"seed", resolve_seed(seed, x.graph())}});
}

}  // namespace cohort::ops
