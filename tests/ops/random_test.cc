#include <algorithm>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/ops/math_ops.h"
#include "core/ops/random_ops.h"
#include "tests/testing/evaluate.h"

namespace cohort {
namespace {

using namespace ops;
using testing::evaluate;

int64_t seed_of(const Value& value) { return value.node().attributes().get<int64_t>("seed"); }

TEST(Random, SeedsDifferByPlaceAndRepeatWithTheTrace) {
  Graph first, second;
  std::vector<int64_t> seeds[2];
  for (Graph* graph : {&first, &second}) {
    const GraphScope scope(*graph);
    auto& list = seeds[graph == &second];
    for (int i = 0; i < 3; ++i) list.push_back(seed_of(random_uniform({2})));
    list.push_back(seed_of(dropout(random_normal({2}), 0.5)));
  }
  EXPECT_EQ(seeds[0], seeds[1]);
  std::sort(seeds[0].begin(), seeds[0].end());
  EXPECT_EQ(std::adjacent_find(seeds[0].begin(), seeds[0].end()), seeds[0].end());
}

TEST(Random, AGivenSeedIsKept) {
  Graph graph;
  const GraphScope scope(graph);
  EXPECT_EQ(seed_of(truncated_normal({2}, 0, 1, DType::kFloat32, 42)), 42);
}

TEST(Random, RefusesWhatNoDistributionHas) {
  Graph graph;
  const GraphScope scope(graph);
  EXPECT_THROW(random_uniform({2}, 1, 0), Error);
  EXPECT_THROW(random_normal({2}, 0, -1), Error);
  EXPECT_THROW(random_normal({2}, 0, 1, DType::kInt32), Error);
  EXPECT_THROW(dropout(random_normal({2}), 1), Error);
}

TEST(Dropout, GradientDropsTheSameElements) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat64, {64}});
  const Value y = dropout(x, 0.25);
  const auto dx = gradients(reduce_sum(y), {x});
  const auto result = evaluate({y, dx[0].values}, {Tensor::full(DType::kFloat64, {64}, 1)});
  EXPECT_EQ(to_string(result[0]), to_string(result[1]));
  for (int64_t i = 0; i < 64; ++i)
    EXPECT_EQ(result[0].data<double>()[i], result[1].data<double>()[i]);
}

}  // namespace
}  // namespace cohort
