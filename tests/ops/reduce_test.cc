#include <algorithm>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/ops/math_ops.h"
#include "tests/testing/evaluate.h"
#include "tests/testing/gradient_check.h"

namespace cohort {
namespace {

using namespace ops;
using testing::check_gradients;
using testing::check_gradients_at;
using testing::check_second_gradients;
using testing::evaluate;
using Values = std::vector<Value>;
using Reduce = Value (*)(const Value&, const std::vector<int64_t>&, bool);

class ReduceGradient : public ::testing::TestWithParam<std::pair<const char*, Reduce>> {};

TEST_P(ReduceGradient, AgreesWithDifferencesOverAnyAxes) {
  const Reduce reduce = GetParam().second;
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{}, {0}, {-1}, {0, 2}, {1}})
    for (bool keep_dims : {false, true})
      check_gradients([&](const Values& v) { return reduce(v[0], axes, keep_dims); },
                      {{{2, 3, 2}, 0.5, 2}});
  check_gradients([&](const Values& v) { return reduce(v[0], {}, false); }, {{{}}});
}

TEST_P(ReduceGradient, HasASecondDerivative) {
  check_second_gradients(
      [](const Values& v) { return GetParam().second(square(v[0]), {1}, false); },
      {{{2, 3}, 0.5, 2}});
}

INSTANTIATE_TEST_SUITE_P(Ops, ReduceGradient,
                         ::testing::Values(std::pair{"sum", &reduce_sum},
                                           std::pair{"mean", &reduce_mean},
                                           std::pair{"max", &reduce_max},
                                           std::pair{"min", &reduce_min},
                                           std::pair{"prod", &reduce_prod}),
                         [](const auto& info) { return info.param.first; });

TEST(ReduceProd, GradientIsRightWithZeros) {
  const Tensor rows = Tensor::from<double>({2, 3, 4, 2, 0, 4, 0, 3, 0}, {3, 3});
  check_gradients_at([](const Values& v) { return reduce_prod(v[0], {1}); }, {rows});
}

TEST(ReduceProd, SecondDerivativesAreRightWithZeros) {
  const Tensor rows = Tensor::from<double>({2, 3, 4, 2, 0, 4, 0, 3, 0, 0, 0, 0}, {4, 3});
  check_gradients_at(
      [](const Values& v) {
        return gradients(reduce_sum(reduce_prod(v[0], {1})), {v[0]})[0].values;
      },
      {rows});
}

TEST(ReduceProd, GradientInFloat16IsRightWhereTheProductIsOutOfItsRange) {
  const struct {
    std::vector<double> x;
    double scale;
    std::vector<double> gradient;
  } cases[] = {{{256, 256, 4}, 0x1p-10, {1, 1, 64}},
               {{0x1p-13, 0x1p-13, 1}, 0x1p10, {0x1p-3, 0x1p-3, 0x1p-16}}};
  for (const auto& [factors, scale, gradient] : cases) {
    Graph graph;
    const Value x = graph.add_input("x", {DType::kFloat16, {3}});
    const auto dx = gradients(reduce_prod(x) * scale, {x});
    const Tensor given = Tensor::from<double>(factors, {3}).cast(DType::kFloat16),
                 found = evaluate({dx[0].values}, {given})[0];
    EXPECT_EQ(found.dtype(), DType::kFloat16);
    EXPECT_EQ(to_string(found.cast(DType::kFloat64)),
              to_string(Tensor::from<double>(gradient, {3})));
  }
}

TEST(ReduceMax, GradientIsSharedAmongTies) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat64, {4}});
  const auto dx = gradients(reduce_max(x), {x});
  const auto result = evaluate({dx[0].values}, {Tensor::from<double>({1, 5, 5, 2}, {4})});
  EXPECT_EQ(to_string(result[0]), to_string(Tensor::from<double>({0, 0.5, 0.5, 0}, {4})));
}

TEST(Reduce, GradientInFloat16IsSharedAmongMoreElementsThanFloat16CanCount) {
  constexpr int64_t kCount = 1 << 17;
  for (const Reduce reduce : {reduce_mean, reduce_max, reduce_min}) {
    Graph graph;
    const Value x = graph.add_input("x", {DType::kFloat16, {kCount}});
    const auto dx = gradients(reduce(x, {}, false), {x});
    const Tensor result = evaluate({dx[0].values}, {Tensor::full(DType::kFloat16, {kCount}, 3)})[0];
    EXPECT_EQ(result.dtype(), DType::kFloat16);
    const Tensor want = Tensor::full(DType::kFloat64, {kCount}, 0x1p-17),
                 got = result.cast(DType::kFloat64);
    EXPECT_TRUE(std::ranges::equal(got.values<double>(), want.values<double>())) << to_string(got);
  }
}

TEST(Reduce, RefusesAnAxisGivenTwice) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {2, 3}});
  EXPECT_THROW(reduce_sum(x, {1, -1}), Error);
  EXPECT_THROW(reduce_sum(x, {2}), Error);
}

TEST(CumSum, GradientRunsTheOtherWay) {
  for (int64_t axis : {0, 1})
    for (bool exclusive : {false, true})
      for (bool reverse : {false, true})
        check_gradients([&](const Values& v) { return cumsum(v[0], axis, exclusive, reverse); },
                        {{{3, 4}}});
}

TEST(CumProd, GradientAgreesWithDifferencesAlsoWhereElementsAreZero) {
  const Tensor none = Tensor::from<double>({0.5, -2, 3, 1.5, -1, 0.25}, {3, 2}),
               one = Tensor::from<double>({0.5, -2, 0, 1.5, -1, 0}, {3, 2}),
               several = Tensor::from<double>({0, 0, 3, 0, 0, 0.25, 0, 0}, {4, 2});
  for (int64_t axis : {0, 1})
    for (bool exclusive : {false, true})
      for (bool reverse : {false, true}) {
        const auto product = [&](const Values& v) {
          return cumprod(v[0], axis, exclusive, reverse);
        };
        for (const Tensor& x : {none, one, several}) check_gradients_at(product, {x});
        const auto slope = [&](const Values& v) {
          return gradients(reduce_sum(square(product(v) + 1.0)), {v[0]})[0].values;
        };
        for (const Tensor& x : {none, one}) check_gradients_at(slope, {x}, {}, 1e-5);
      }
  check_gradients([](const Values& v) { return cumprod(v[0], -1); }, {{{2, 0}}});
}

TEST(TopK, GradientGoesToTheChosen) {
  check_gradients([](const Values& v) { return top_k(v[0], 2).values; }, {{{3, 5}}});
  check_gradients([](const Values& v) { return top_k(v[0], 3).values; }, {{{4}}});
}

TEST(TopK, RefusesMoreThanThereAre) {
  Graph graph;
  EXPECT_THROW(top_k(graph.add_input("x", {DType::kFloat32, {2, 3}}), 4), Error);
}

}  // namespace
}  // namespace cohort
