#include <algorithm>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/graph/op.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/state_ops.h"
#include "tests/testing/evaluate.h"

namespace cohort {
namespace {

using namespace ops;
using testing::evaluate;
using testing::TestVariable;

class State : public ::testing::Test {
 protected:
  Graph graph_;
  GraphScope scope_{graph_};
  std::shared_ptr<TestVariable> variable_ =
      std::make_shared<TestVariable>("w", Tensor::from<double>({1, 2, 3, 4}, {2, 2}));
};

TEST_F(State, ReadsBetweenTheSameWritesShareANode) {
  const Value before = read_variable(variable_);
  EXPECT_TRUE(read_variable(variable_).is_same(before));
  assign(variable_, before * 2.0);
  const Value after = read_variable(variable_);
  EXPECT_FALSE(after.is_same(before));
  EXPECT_TRUE(read_variable(variable_).is_same(after));
}

TEST_F(State, EffectsFollowProgramOrder) {
  const Value before = read_variable(variable_);
  const Value stored = assign(variable_, before * 2.0);
  const Value after = read_variable(variable_);
  const auto result = evaluate({before, stored, after});
  EXPECT_EQ(result[0].data<double>()[3], 4);
  EXPECT_EQ(result[1].data<double>()[3], 8);
  EXPECT_EQ(result[2].data<double>()[3], 8);
  EXPECT_EQ(variable_->value.data<double>()[0], 2);
}

TEST_F(State, AScatterChangesRowsInOrderAndSkipsNone) {
  const auto scatter = [&](ScatterOp op, double update) {
    const Value indices = constant(Tensor::from<int64_t>({1, -1, 1}, {3}));
    assign_scatter(variable_, op, indices, constant(Tensor::full(DType::kFloat64, {3, 2}, update)));
    return read_variable(variable_);
  };
  std::vector<Value> reads;
  for (const auto& [op, update] :
       std::vector<std::pair<ScatterOp, double>>{{ScatterOp::kAdd, 10},
                                                 {ScatterOp::kSub, 1},
                                                 {ScatterOp::kMul, 2},
                                                 {ScatterOp::kDiv, 4},
                                                 {ScatterOp::kMax, 6},
                                                 {ScatterOp::kMin, 5.5},
                                                 {ScatterOp::kUpdate, 7}})
    reads.push_back(scatter(op, update));
  // Twice each on the row {3, 4}.
  const std::vector<std::vector<double>> expected = {{23, 24}, {21, 22},   {84, 88}, {5.25, 5.5},
                                                     {6, 6},   {5.5, 5.5}, {7, 7}};
  const auto results = evaluate(reads);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(to_string(results[i]),
              to_string(Tensor::from<double>({1, 2, expected[i][0], expected[i][1]}, {2, 2})));
}

TEST_F(State, AnIndexMayNameNoRow) {
  const Value table = read_variable(variable_);
  const Value indices = constant(Tensor::from<int32_t>({1, -1, 0, 1}, {4}));
  const Value rows = gather_rows_or_zero(table, indices);
  const Value weighted = rows * constant(Tensor::from<double>({1, 10, 100, 1000}, {4, 1}));
  const Gradient gradient = gradients(reduce_sum(weighted), {table})[0];
  const Value sums = scatter_add(indices, rows, 2);
  const Gradient back = gradients(reduce_sum(sums * sums), {rows})[0];
  const auto results = evaluate({rows, gradient.dense(), sums, back.values});
  const auto expect = [&](size_t i, const std::vector<double>& values, const Shape& shape) {
    EXPECT_EQ(to_string(results[i]), to_string(Tensor::from(values, shape)));
  };
  expect(0, {3, 4, 0, 0, 1, 2, 3, 4}, {4, 2});
  expect(1, {100, 100, 1001, 1001}, {2, 2});
  expect(2, {1, 2, 6, 8}, {2, 2});
  expect(3, {12, 16, 0, 0, 2, 4, 12, 16}, {4, 2});
  EXPECT_THROW(
      graph_.add("Gather", {table, indices}, {{"axis", int64_t{0}}, {"allow_none", int64_t{1}}}),
      Error);
}

TEST_F(State, RefusesAnotherSpec) {
  EXPECT_THROW(assign(variable_, constant(1, DType::kFloat64)), Error);
  EXPECT_THROW(assign(variable_, cast(read_variable(variable_), DType::kFloat32)), Error);
  const Value indices = constant(Tensor::from<int64_t>({1}, {1}));
  EXPECT_THROW(assign_scatter(variable_, ScatterOp::kAdd, indices,
                              constant(Tensor::full(DType::kFloat64, {1, 3}, 0))),
               Error);
  EXPECT_THROW(assign_scatter(variable_, static_cast<ScatterOp>(7), indices,
                              constant(Tensor::full(DType::kFloat64, {1, 2}, 0))),
               Error);
  EXPECT_THROW(graph_.add("ReadVariable", {}), Error);
}

TEST_F(State, NoGradientFlowsThroughAWrite) {
  const Value w = read_variable(variable_);
  const Value loss = reduce_sum(assign(variable_, w * 2.0));
  try {
    gradients(loss, {w});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnimplemented);
    EXPECT_EQ(error.message(), "AssignVariable: op AssignVariable has no gradient");
  }
}

TEST_F(State, GradientOfAnAllReducedSumIsTheAllReducedGradient) {
  const Value w = read_variable(variable_);
  const auto reduced = all_reduce({w * 3.0, w});
  const Gradient dw = gradients(reduce_sum(reduced[0]), {w})[0];
  const auto result = evaluate({dw.values});
  EXPECT_EQ(to_string(result[0]), to_string(Tensor::full(DType::kFloat64, {2, 2}, 3)));
  const auto& nodes = graph_.nodes();
  EXPECT_EQ(std::count_if(nodes.begin(), nodes.end(),
                          [](const auto& n) { return n->op().name == "AllReduce"; }),
            2);
}

TEST_F(State, OnlySumsAndMeansOfReplicasHaveAGradient) {
  const Value w = read_variable(variable_);
  EXPECT_THROW(gradients(reduce_sum(all_reduce({w}, ReduceOp::kMax)[0]), {w}), Error);
  EXPECT_THROW(all_reduce({}), Error);
  EXPECT_THROW(all_reduce({argmax(w)}, ReduceOp::kMean), Error);
}

}  // namespace
}  // namespace cohort
