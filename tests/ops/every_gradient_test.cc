// Whether each op that has a gradient is checked numerically: here by itself, on one small input;
// the other files of this folder go through its attributes and shapes.
#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/graph/op.h"
#include "core/graph/registry.h"
#include "core/ops/array_ops.h"
#include "core/ops/custom_gradient.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/random_ops.h"
#include "core/tensor/elementwise_program.h"
#include "tests/testing/gradient_check.h"

namespace cohort {
namespace {

using namespace ops;
using testing::GraphBuilder;
using testing::RandomInput;
using Values = std::vector<Value>;

struct Check {
  GraphBuilder function;
  std::vector<RandomInput> inputs;
  std::vector<Tensor> fixed = {};
};

// They take several replicas, which tests/distribute/replica_context_test.cc has.
const std::vector<std::string> kOfReplicas = {"AllGather", "AllReduce", "ReduceScatter"};

// The gradient of the sum of squares of what f gives, by one of its inputs: ops of gradients have
// gradients, too.
GraphBuilder gradient_of(const GraphBuilder& f, size_t input) {
  return [f, input](const Values& v) {
    return gradients(reduce_sum(square(f(v))), {v[input]})[0].values;
  };
}

Value convolve(const Values& v) { return conv2d(v[0], v[1]); }

std::map<std::string, Check> checks() {
  const RandomInput row{{4}}, rows{{3, 4}}, image{{1, 4, 4, 2}}, filter{{2, 2, 2, 2}},
      heads{{1, 3, 2, 4}}, positive{{3, 4}, 0.5, 2};
  const Tensor indices = Tensor::from<int64_t>({2, 0, 2}, {3}),
               labels = Tensor::from<int32_t>({3, 0, 1}, {3});
  constexpr double kEpsilon = 1e-3;
  return {
      {"Identity", {[](const Values& v) { return identity(v[0]); }, {rows}}},
      {"CustomGradient",
       {[](const Values& v) {
          return with_gradient(
              v[0], [](const Value& x) { return square(x); },
              [](const Value& dy, const Value& x, const Value&) { return dy * x * 2.0; });
        },
        {rows}}},
      {"Require",
       {[](const Values& v) { return require(v[0], v[1], "no"); }, {rows}, {Tensor::scalar(true)}}},
      {"Reshape",
       {[](const Values& v) {
          return reshape(v[0], {2, 6});
        },
        {rows}}},
      {"BroadcastTo",
       {[](const Values& v) {
          return broadcast_to(v[0], {3, 4});
        },
        {row}}},
      {"Transpose", {[](const Values& v) { return transpose(v[0]); }, {rows}}},
      {"Concat",
       {[](const Values& v) {
          return concat({v[0], v[1]}, 0);
        },
        {rows, rows}}},
      {"Split",
       {[](const Values& v) {
          const Values parts = split(v[0], {1, 3}, 1);
          return reduce_sum(parts[0]) * parts[1];
        },
        {rows}}},
      {"Slice",
       {[](const Values& v) {
          return slice(v[0], {1, 0}, {2, 3});
        },
        {rows}}},
      {"Pad",
       {[](const Values& v) {
          return pad(v[0], {1, 0}, {0, 2});
        },
        {rows}}},
      {"Gather", {[](const Values& v) { return gather(v[0], v[1]); }, {rows}, {indices}}},
      {"ScatterAdd",
       {[](const Values& v) { return scatter_add(v[1], v[0], 4); }, {rows}, {indices}}},
      {"MatMul", {[](const Values& v) { return matmul(v[0], v[1]); }, {rows, {{4, 2}}}}},
      {"Conv2D", {convolve, {image, filter}}},
      {"Conv2DGradInput", {gradient_of(convolve, 0), {image, filter}}},
      {"Conv2DGradFilter", {gradient_of(convolve, 1), {image, filter}}},
      {"MaxPool2D", {[](const Values& v) { return max_pool2d(v[0]); }, {image}}},
      {"AvgPool2D", {[](const Values& v) { return avg_pool2d(v[0]); }, {image}}},
      {"AvgPool2DGrad",
       {gradient_of([](const Values& v) { return avg_pool2d(v[0]); }, 0), {image}}},
      {"BatchNorm",
       {[](const Values& v) { return batch_norm(v[0], v[1], v[2], kEpsilon).y; },
        {{{3, 2, 2}}, {{2}}, {{2}}}}},
      {"LayerNorm",
       {[](const Values& v) { return layer_norm(v[0], v[1], v[2], kEpsilon); },
        {{{2, 2, 4}}, {{4}}, {{4}}}}},
      {"RmsNorm",
       {[](const Values& v) { return rms_norm(v[0], v[1], kEpsilon); }, {{{2, 2, 4}}, {{4}}}}},
      {"LayerNormGrad",
       {gradient_of([](const Values& v) { return layer_norm(v[0], v[1], v[2], kEpsilon); }, 0),
        {{{2, 2, 4}}, {{4}}, {{4}}}}},
      {"RmsNormGrad",
       {gradient_of([](const Values& v) { return rms_norm(v[0], v[1], kEpsilon); }, 0),
        {{{2, 2, 4}}, {{4}}}}},
      {"Softmax", {[](const Values& v) { return softmax(v[0]); }, {rows}}},
      {"LogSoftmax", {[](const Values& v) { return log_softmax(v[0]); }, {rows}}},
      {"SoftmaxGrad", {gradient_of([](const Values& v) { return softmax(v[0]); }, 0), {rows}}},
      {"LogSoftmaxGrad",
       {gradient_of([](const Values& v) { return log_softmax(v[0]); }, 0), {rows}}},
      {"SparseSoftmaxCrossEntropy",
       {[](const Values& v) { return sparse_softmax_cross_entropy(v[0], v[1]); },
        {rows},
        {labels}}},
      {"SparseSoftmaxCrossEntropyGrad",
       {gradient_of([](const Values& v) { return sparse_softmax_cross_entropy(v[0], v[1]); }, 0),
        {rows},
        {labels}}},
      {"SoftmaxCrossEntropy",
       {[](const Values& v) { return softmax_cross_entropy(v[0], v[1]); },
        {rows},
        {Tensor::full(DType::kFloat64, {3, 4}, 0.25)}}},
      {"SoftmaxCrossEntropyGrad",
       {gradient_of([](const Values& v) { return softmax_cross_entropy(v[0], v[1]); }, 0),
        {rows},
        {Tensor::full(DType::kFloat64, {3, 4}, 0.5)}}},
      {"Attention",
       {[](const Values& v) { return scaled_dot_product_attention(v[0], v[1], v[2]); },
        {heads, heads, heads}}},
      {"Dropout", {[](const Values& v) { return dropout(v[0], 0.5, 7); }, {rows}}},
      {"ReduceSum", {[](const Values& v) { return reduce_sum(v[0], {1}); }, {rows}}},
      {"ReduceMean", {[](const Values& v) { return reduce_mean(v[0], {1}); }, {rows}}},
      {"ReduceMax", {[](const Values& v) { return reduce_max(v[0], {1}); }, {rows}}},
      {"ReduceMin", {[](const Values& v) { return reduce_min(v[0], {1}); }, {rows}}},
      {"ReduceProd", {[](const Values& v) { return reduce_prod(v[0], {1}); }, {positive}}},
      {"CumSum", {[](const Values& v) { return cumsum(v[0], 1); }, {rows}}},
      {"CumProd", {[](const Values& v) { return cumprod(v[0], 1); }, {rows}}},
      {"TopK", {[](const Values& v) { return top_k(v[0], 2).values; }, {rows}}},
      {"Select",
       {[](const Values& v) { return where(v[2], v[0], v[1]); },
        {row, row},
        {Tensor::from<uint8_t>({0, 1, 1, 0}, {4}).cast(DType::kBool)}}},
      {"Cast",
       {[](const Values& v) {
          return v[0].graph().add("Cast", v, {{"dtype", DType::kFloat64}}).output();
        },
        {rows}}},
  };
}

// Those of elementwise operations: of positive numbers, which all of them take.
void add_elementwise(std::map<std::string, Check>& checks) {
  for (int64_t i = 0; i < static_cast<int64_t>(Scalar::kCount); ++i) {
    const auto op = static_cast<Scalar>(i);
    const std::string name(scalar_name(op));
    const auto apply = [name](const Values& v) { return v[0].graph().add(name, v).output(); };
    const std::vector<RandomInput> inputs(static_cast<size_t>(scalar_arity(op)), {{5}, 0.5, 2});
    checks.emplace(name, Check{apply, inputs});  // but for those that have a check of their own
  }
}

bool has_gradient(const OpDef& op) {
  using Plain = std::vector<Value> (*)(const Node&, const std::vector<Value>&);
  const Plain* plain = op.gradient.target<Plain>();
  return op.gradient && !(plain != nullptr && *plain == &no_gradient);
}

bool is_in(const std::string& op, const Graph& graph) {
  return std::ranges::any_of(graph.nodes(),
                             [&](const auto& node) { return node->op().name == op; });
}

TEST(EveryGradient, AgreesWithDifferences) {
  auto known = checks();
  add_elementwise(known);
  int checked = 0;
  for (const std::string& op : registered_ops()) {
    if (!has_gradient(find_op(op)) || std::ranges::count(kOfReplicas, op) > 0) continue;
    SCOPED_TRACE(op);
    const auto found = known.find(op);
    if (found == known.end()) {
      ADD_FAILURE() << "has a gradient, and no check in this file";
      continue;
    }
    const Check& check = found->second;
    const auto watched = [&](const Values& v) {
      const Value result = check.function(v);
      EXPECT_TRUE(is_in(op, result.graph())) << "the check is of other ops";
      return result;
    };
    testing::check_gradients(watched, check.inputs, check.fixed);
    ++checked;
  }
  EXPECT_GT(checked, 60) << "are the ops linked?";
}

// What there is no reason to leave out any more.
TEST(EveryGradient, IsLeftOutForOpsOfReplicasThatHaveOne) {
  for (const std::string& op : kOfReplicas) EXPECT_TRUE(has_gradient(find_op(op))) << op;
}

}  // namespace
}  // namespace cohort
