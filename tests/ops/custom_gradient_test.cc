// Gradients of one's own: in place of those of ops, of higher order, and what is refused.
#include "core/ops/custom_gradient.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/graph/serialization.h"
#include "core/ops/control_flow.h"
#include "core/ops/math_ops.h"
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

Tensor doubles(const std::vector<double>& numbers) {
  return Tensor::from(numbers, {static_cast<int64_t>(numbers.size())});
}

void expect_equal(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(to_string(got), to_string(want));
}

Value own_exp(const Value& x) {
  return with_gradient(
      x, [](const Value& v) { return exp(v); },
      [](const Value& dy, const Value&, const Value& y) { return dy * y; });
}

Values product_and_sum(const Value& a, const Value& b) {
  return with_gradient(
      {a, b},
      [](const Values& in) {
        return Values{in[0] * in[1], in[0] + in[1]};
      },
      [](const Values& dys, const Values& in, const Values&) {
        return Values{dys[0] * in[1] + dys[1], dys[0] * in[0] + dys[1]};
      });
}

class WithGradient : public ::testing::Test {
 protected:
  Value input(const Shape& shape, DType dtype = DType::kFloat64) {
    return graph_.add_input("x", {dtype, shape});
  }
  // The gradient of x's sum behind `gradient`.
  Gradient slope(const Value& x, const std::function<Value(const Value&)>& gradient) {
    const Value y = with_gradient(
        x, [](const Value& v) { return v * 2.0; },
        [gradient](const Value& dy, const Value&, const Value&) { return gradient(dy); });
    return gradients(reduce_sum(y), {x})[0];
  }
  void expect_invalid(const std::function<void()>& mistake, const std::string& part) {
    const Error error = testing::error_of(mistake);
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.message();
    EXPECT_NE(error.message().find("with_gradient: " + part), std::string::npos) << error.message();
  }

  Graph graph_;
  GraphScope scope_{graph_};
};

TEST_F(WithGradient, TakesThePlaceOfThoseOfTheOps) {
  const Value x = input({3});
  // Whole numbers hand no gradient on; what comes in is clipped, which is not linear.
  const Value y = with_gradient(
      x, [](const Value& v) { return cast(cast(v, DType::kInt32), DType::kFloat64); },
      [](const Value& dy, const Value&, const Value&) {
        return minimum(dy, constant(1, DType::kFloat64));
      });
  const Value loss = reduce_sum(y * constant(doubles({0.5, 1, 4}))) + reduce_sum(y);
  const auto results = evaluate({y, gradients(loss, {x})[0].values}, {doubles({1.75, -2.5, 0.5})});
  expect_equal(results[0], doubles({1, -2, 0}));
  expect_equal(results[1], doubles({1, 1, 1}));  // of 1.5, 2 and 5
}

TEST(WithGradientOfOps, AgreesWithDifferencesOfAnyOrder) {
  check_second_gradients([](const Values& v) { return own_exp(v[0]); }, {{{2, 3}}});
  check_second_gradients(
      [](const Values& v) {
        const Values both = product_and_sum(v[0], v[1]);
        return both[0] * both[1];
      },
      {{{4}}, {{4}}});
  for (const size_t only : {0, 1})
    check_gradients([=](const Values& v) { return product_and_sum(v[0], v[1])[only]; },
                    {{{4}}, {{4}}});
  check_second_gradients([](const Values& v) { return product_and_sum(v[0], v[0])[0]; }, {{{4}}});
}

TEST(WithGradientOfOps, MayBeNested) {
  const auto inside = [](const Values& v) {
    return with_gradient(
        v[0], [](const Value& x) { return square(own_exp(x)); },
        [](const Value& dy, const Value& x, const Value&) {
          return gradients({square(own_exp(x))}, {x}, {dy})[0].values;
        });
  };
  check_second_gradients(inside, {{{3}}});
  check_second_gradients([](const Values& v) { return own_exp(own_exp(v[0])); }, {{{3}}});
}

TEST_F(WithGradient, CountsInItsBranchAlone) {
  const Value x = input({}), condition = input({}, DType::kBool);
  const Value y = cond(
      condition,
      [&] {
        return with_gradient(
            x, [](const Value& v) { return sqrt(v); },
            [](const Value& dy, const Value&, const Value& root) { return dy / (root * 2.0); });
      },
      [&] { return x * 3.0; });
  const Value dx = gradients(y, {x})[0].values;
  EXPECT_EQ(evaluate({dx}, {Tensor::scalar(0.25), Tensor::scalar(true)})[0].item(), 1);
  EXPECT_EQ(evaluate({dx}, {Tensor::scalar(-1.0), Tensor::scalar(false)})[0].item(), 3);
}

TEST_F(WithGradient, MayLeaveAnInputWithoutAGradient) {
  const Value x = input({2}), captured = input({2});
  EXPECT_FALSE(slope(x, [](const Value&) { return Value(); }));
  const Value y = with_gradient(
      x, [&](const Value& v) { return v * captured; },
      [](const Value& dy, const Value&, const Value&) { return dy; });
  const auto found = gradients(reduce_sum(y), {x, captured});
  EXPECT_TRUE(found[0]);
  EXPECT_FALSE(found[1]);
}

TEST_F(WithGradient, GivesTheInputsWhatTheyCanHave) {
  const Value x = input({2});
  const auto none = [](const Values&) { return Values(); };
  const auto no_gradients = [](const Values&, const Values&, const Values&) { return Values(); };
  const auto itself = [](const Values& in) { return in; };
  expect_invalid([&] { slope(x, [](const Value& dy) { return reduce_sum(dy); }); },
                 "the gradient of input 0 must be float64[2], is float64[]");
  expect_invalid([&] { gradients(reduce_sum(with_gradient({x}, itself, no_gradients)[0]), {x}); },
                 "the gradient body gave 0 gradients for 1 inputs");
  expect_invalid([&] { with_gradient({x}, none, no_gradients); }, "forward gave no values");
  expect_invalid([&] { with_gradient(Values(), itself, no_gradients); }, "there is no input");
  expect_invalid([&] { with_gradient({x}, itself, GradientBody()); }, "a body is an empty");
  expect_invalid(
      [&] {
        const Value y = with_gradient(
            x, [](const Value& v) { return v * 2.0; },
            [](const Value& dy, const Value& in, const Value& out) {
              return gradients({out}, {in}, {dy})[0].values;
            });
        gradients(reduce_sum(y), {x});
      },
      "the gradient body takes gradients of the outputs");
}

TEST(WithGradientOfOps, IsSavedAsFarAsItWasTaken) {
  GraphFunction function;
  const GraphScope scope(*function.graph);
  const Value x = function.graph->add_input("x", {DType::kFloat64, {2}});
  const Value loss = reduce_sum(own_exp(x) * 2.0);
  function.outputs = {loss, gradients(loss, {x})[0].values};
  const GraphFunction loaded =
      import_function(serialize_function(function),
                      [](const std::string&) -> std::shared_ptr<Resource> { return nullptr; });
  const auto results = evaluate(loaded.outputs, {doubles({0, 0})});
  EXPECT_EQ(results[0].item(), 4);
  expect_equal(results[1], doubles({2, 2}));
  const Error error =
      testing::error_of([&] { gradients(loaded.outputs[0], {loaded.graph->inputs()[0]}); });
  EXPECT_EQ(error.code(), Code::kUnimplemented) << error.message();
  EXPECT_NE(error.message().find("with_gradient"), std::string::npos) << error.message();
}

}  // namespace
}  // namespace cohort
