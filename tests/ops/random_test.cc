#include <algorithm>
#include <tuple>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/ops/math_ops.h"
#include "core/ops/random_ops.h"
#include "tests/testing/error_of.h"
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

TEST(Random, RefusesARangeThatItsTypeDoesNotHold) {
  Graph graph;
  const GraphScope scope(graph);
  const auto error = [](double low, double high, DType dtype) {
    return testing::error_of([&] { random_uniform({2}, low, high, dtype); }).message();
  };
  EXPECT_NE(error(-3e38, 3e38, DType::kFloat32)
                .find("the range -3e+38 to 3e+38 is too large for float32; allowed are bounds from "
                      "-3.40282e+38 to 3.40282e+38 that are at most 3.40282e+38 apart"),
            std::string::npos);
  for (const auto& [low, high, dtype] : {std::tuple(0.0, 1e39, DType::kFloat32),
                                         {-1e308, 1e308, DType::kFloat64},
                                         {-3e38, 3e38, DType::kBFloat16},
                                         {0.0, 65505.0, DType::kFloat16}})
    EXPECT_NE(error(low, high, dtype).find("is too large"), std::string::npos) << dtype;
  EXPECT_EQ(error(-65504, 65504, DType::kFloat16), "no error") << "is computed in float32";
  EXPECT_EQ(error(-1e38, 1e38, DType::kFloat32), "no error");
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
