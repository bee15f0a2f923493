#include <gtest/gtest.h>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/state_ops.h"
#include "tests/testing/evaluate.h"

namespace cohort {
namespace {

using namespace ops;
using testing::TestVariable;
using Numbers = std::vector<int64_t>;

// Gradients of dense layers, reduced and used by updates.
class GatherFactors : public ::testing::Test {
 protected:
  static constexpr int64_t kWidth = 64, kRows = 4;

  Value input(int64_t rows, int64_t columns = kWidth) {
    return softmax(function_.graph->add_input("x", {DType::kFloat32, {rows, columns}}));
  }
  static Value product(const Value& x, const Value& dy) { return matmul(x, dy, {true, false}); }

  // Reduces the values and takes each from a variable of its own.
  void update(const std::vector<Value>& values) {
    const auto sums = all_reduce_async(values, ReduceOp::kSum);
    barrier();
    for (const Value& sum : sums) {
      variables_.push_back(std::make_shared<TestVariable>(
          str("w", variables_.size()), Tensor::zeros(DType::kFloat32, sum.shape())));
      assign(variables_.back(), read_variable(variables_.back()) - sum);
    }
    barrier();
  }

  // As the second of three replicas that share all variables.
  GraphFunction gathered(bool adds_alike = true) const {
    const Sharing sharing = [](const Resource&) { return 3; };
    const auto fused = fuse_elementwise(told(adds_alike));
    const auto division = find_division(fused, sharing);
    return gather_factors(divide_updates(fused, division, 1, sharing),
                          find_factored(fused, division));
  }

  static std::vector<const Node*> nodes(const GraphFunction& function, std::string_view op) {
    std::vector<const Node*> found;
    for (const auto& node : function.graph->nodes())
      if (node->op().name == op) found.push_back(node.get());
    return found;
  }

  GraphFunction function_;
  GraphScope scope_{*function_.graph};

 private:
  GraphFunction told(bool adds_alike) const {
    Rewriter rewrite(function_);
    for (const auto& node : function_.graph->nodes()) {
      Attributes attributes = node->attributes();
      if (is_start(*node)) attributes.set("adds_alike", adds_alike);
      rewrite.copy(*node, attributes);
    }
    return rewrite.finish();
  }

  std::vector<std::shared_ptr<TestVariable>> variables_;
};

TEST_F(GatherFactors, ComputesThisReplicasPartOfTheProductOfAllRows) {
  update({product(input(kRows), input(kRows))});
  const auto result = gathered();
  EXPECT_TRUE(nodes(result, "AllReduceStart").empty());
  EXPECT_TRUE(nodes(result, "AllReduceWait").empty());
  EXPECT_EQ(nodes(result, "AllGather").size(), 2u);
  for (const Node* gather : nodes(result, "AllGather"))
    EXPECT_EQ(gather->attributes().get<Numbers>("extents"), Numbers(3, kRows));
  const auto products = nodes(result, "MatMul");
  ASSERT_EQ(products.size(), 1u);
  // Elements 1344 to 2688 of 4096: part_of in units of 64.
  EXPECT_EQ(products[0]->attributes().get<Numbers>("rows"), (Numbers{21, 42}));
  EXPECT_EQ(products[0]->inputs()[0].shape(), (Shape{3 * kRows, kWidth}));
}

TEST_F(GatherFactors, TakesWholeRowsThatAPartTouches) {
  update({product(input(kRows), input(kRows, 100))});
  const auto result = gathered();
  const auto products = nodes(result, "MatMul");
  ASSERT_EQ(products.size(), 1u);
  // Elements 2112 to 4224 of 6400.
  EXPECT_EQ(products[0]->attributes().get<Numbers>("rows"), (Numbers{21, 43}));
}

TEST_F(GatherFactors, ReducesTheOthersOfABucketAsBefore) {
  const Value x = input(kRows), dy = input(kRows), wide = input(kRows, 192);
  update({input(1), product(x, dy), reduce_sum(dy, {0}), product(x, wide)});
  const auto result = gathered();
  const auto starts = nodes(result, "AllReduceStart");
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0]->outputs().size(), 3u);  // two values and the operation
  EXPECT_EQ(starts[0]->attributes().get<Numbers>("divided"), (Numbers{0, 1}));
  EXPECT_EQ(nodes(result, "AllReduceWait")[0]->outputs().size(), 2u);
  EXPECT_EQ(nodes(result, "MatMul").size(), 2u);
  EXPECT_EQ(nodes(result, "AllGather").size(), 3u);  // x once
}

TEST_F(GatherFactors, LeavesProductsOfManyRows) {
  // 2 * 3 * rows * (64 + 64) is at most 64 * 64 up to 5 rows.
  update({product(input(5), input(5)), product(input(6), input(6))});
  const auto result = gathered();
  EXPECT_EQ(nodes(result, "AllGather").size(), 2u);
  EXPECT_EQ(nodes(result, "AllReduceStart")[0]->outputs().size(), 2u);
}

TEST_F(GatherFactors, LeavesWhatReplicasDoNotComputeAlike) {
  update({product(input(kRows), input(kRows))});
  EXPECT_TRUE(nodes(gathered(/*adds_alike=*/false), "AllGather").empty());
}

TEST_F(GatherFactors, LeavesProductsAndSumsThatAreUsedElsewhere) {
  const Value own = product(input(kRows), input(kRows)),
              twice = product(input(kRows), input(kRows));
  update({own, twice, twice});
  function_.outputs = {reduce_sum(own)};
  EXPECT_TRUE(nodes(gathered(), "AllGather").empty());
}

TEST_F(GatherFactors, LeavesFactorsThatAreTheMemoryOfAVariable) {
  const auto v =
      std::make_shared<TestVariable>("v", Tensor::zeros(DType::kFloat32, {kRows, kWidth}));
  const auto u =
      std::make_shared<TestVariable>("u", Tensor::zeros(DType::kFloat32, {kRows * kWidth}));
  update({product(read_variable(v), input(kRows)),
          product(input(kRows), reshape(read_variable(u), {kRows, kWidth}))});
  EXPECT_TRUE(nodes(gathered(), "AllGather").empty());
}

TEST_F(GatherFactors, LeavesProductsInOtherPositions) {
  const Value x = input(kWidth, kRows), dy = input(kRows);
  update({matmul(x, dy), matmul(x, input(kWidth, kRows), {false, true})});
  EXPECT_TRUE(nodes(gathered(), "AllGather").empty());
}

}  // namespace
}  // namespace cohort
