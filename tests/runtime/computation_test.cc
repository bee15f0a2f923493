#include "core/runtime/computation.h"

#include <ctime>
#include <functional>

#include <gtest/gtest.h>

#include "core/graph/op.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/random_ops.h"
#include "core/runtime/function.h"

namespace cohort {
namespace {

COHORT_REGISTER_OP({.name = "TestDraw",
                    .num_inputs = 1,
                    .infer = [](const InferenceContext& c) { return c.inputs; },
                    .stateful = true});

Value draw(const Value& like) { return like.graph().add("TestDraw", {like}).output(); }

// Traces `body` for two replicas, each with a first input of its own and the same second one.
void trace_for_two(const std::function<void(const Value& own, const Value& given)>& body) {
  const Function function([&](const std::vector<Value>& inputs) {
    body(inputs[0], inputs[1]);
    return std::vector<Value>{};
  });
  const TensorSpec pair{DType::kFloat32, {2}};
  function.trace({pair, pair},
                 {.strategy = 1, .num_replicas = 2, .signatures = {}, .same_input = {false, true}});
}

TEST(ComputationTest, ValuesThatFollowFromTheSameAreTheSameOnReplicas) {
  trace_for_two([](const Value& own, const Value& given) {
    const Value sum = ops::all_reduce({own})[0];
    EXPECT_TRUE(is_same_on_replicas(given * 2.0 + sum));
    EXPECT_TRUE(is_same_on_replicas(ops::all_reduce_async({own}, ReduceOp::kSum)[0]));
    EXPECT_FALSE(is_same_on_replicas(given + own));
    EXPECT_FALSE(is_same_on_replicas(sum + own));
    EXPECT_FALSE(is_same_on_replicas(ops::replica_id()));
    EXPECT_FALSE(is_same_on_replicas(given + ops::random_normal({2})));
    EXPECT_FALSE(is_same_on_replicas(ops::reduce_scatter(given, {1, 1}, 1)));
  });
}

TEST(ComputationTest, WhatAStatefulOpOfOnesOwnReturnsMayDifferBetweenReplicas) {
  trace_for_two([](const Value&, const Value& given) {
    EXPECT_TRUE(is_same_on_replicas(given));
    EXPECT_FALSE(is_same_on_replicas(draw(given)));
    EXPECT_FALSE(is_same_on_replicas(draw(given) * 2.0));
    EXPECT_TRUE(is_same_on_replicas(ops::all_reduce({draw(given)})[0]));
  });
}

// The graph grows with what is traced between two questions, as where many variables are assigned.
// Milliseconds; were each question to walk the graph anew, most of a minute.
TEST(ComputationTest, TheTimeOfManyQuestionsGrowsWithTheGraphAlone) {
  const std::clock_t start = std::clock();
  trace_for_two([](const Value&, const Value& given) {
    Value sum = given;
    for (int i = 0; i < 20'000; ++i) {
      sum = sum + given;
      ASSERT_TRUE(is_same_on_replicas(sum));
    }
  });
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5);
}

}  // namespace
}  // namespace cohort
