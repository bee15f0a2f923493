#include <gtest/gtest.h>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/state_ops.h"
#include "tests/testing/error_of.h"
#include "tests/testing/evaluate.h"

namespace cohort {
namespace {

using namespace ops;
using testing::TestVariable;
using Numbers = std::vector<int64_t>;

class DivideUpdates : public ::testing::Test {
 protected:
  static std::shared_ptr<TestVariable> variable(const std::string& name,
                                                const Shape& shape = {16, 16}) {
    return std::make_shared<TestVariable>(name, Tensor::zeros(DType::kFloat32, shape));
  }
  Value gradient(const Shape& shape = {16, 16}) {
    return softmax(function_.graph->add_input("x", {DType::kFloat32, shape}));
  }
  std::vector<Value> sums(const std::vector<Value>& values) {
    return all_reduce_async(values, ReduceOp::kSum);
  }
  // SGD with momentum.
  void update(const Value& sum) {
    const Value moved = read_variable(momentum_) * 0.9 + sum;
    assign(momentum_, moved);
    assign(weights_, read_variable(weights_) - moved * 0.1);
  }

  // For the second of three replicas, which share all variables but `own`.
  GraphFunction divided(const Resource* own = nullptr) const {
    const auto fused = fuse_updates(fuse_elementwise(schedule_collectives(function_)));
    const Sharing sharing = [&](const Resource& r) { return &r == own ? 1 : 3; };
    return divide_updates(fused, find_division(fused, sharing), 1, sharing);
  }
  // The names of ops with a part, those of assignments with their variables.
  static std::vector<std::string> parts(const GraphFunction& function) {
    std::vector<std::string> found;
    for (const auto& node : function.graph->nodes()) {
      if (!node->attributes().has("part")) continue;
      EXPECT_EQ(node->attributes().get<Numbers>("part"), (Numbers{1, 3}));
      const Resource* resource = node->resource();
      found.push_back(resource == nullptr ? node->op().name
                                          : str(node->op().name, " ", resource->name()));
    }
    return found;
  }
  static std::vector<int64_t> topics(const GraphFunction& function) {
    std::vector<int64_t> found;
    for (const auto& node : function.graph->nodes())
      if (is_barrier(*node)) found.push_back(node->attributes().get_or<int64_t>("topic", 0));
    return found;
  }
  static Numbers divided_sums(const GraphFunction& function) {
    for (const auto& node : function.graph->nodes())
      if (is_start(*node)) return node->attributes().get_or<Numbers>("divided", {});
    return {};
  }

  const std::shared_ptr<TestVariable> weights_ = variable("w"), momentum_ = variable("m");
  GraphFunction function_;
  GraphScope scope_{*function_.graph};
};

TEST_F(DivideUpdates, GivesEachReplicaItsPartOfAnUpdateAndOfItsSum) {
  const auto both = sums({gradient(), gradient()});
  barrier();
  update(both[1]);
  barrier();
  function_.outputs = {softmax(both[0])};
  const auto result = divided();
  EXPECT_EQ(parts(result), (std::vector<std::string>{"AllReduceStart", "FusedElementwise",
                                                     "AssignVariable m", "AssignVariable w"}));
  EXPECT_EQ(divided_sums(result), Numbers{1});
  const auto found = topics(result);
  EXPECT_NE(found[0], 0);
  EXPECT_EQ(found[1], 0);
}

TEST_F(DivideUpdates, DividesAllSumsOfABucketWhateverTheirShapesButNumbers) {
  const auto bias = variable("bias", {32}), number = variable("number", {1});
  const auto all = sums({gradient(), gradient({32}), gradient({1})});
  barrier();
  assign(weights_, read_variable(weights_) - all[0] * 0.1);
  assign(bias, read_variable(bias) - all[1] * 0.1);
  assign(number, read_variable(number) - all[2] * 0.1);
  barrier();
  const auto result = divided();
  EXPECT_EQ(divided_sums(result), (Numbers{0, 1}));
  EXPECT_EQ(parts(result), (std::vector<std::string>{"AllReduceStart", "MultiElementwise",
                                                     "AssignVariable w", "AssignVariable bias"}));
}

TEST_F(DivideUpdates, TellsOtherVariablesByAnotherTopic) {
  const auto topic_of = [&](const Resource* own) {
    const Value sum = sums({gradient()})[0];
    barrier();
    assign(weights_, read_variable(weights_) - sum);
    assign(momentum_, read_variable(momentum_) - sum);
    barrier();
    return topics(divided(own))[0];
  };
  EXPECT_NE(topic_of(weights_.get()), topic_of(momentum_.get()));
}

TEST_F(DivideUpdates, ASumThatIsUsedElsewhereIsWantedWhole) {
  const Value sum = sums({gradient()})[0];
  barrier();
  update(sum * rsqrt(reduce_sum(sum * sum)));
  barrier();
  const auto result = divided();
  EXPECT_EQ(divided_sums(result), Numbers{});
  EXPECT_EQ(parts(result),
            (std::vector<std::string>{"FusedElementwise", "AssignVariable m", "AssignVariable w"}));
}

TEST_F(DivideUpdates, AVariableWhoseWholeValueIsReadWhileItIsWrittenStaysWhole) {
  const Value sum = sums({gradient()})[0];
  barrier();
  update(sum * reduce_sum(read_variable(weights_)));
  barrier();
  EXPECT_TRUE(parts(divided()).empty());
  EXPECT_EQ(topics(divided()), (Numbers{0, 0}));
}

TEST_F(DivideUpdates, WhatDependsOnAVariableThatIsBeingWrittenWholeStaysWhole) {
  const auto count = variable("count", {});
  for (const bool computes_before : {false, true}) {
    function_ = {};
    const GraphScope scope(*function_.graph);
    const Value sum = sums({gradient()})[0], calls = read_variable(count);
    const Value early = exp(calls);
    barrier();
    update(sum * (computes_before ? early : exp(reshape(calls, {1}))));
    assign(count, calls + 1.0);
    barrier();
    EXPECT_EQ(parts(divided()).size(), computes_before ? 4u : 0u);
  }
}

TEST_F(DivideUpdates, AVariableMayBeReadBeforeAndAfterIt) {
  const Value product = matmul(read_variable(weights_), gradient());
  const Value sum = sums({product})[0];
  barrier();
  update(sum);
  barrier();
  function_.outputs = {softmax(read_variable(weights_))};
  EXPECT_EQ(parts(divided()).size(), 4u);
}

TEST_F(DivideUpdates, NothingIsReturnedThatOthersAreStillWriting) {
  barrier();
  update(gradient());
  function_.outputs = {reshape(read_variable(momentum_), {256})};
  EXPECT_TRUE(parts(divided()).empty());
}

TEST_F(DivideUpdates, VariablesOfOneReplicaOrWithoutABarrierStayWhole) {
  const Value sum = sums({gradient()})[0];
  update(sum);
  EXPECT_TRUE(parts(divided()).empty());
  barrier();
  update(sum);
  barrier();
  EXPECT_TRUE(parts(divided(momentum_.get())).empty());
}

TEST_F(DivideUpdates, AReplicaMayNotReadWhatTheFirstOneIsWritingForAll) {
  barrier();
  const Value moved = read_variable(momentum_) * 0.9 + gradient();
  assign(momentum_, moved);
  barrier();
  const auto sharing = [](const Resource&) { return 3; };
  EXPECT_NO_THROW(check_shared_reads(function_, sharing, {}));
  EXPECT_NO_THROW(check_shared_reads(function_, sharing, {momentum_.get()}));
  function_.outputs = {reduce_sum(moved)};
  EXPECT_TRUE(find_division(function_, sharing).variables.empty());
  const Error error = testing::error_of([&] { check_shared_reads(function_, sharing, {}); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_NE(error.message().find("uses variable \"m\""), std::string::npos) << error.message();
}

TEST_F(DivideUpdates, WhatIsNotElementwiseStaysWhole) {
  const auto rows = variable("rows"), count = variable("count", {});
  barrier();
  assign(weights_, matmul(gradient(), gradient()));
  assign(momentum_, read_variable(momentum_) + gradient({16}));  // broadcast
  assign(count, read_variable(count) + 1.0);
  const Value index = function_.graph->add_input("index", {DType::kInt64, {1}});
  assign(rows, read_variable(rows) * 0.5);
  function_.graph->add("AssignScatter", {index, gradient({1, 16})}, {{"op", int64_t{0}}}, rows);
  barrier();
  EXPECT_TRUE(parts(divided()).empty());
}

}  // namespace
}  // namespace cohort
