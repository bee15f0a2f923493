#include <cmath>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/ops/array_ops.h"
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

struct UnaryCase {
  const char* name;
  Value (*function)(const Value&);
  double low = -2, high = 2;
};

class UnaryGradient : public ::testing::TestWithParam<UnaryCase> {};

TEST_P(UnaryGradient, AgreesWithDifferences) {
  const auto& c = GetParam();
  check_gradients([&](const Values& v) { return c.function(v[0]); }, {{{7}, c.low, c.high}});
}

TEST_P(UnaryGradient, HasASecondDerivative) {
  const auto& c = GetParam();
  check_second_gradients([&](const Values& v) { return c.function(v[0]); }, {{{5}, c.low, c.high}});
}

INSTANTIATE_TEST_SUITE_P(
    Ops, UnaryGradient,
    ::testing::Values(UnaryCase{"neg", neg}, UnaryCase{"abs", ops::abs}, UnaryCase{"sign", sign},
                      UnaryCase{"floor", ops::floor, 0.1, 0.9},
                      UnaryCase{"ceil", ops::ceil, 0.1, 0.9},
                      UnaryCase{"round", ops::round, 0.6, 1.4}, UnaryCase{"tan", ops::tan, -1, 1},
                      UnaryCase{"exp", ops::exp}, UnaryCase{"expm1", ops::expm1},
                      UnaryCase{"log", ops::log, 0.5, 2}, UnaryCase{"log1p", ops::log1p, -0.5, 2},
                      UnaryCase{"sqrt", ops::sqrt, 0.5, 2}, UnaryCase{"rsqrt", rsqrt, 0.5, 2},
                      UnaryCase{"square", square}, UnaryCase{"reciprocal", reciprocal, 0.5, 2},
                      UnaryCase{"sin", ops::sin}, UnaryCase{"cos", ops::cos},
                      UnaryCase{"erf", ops::erf}, UnaryCase{"tanh", ops::tanh},
                      UnaryCase{"sigmoid", sigmoid}, UnaryCase{"softplus", softplus},
                      UnaryCase{"relu", relu}, UnaryCase{"silu", silu},
                      UnaryCase{"gelu", [](const Value& x) { return gelu(x); }},
                      UnaryCase{"gelu_tanh", [](const Value& x) { return gelu(x, true); }},
                      UnaryCase{"clip", [](const Value& x) { return clip(x, -1, 0.5); }}),
    [](const auto& info) { return info.param.name; });

struct BinaryCase {
  const char* name;
  Value (*function)(const Value&, const Value&);
  double low = -2, high = 2;
};

class BinaryGradient : public ::testing::TestWithParam<BinaryCase> {};

TEST_P(BinaryGradient, AgreesWithDifferencesForEveryBroadcast) {
  const auto& c = GetParam();
  const Shape shapes[][2] = {
      {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{2, 3}, {2, 1}}, {{}, {2, 3}}, {{2, 1, 3}, {4, 1}}};
  for (const auto& [a, b] : shapes) {
    SCOPED_TRACE(str(a, " with ", b));
    check_gradients([&](const Values& v) { return c.function(v[0], v[1]); },
                    {{a, c.low, c.high}, {b, c.low, c.high}});
  }
}

TEST_P(BinaryGradient, HasASecondDerivative) {
  const auto& c = GetParam();
  check_second_gradients([&](const Values& v) { return c.function(v[0], v[1]); },
                         {{{2, 2}, c.low, c.high}, {{2}, c.low, c.high}});
}

INSTANTIATE_TEST_SUITE_P(
    Ops, BinaryGradient,
    ::testing::Values(BinaryCase{"add", add}, BinaryCase{"sub", sub}, BinaryCase{"mul", mul},
                      BinaryCase{"div", ops::div, 0.5, 2}, BinaryCase{"mod", ops::mod, 0.5, 2},
                      BinaryCase{"pow", ops::pow, 0.5, 2}, BinaryCase{"maximum", maximum},
                      BinaryCase{"minimum", minimum}),
    [](const auto& info) { return info.param.name; });

TEST(ElementwiseGradient, OfModIsRightForEachSign) {
  check_gradients_at([](const Values& v) { return ops::mod(v[0], v[1]); },
                     {Tensor::from<double>({7.5, -7.5, 7.5, -7.5, 0.5}, {5}),
                      Tensor::from<double>({2, 2, -2, -2, 3}, {5})});
}

TEST(ElementwiseGradient, OfWhereBroadcasts) {
  const Tensor condition = Tensor::from<double>({1, 0, 0, 1, 1, 0}, {2, 3}).cast(DType::kBool);
  check_gradients([](const Values& v) { return where(v[2], v[0], v[1]); }, {{{2, 3}}, {{3}}},
                  {condition});
}

TEST(ElementwiseGradient, OfNumbersMixedWithValues) {
  check_gradients([](const Values& v) { return 2.0 / (1.0 + v[0] * 3.0) - (v[0] - 4.0) / 5.0; },
                  {{{4}, 0, 1}});
}

TEST(ElementwiseGradient, OfCastReturnsToTheInputsType) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {3}});
  const auto dx = gradients(reduce_sum(square(cast(x, DType::kFloat64))), {x});
  const auto result = evaluate({dx[0].values}, {Tensor::from<float>({1, 2, 3}, {3})});
  EXPECT_EQ(to_string(result[0]), to_string(Tensor::from<float>({2, 4, 6}, {3})));
}

TEST(ElementwiseGradient, OfPowIsFiniteAtBaseZero) {
  Graph graph;
  const Value a = graph.add_input("a", {DType::kFloat64, {3}}),
              b = graph.add_input("b", {DType::kFloat64, {3}});
  const auto d = gradients(reduce_sum(ops::pow(a, b)), {a, b});
  const auto result = evaluate({d[0].values, d[1].values}, {Tensor::from<double>({0, 0, 0}, {3}),
                                                            Tensor::from<double>({0, 1, 2}, {3})});
  EXPECT_EQ(to_string(result[0]), to_string(Tensor::from<double>({0, 1, 0}, {3})));
  EXPECT_EQ(to_string(result[1]), to_string(Tensor::from<double>({0, 0, 0}, {3})));
}

TEST(ElementwiseGradient, OfPowByItsExponentIsZeroAtNegativeBases) {
  Graph graph;
  const GraphScope scope(graph);
  const Value a = constant(Tensor::from<double>({-2, 2}, {2})),
              b = constant(Tensor::from<double>({2, 3}, {2}));
  const auto d = gradients(reduce_sum(ops::pow(a, b)), {a, b});
  const auto values = evaluate({d[0].values, d[1].values});
  EXPECT_EQ(values[0].values<double>()[0], -4);
  EXPECT_EQ(values[1].values<double>()[0], 0);
  EXPECT_NEAR(values[1].values<double>()[1], 8 * std::log(2.0), 1e-12);
}

TEST(ElementwiseGradient, OfPowIsZeroAtExponentZero) {
  Graph graph;
  const Value a = graph.add_input("a", {DType::kFloat64, {4}}),
              b = graph.add_input("b", {DType::kFloat64, {}});
  const auto da = gradients(reduce_sum(ops::pow(a, b)), {a});
  const auto result = evaluate(
      {da[0].values}, {Tensor::from<double>({-2, 1e-310, 3, INFINITY}, {4}), Tensor::scalar(0.0)});
  for (const double derivative : result[0].values<double>()) EXPECT_EQ(derivative, 0);
}

TEST(ElementwiseGradient, OfPowHasASecondDerivativeAtExponentZero) {
  const auto derivative = [](const Values& v) {
    return gradients(reduce_sum(ops::pow(v[0], v[1])), {v[0]})[0].values;
  };
  check_gradients_at(derivative,
                     {Tensor::from<double>({2, 0.5}, {2}), Tensor::from<double>({0, 0}, {2})});
}

TEST(ElementwiseGradient, OfMaximumGoesToTheFirstAmongEquals) {
  Graph graph;
  const Value a = graph.add_input("a", {DType::kFloat64, {}}),
              b = graph.add_input("b", {DType::kFloat64, {}});
  for (auto* function : {maximum, minimum}) {
    const auto d = gradients(function(a, b), {a, b});
    const auto result =
        evaluate({d[0].values, d[1].values}, {Tensor::scalar(2.0), Tensor::scalar(2.0)});
    EXPECT_EQ(result[0].item(), 1);
    EXPECT_EQ(result[1].item(), 0);
  }
}

// Numbers that are less than others, as much, and more.
TEST(Comparison, GivesABoolForEachPair) {
  Graph graph;
  const Value a = graph.add_input("a", {DType::kFloat64, {3}}),
              b = graph.add_input("b", {DType::kFloat64, {3}});
  const auto expect = [&](const Value& result, const std::vector<double>& wanted) {
    EXPECT_EQ(to_string(evaluate({result}, {Tensor::from<double>({1, 2, 3}, {3}),
                                            Tensor::from<double>({2, 2, 2}, {3})})[0]),
              to_string(Tensor::from(wanted, {3}).cast(DType::kBool)));
  };
  expect(ops::less(a, b), {1, 0, 0});
  expect(ops::less_equal(a, b), {1, 1, 0});
  expect(ops::greater(a, b), {0, 0, 1});
  expect(ops::greater_equal(a, b), {0, 1, 1});
  expect(ops::equal(a, b), {0, 1, 0});
  expect(ops::not_equal(a, b), {1, 0, 1});
}

TEST(Elementwise, CeilAndIsNanOfAnyNumber) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {7}});
  const Tensor given = Tensor::from<float>({-1.5f, -0.5f, 0, 0.25f, 2, INFINITY, NAN}, {7});
  const auto result = evaluate({ops::ceil(x), ops::is_nan(x)}, {given});
  EXPECT_EQ(to_string(result[0]),
            to_string(Tensor::from<float>({-1, -0.0f, 0, 1, 2, INFINITY, NAN}, {7})));
  EXPECT_EQ(to_string(result[1]),
            to_string(Tensor::from<double>({0, 0, 0, 0, 0, 0, 1}, {7}).cast(DType::kBool)));
  const Value whole = graph.add_input("whole", {DType::kInt32, {0}});
  EXPECT_EQ(evaluate({ops::is_nan(whole)}, {given, Tensor::zeros(DType::kInt32, {0})})[0].spec(),
            (TensorSpec{DType::kBool, {0}}));
  EXPECT_THROW(ops::ceil(whole), Error);
  EXPECT_THROW(ops::round(whole), Error);
}

TEST(Logic, JoinsBools) {
  Graph graph;
  const Value a = graph.add_input("a", {DType::kBool, {4}}),
              b = graph.add_input("b", {DType::kBool, {4}});
  const auto bools = [](const std::vector<double>& values) {
    return Tensor::from(values, {4}).cast(DType::kBool);
  };
  const auto result = evaluate({ops::logical_and(a, b), ops::logical_or(a, b), ops::logical_not(a)},
                               {bools({0, 0, 1, 1}), bools({0, 1, 0, 1})});
  EXPECT_EQ(to_string(result[0]), to_string(bools({0, 0, 0, 1})));
  EXPECT_EQ(to_string(result[1]), to_string(bools({0, 1, 1, 1})));
  EXPECT_EQ(to_string(result[2]), to_string(bools({1, 1, 0, 0})));
}

TEST(Constant, RefusesNumbersThatItsTypeDoesNotHave) {
  Graph graph;
  const GraphScope scope(graph);
  EXPECT_THROW(constant(0.5, DType::kInt32), Error);
  EXPECT_THROW(constant(-1, DType::kUInt8), Error);
  EXPECT_THROW(constant(NAN, DType::kInt64), Error);
  EXPECT_THROW(constant(Tensor()), Error);
  EXPECT_EQ(constant(255, DType::kUInt8).dtype(), DType::kUInt8);
}

TEST(Constant, KeepsItsValueWhenTheTensorChanges) {
  Graph graph;
  const GraphScope scope(graph);
  Tensor tensor = Tensor::scalar(1.0);
  const Value value = constant(tensor);
  *tensor.data<double>() = 2;
  EXPECT_EQ(evaluate({value})[0].item(), 1);
}

}  // namespace
}  // namespace cohort
