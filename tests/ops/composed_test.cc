// Functions that have no op of their own: values by hand at unusual arguments, their gradients, and
// what they refuse.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/state_ops.h"
#include "tests/testing/error_of.h"
#include "tests/testing/evaluate.h"
#include "tests/testing/gradient_check.h"

namespace cohort {
namespace {

using namespace ops;
using testing::check_gradients;
using testing::check_second_gradients;
using testing::evaluate;
using Values = std::vector<Value>;
using Numbers = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor doubles(const Numbers& numbers, const Shape& shape) { return Tensor::from(numbers, shape); }
Tensor whole(const std::vector<int64_t>& numbers, const Shape& shape) {
  return Tensor::from(numbers, shape);
}
Tensor bools(const Numbers& numbers, const Shape& shape) {
  return doubles(numbers, shape).cast(DType::kBool);
}

// What f gives for these inputs.
Tensor result_of(const std::function<Value(const Values&)>& f, const std::vector<Tensor>& inputs) {
  Graph graph;
  const GraphScope scope(graph);
  Values values;
  for (const Tensor& input : inputs) values.push_back(graph.add_input("x", input.spec()));
  return evaluate({f(values)}, inputs)[0];
}
Tensor result_of(const std::function<Value(const Value&)>& f, const Tensor& x) {
  return result_of([&](const Values& v) { return f(v[0]); }, std::vector<Tensor>{x});
}

void expect_equal(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.spec(), want.spec());
  const Tensor found = got.cast(DType::kFloat64), wanted = want.cast(DType::kFloat64);
  EXPECT_TRUE(std::ranges::equal(found.values<double>(), wanted.values<double>()))
      << to_string(got) << ", expected " << to_string(want);
}

void expect_error(const std::function<void()>& mistake, Code code, const std::string& part) {
  const Error error = testing::error_of(mistake);
  EXPECT_EQ(error.code(), code) << error.message();
  EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
}

class Composed : public ::testing::Test {
 protected:
  Value input(const Shape& shape, DType dtype = DType::kFloat32) {
    return graph_.add_input("x", {dtype, shape});
  }
  void expect_invalid(const std::function<void()>& mistake, const std::string& part) {
    expect_error(mistake, Code::kInvalidArgument, part);
  }
  Graph graph_;
  GraphScope scope_{graph_};
};

TEST_F(Composed, ConstantsLikeAValue) {
  const Value x = input({2, 0, 3}, DType::kInt32), on = input({2}, DType::kBool);
  EXPECT_EQ(zeros_like(x).spec(), x.spec());
  const Tensor none = Tensor::zeros(DType::kInt32, {2, 0, 3}), both = bools({0, 1}, {2});
  expect_equal(evaluate({ones_like(on)}, {none, both})[0], bools({1, 1}, {2}));
}

TEST_F(Composed, SequencesAreThoseOfNumPy) {
  const auto expect = [](const Value& got, const Tensor& want) {
    expect_equal(evaluate({got})[0], want);
  };
  expect(arange(0, 5), whole({0, 1, 2, 3, 4}, {5}));
  expect(arange(5, 0, -2), whole({5, 3, 1}, {3}));
  expect(arange(-3, 4, 3), whole({-3, 0, 3}, {3}));
  expect(arange(2, 2), whole({}, {0}));
  expect(arange(2, 5, -1), whole({}, {0}));
  expect(arange(0, 1, 0.25, DType::kFloat64), doubles({0, 0.25, 0.5, 0.75}, {4}));
  expect(arange(250, 256, 5, DType::kUInt8), whole({250, 255}, {2}).cast(DType::kUInt8));
  expect(linspace(1, 2, 5, DType::kFloat64), doubles({1, 1.25, 1.5, 1.75, 2}, {5}));
  expect(linspace(3, -3, 3), doubles({3, 0, -3}, {3}).cast(DType::kFloat32));
  expect(linspace(7, 9, 1, DType::kFloat64), doubles({7}, {1}));
  expect(linspace(7, 9, 0, DType::kFloat64), doubles({}, {0}));
  expect_invalid([] { arange(0, 1, 0); }, "the step not 0: from 0 to 1 in steps of 0");
  expect_invalid([] { arange(0, kInf); }, "arange: the numbers must be finite");
  expect_invalid([] { arange(0, 1e300); }, "too many numbers");
  expect_invalid([] { arange(0, 1, 0.5); }, "the number 0.5 is not a value of int64");
  expect_invalid([] { arange(0, 257, 1, DType::kUInt8); }, "256 is not a value of uint8");
  expect_invalid([] { arange(0x1p60, 0x1p60 + 4096, 1024); },
                 "arange: the number 1.15292e+18 is beyond");
  expect_invalid([] { arange(0, 2, 1, DType::kBool); }, "cannot be bool");
  expect_invalid([] { linspace(0, 1, -1); }, "there cannot be -1 numbers");
  expect_invalid([] { linspace(0, NAN, 2); }, "must be finite");
  expect_invalid([] { linspace(0, 1, 2, DType::kInt32); }, "must be floating");
}

TEST_F(Composed, MoveAxisKeepsTheOrderOfTheOthers) {
  const Value x = input({2, 3, 4, 5});
  EXPECT_EQ(move_axis(x, 0, -1).shape(), (Shape{3, 4, 5, 2}));
  EXPECT_EQ(move_axis(x, -1, 1).shape(), (Shape{2, 5, 3, 4}));
  EXPECT_EQ(move_axis(x, 2, 2).shape(), x.shape());
  expect_invalid([&] { move_axis(x, 0, 4); }, "move_axis: axis 4 is out of range");
}

TEST_F(Composed, StackAddsAnAxis) {
  const auto stacked = [](int64_t axis) {
    return result_of([=](const Values& v) { return stack(v, axis); },
                     {doubles({1, 2}, {2}), doubles({3, 4}, {2}), doubles({5, 6}, {2})});
  };
  expect_equal(stacked(0), doubles({1, 2, 3, 4, 5, 6}, {3, 2}));
  expect_equal(stacked(1), doubles({1, 3, 5, 2, 4, 6}, {2, 3}));
  expect_equal(stacked(-1), stacked(1));
  EXPECT_EQ(stack({input({}), input({})}).shape(), (Shape{2}));
  EXPECT_EQ(stack({input({0, 3}), input({0, 3})}, 1).shape(), (Shape{0, 2, 3}));
  expect_invalid([] { stack({}); }, "stack: there is nothing to join");
  expect_invalid([&] { stack({input({2}), input({3})}); }, "differ in more than axis 0");
  expect_invalid([&] { stack({input({2})}, 2); }, "axis 2 is out of range");
}

TEST_F(Composed, TileRepeatsAlongEachAxis) {
  const auto tiled = [](const Tensor& x, const std::vector<int64_t>& multiples) {
    return result_of([=](const Value& v) { return tile(v, multiples); }, x);
  };
  const Tensor x = doubles({1, 2, 3, 4, 5, 6}, {2, 3});
  expect_equal(tiled(x, {1, 2}), doubles({1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}, {2, 6}));
  expect_equal(tiled(x, {2, 1}), doubles({1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, {4, 3}));
  expect_equal(tiled(doubles({1, 2}, {2, 1}), {2, 2}), doubles({1, 1, 2, 2, 1, 1, 2, 2}, {4, 2}));
  expect_equal(tiled(x, {3, 0}), doubles({}, {6, 0}));
  expect_equal(tiled(doubles({}, {0, 3}), {2, 2}), doubles({}, {0, 6}));
  expect_equal(tiled(Tensor::scalar(7.0), {}), Tensor::scalar(7.0));
  EXPECT_EQ(tile(input({2, 2, 2, 2, 2, 2, 2, 2}), {1, 2, 3, 1, 2, 1, 1, 2}).shape(),
            (Shape{2, 4, 6, 2, 4, 2, 2, 4}));
  expect_invalid([&] { tile(input({2, 3}), {2}); }, "tile: 1 multiples for the 2 axes of [2,3]");
  expect_invalid([&] { tile(input({2}), {-1}); }, "must not be negative, is -1");
  expect_invalid([&] { tile(input({0, 3}), {1, int64_t{1} << 62}); }, "more than 2^63 elements");
}

TEST_F(Composed, FlipRunsFromTheEnd) {
  const auto flipped = [](const Tensor& x, const std::vector<int64_t>& axes) {
    return result_of([=](const Value& v) { return flip(v, axes); }, x);
  };
  const Tensor x = doubles({1, 2, 3, 4, 5, 6}, {2, 3});
  expect_equal(flipped(x, {0}), doubles({4, 5, 6, 1, 2, 3}, {2, 3}));
  expect_equal(flipped(x, {-1}), doubles({3, 2, 1, 6, 5, 4}, {2, 3}));
  expect_equal(flipped(x, {}), doubles({6, 5, 4, 3, 2, 1}, {2, 3}));
  expect_equal(flipped(doubles({}, {2, 0}), {1}), doubles({}, {2, 0}));
  expect_equal(flipped(Tensor::scalar(true), {}), Tensor::scalar(true));
  expect_invalid([&] { flip(input({2, 3}), {1, -1}); }, "flip: axis 1 of [2,3] is given twice");
  const auto variable = std::make_shared<testing::TestVariable>("v", x);
  const Value read = read_variable(variable);
  EXPECT_FALSE(gradients(reduce_sum(flip(read, {0})), {read})[0].sparse());
}

TEST_F(Composed, TakeAlongAxisTakesFromEachLine) {
  const auto taken = [](const Tensor& x, const Tensor& indices, int64_t axis) {
    return result_of([=](const Values& v) { return take_along_axis(v[0], v[1], axis); },
                     {x, indices});
  };
  const Tensor x = doubles({10, 20, 30, 40, 50, 60}, {2, 3});
  expect_equal(taken(x, whole({2, 0, 0, 1}, {2, 2}), 1), doubles({30, 10, 40, 50}, {2, 2}));
  expect_equal(taken(x, whole({1, 0, 1}, {1, 3}).cast(DType::kInt32), 0),
               doubles({40, 20, 60}, {1, 3}));
  expect_equal(
      taken(doubles({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}), whole({1, 0, 0, 1}, {2, 1, 2}), 1),
      doubles({3, 2, 5, 8}, {2, 1, 2}));
  expect_equal(taken(x, whole({}, {2, 0}), -1), doubles({}, {2, 0}));
  expect_equal(taken(doubles({}, {0, 3}), whole({}, {0, 2}), 1), doubles({}, {0, 2}));
  // An index beyond its line is none of the next one.
  for (const int64_t wrong : {int64_t{3}, int64_t{-1}, std::numeric_limits<int64_t>::max()})
    expect_error(
        [&] {
          taken(x, whole({wrong, 0}, {2, 1}), 1);
        },
        Code::kOutOfRange, "take_along_axis: an index is not one of axis 1 of [2,3]");
  expect_error(
      [&] {
        taken(doubles({}, {2, 0}), whole({0, 0}, {2, 1}), 1);
      },
      Code::kOutOfRange, "take_along_axis");
  expect_invalid([&] { taken(x, whole({0}, {1, 1}), 1); }, "differ in more than axis 1");
  expect_invalid([&] { taken(x, whole({0, 0}, {2}), 1); }, "differ in more than axis 1");
  expect_invalid([&] { taken(x, x, 1); }, "indices must be");
}

TEST(ComposedArrayGradient, AgreesWithDifferences) {
  check_gradients(
      [](const Values& v) {
        return stack({v[0], v[1], v[0]}, 1);
      },
      {{{2, 3}}, {{2, 3}}});
  check_gradients([](const Values& v) { return tile(v[0], {2, 1, 3}); }, {{{2, 3, 2}}});
  check_gradients([](const Values& v) { return flip(v[0]); }, {{{2, 3, 2}}});
  check_gradients([](const Values& v) { return move_axis(v[0], 0, 1); }, {{{2, 3, 2}}});
  const Tensor indices = whole({2, 0, 2, 1, 1, 1}, {2, 3});
  for (const int64_t axis : {0, 1})
    check_gradients([=](const Values& v) { return take_along_axis(v[0], v[1], axis); },
                    {{axis == 0 ? Shape{3, 3} : Shape{2, 4}}}, {indices});
}

TEST_F(Composed, AnyAndAllOfBools) {
  const auto any = [](const Tensor& x, const std::vector<int64_t>& axes, bool keep) {
    return result_of([=](const Value& v) { return reduce_any(v, axes, keep); }, x);
  };
  const auto all = [](const Tensor& x, const std::vector<int64_t>& axes, bool keep) {
    return result_of([=](const Value& v) { return reduce_all(v, axes, keep); }, x);
  };
  const Tensor x = bools({0, 0, 1, 1, 0, 1}, {3, 2});
  expect_equal(any(x, {1}, false), bools({0, 1, 1}, {3}));
  expect_equal(all(x, {1}, false), bools({0, 1, 0}, {3}));
  expect_equal(all(x, {0}, true), bools({0, 0}, {1, 2}));
  expect_equal(any(x, {}, false), Tensor::scalar(true));
  const Tensor none = bools({}, {2, 0});
  expect_equal(any(none, {1}, false), bools({0, 0}, {2}));
  expect_equal(all(none, {1}, false), bools({1, 1}, {2}));
  expect_equal(all(Tensor::scalar(true), {}, false), Tensor::scalar(true));
  // More than a byte can count.
  expect_equal(any(Tensor::full(DType::kBool, {256}, 1), {}, false), Tensor::scalar(true));
  expect_invalid([&] { reduce_any(input({2}, DType::kInt32)); }, "reduce_any: x must be bool");
}

TEST_F(Composed, LogSumExpNeitherOverflowsNorLosesInfinities) {
  const auto result = [](const Tensor& x) {
    return result_of([](const Value& v) { return reduce_logsumexp(v, {-1}); }, x);
  };
  expect_equal(result(doubles({1000, -1000, -2000, -3000}, {2, 2})), doubles({1000, -2000}, {2}));
  expect_equal(result(doubles({kInf, 0, -kInf, -kInf, 7, -kInf}, {3, 2})),
               doubles({kInf, -kInf, 7}, {3}));
  expect_equal(result(doubles({}, {2, 0})), doubles({-kInf, -kInf}, {2}));
  EXPECT_TRUE(std::isnan(result(doubles({NAN, 0}, {2})).item()));
  EXPECT_NEAR(result(doubles({0, 0, 0}, {3})).item(), std::log(3.0), 1e-12);
  // Of more numbers than float16 has.
  const Tensor many = Tensor::zeros(DType::kFloat16, {1 << 17});
  EXPECT_NEAR(result(many).item(), 17 * std::log(2.0), 0.01);
  expect_invalid([&] { reduce_logsumexp(input({2}, DType::kInt32)); }, "reduce_logsumexp: x must");
}

TEST_F(Composed, VarianceAndItsRootAreBiased) {
  const auto variance = [](const Tensor& x, const std::vector<int64_t>& axes) {
    return result_of([=](const Value& v) { return reduce_variance(v, axes); }, x);
  };
  expect_equal(variance(doubles({1, 3, 5, 5, 0, 8}, {3, 2}), {1}), doubles({1, 0, 16}, {3}));
  expect_equal(variance(doubles({1e8 + 1, 1e8 + 3}, {2}), {}), Tensor::scalar(1.0));
  expect_equal(result_of([](const Value& v) { return reduce_std(v, {1}, true); },
                         doubles({1, 3, 0, 8}, {2, 2})),
               doubles({1, 4}, {2, 1}));
  EXPECT_TRUE(std::isnan(variance(doubles({}, {0}), {}).item()));
  const Tensor large = doubles({-300, 300}, {2}).cast(DType::kFloat16);
  EXPECT_EQ(result_of([](const Value& v) { return reduce_std(v); }, large).item(), 300)
      << "whose square is no float16";
  expect_invalid([&] { reduce_std(input({2}, DType::kInt32)); }, "reduce_std: x must");
}

TEST_F(Composed, ArgMinIsTheFirstSmallest) {
  const auto smallest = [](const Tensor& x, int64_t axis) {
    return result_of([=](const Value& v) { return argmin(v, axis); }, x);
  };
  expect_equal(smallest(doubles({3, 1, 1, 0, 5, -kInf}, {2, 3}), 1), whole({1, 2}, {2}));
  expect_equal(smallest(doubles({3, 1, 1, 0, 5, -kInf}, {2, 3}), 0), whole({1, 0, 1}, {3}));
  expect_equal(smallest(doubles({1, NAN, 0}, {3}), -1), Tensor::scalar<int64_t>(1));
  expect_equal(smallest(whole({0, std::numeric_limits<int64_t>::min(), -5}, {3}), 0),
               Tensor::scalar<int64_t>(1));
  expect_equal(smallest(whole({3, 0, 255}, {3}).cast(DType::kUInt8), 0),
               Tensor::scalar<int64_t>(1));
  expect_equal(smallest(whole({}, {0, 2}), 1), whole({}, {0}));
  expect_invalid([&] { argmin(input({2, 0}), 1); }, "is empty");
  expect_invalid([&] { argmin(input({2}), 1); }, "argmin: axis 1 is out of range");
}

TEST_F(Composed, SoftmaxOverAnyAxis) {
  const Tensor x = doubles({0, 1, 0, 1, 0, 1}, {3, 2});
  expect_equal(result_of([](const Value& v) { return softmax(v * 0.0, 0) * 3.0; }, x),
               doubles({1, 1, 1, 1, 1, 1}, {3, 2}));
  expect_equal(result_of([](const Value& v) { return softmax(v, 1) - softmax(v); }, x),
               doubles({0, 0, 0, 0, 0, 0}, {3, 2}));
  EXPECT_EQ(log_softmax(input({2, 0, 3}), 1).shape(), (Shape{2, 0, 3}));
  expect_invalid([&] { softmax(input({2}), 1); }, "softmax: axis 1 is out of range");
}

TEST(ComposedReductionGradient, AgreesWithDifferences) {
  using Reduction = Value (*)(const Value&, const std::vector<int64_t>&, bool);
  for (const Reduction reduce : {reduce_logsumexp, reduce_variance, reduce_std}) {
    for (const std::vector<int64_t>& axes : {std::vector<int64_t>{}, {0}, {-1}, {0, 2}})
      for (const bool keep_dims : {false, true})
        check_gradients([&](const Values& v) { return reduce(v[0], axes, keep_dims); },
                        {{{2, 3, 2}}});
    check_second_gradients([&](const Values& v) { return reduce(v[0], {1}, false); }, {{{2, 3}}});
  }
  check_second_gradients([](const Values& v) { return softmax(v[0], 0); }, {{{3, 2}}});
  check_second_gradients([](const Values& v) { return log_softmax(v[0], 0); }, {{{3, 2}}});
}

TEST_F(Composed, MatMulBroadcastsBatches) {
  const auto product = [](const Tensor& a, const Tensor& b, const MatMulOptions& options = {}) {
    return result_of([=](const Values& v) { return matmul(v[0], v[1], options); }, {a, b});
  };
  const Tensor rows = doubles({1, 2, 3, 4}, {2, 1, 1, 2}),
               columns = doubles({1, 10, 2, 20}, {2, 2, 1});
  expect_equal(product(rows, columns), doubles({21, 42, 43, 86}, {2, 2, 1, 1}));
  expect_equal(product(doubles({1, 2}, {1, 2}), columns), doubles({21, 42}, {2, 1, 1}));
  expect_equal(product(doubles({1, 2}, {2, 1}), columns, {.transpose_a = true}),
               doubles({21, 42}, {2, 1, 1}));
  EXPECT_EQ(matmul(input({0, 1, 2, 3}), input({1, 5, 3, 4})).shape(), (Shape{0, 5, 2, 4}));
  expect_invalid(
      [&] {
        matmul(input({2, 1, 2}), input({3, 2, 1}));
      },
      "matmul of batches: shapes [2] and [3] do not broadcast");
  for (const auto& [a, b] :
       {std::pair{Shape{2, 1, 2, 3}, Shape{3, 3, 2}}, std::pair{Shape{2, 3}, Shape{2, 3, 1}}})
    check_gradients([](const Values& v) { return matmul(v[0], v[1]); }, {{a}, {b}});
}

}  // namespace
}  // namespace cohort
