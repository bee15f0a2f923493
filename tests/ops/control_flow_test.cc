#include "core/ops/control_flow.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/graph/gradients.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/state_ops.h"
#include "tests/testing/evaluate.h"

namespace cohort {
namespace {

using namespace ops;
using testing::evaluate;
using testing::TestVariable;

// The message of the kInvalidArgument that `f` throws.
template <typename F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

class ControlFlow : public ::testing::Test {
 protected:
  Value input(Shape shape, DType dtype = DType::kFloat64) {
    return graph_.add_input(str("x", graph_.inputs().size()), {dtype, shape});
  }
  // Runs the graph for each of two conditions.
  std::vector<double> for_both(const Value& result) {
    return {evaluate({result}, {Tensor::scalar(true)})[0].item(),
            evaluate({result}, {Tensor::scalar(false)})[0].item()};
  }
  std::shared_ptr<TestVariable> variable(const Tensor& value) {
    return std::make_shared<TestVariable>("w", value);
  }

  Graph graph_;
  GraphScope scope_{graph_};
};

TEST_F(ControlFlow, TheSideThatIsTakenGivesTheResults) {
  const Value condition = input({}, DType::kBool), three = constant(3, DType::kFloat64);
  const auto both = cond(
      condition,
      [&] {
        return std::vector<Value>{three * 2.0, three};
      },
      [&] {
        return std::vector<Value>{three * 3.0, three * 4.0};
      });
  EXPECT_EQ(for_both(both[0]), (std::vector<double>{6, 9}));
  EXPECT_EQ(for_both(both[1]), (std::vector<double>{3, 12}));
}

TEST_F(ControlFlow, SidesMustMatch) {
  const Value condition = input({}, DType::kBool), x = input({2}), y = input({3});
  const auto shapes = refusal([&] {
    cond(
        condition, [&] { return x; }, [&] { return y; });
  });
  EXPECT_NE(shapes.find(str(x.spec())), std::string::npos) << shapes;
  EXPECT_NE(shapes.find(str(y.spec())), std::string::npos) << shapes;
  refusal([&] {
    cond(
        condition,
        [&] {
          return std::vector<Value>{x, x};
        },
        [&] { return std::vector<Value>{x}; });
  });
}

TEST_F(ControlFlow, ASideIsNoEmptyFunction) {
  const Value condition = input({}, DType::kBool), x = input({});
  const std::function<Value()> empty, side = [&] { return x; };
  const std::string said = "cond: a side is an empty function";
  EXPECT_EQ(refusal([&] { cond(condition, empty, side); }), said);
  EXPECT_EQ(refusal([&] { cond(condition, side, empty); }), said);
  EXPECT_EQ(refusal([&] { cond(condition, BranchBody(), BranchBody()); }), said);
  EXPECT_EQ(refusal([&] { only_if(condition, {}); }), "only_if: a side is an empty function");
}

TEST_F(ControlFlow, AConditionIsABoolScalar) {
  const Value x = input({}), two = input({2}, DType::kBool);
  for (const Value& wrong : {x, two})
    refusal([&] {
      cond(
          wrong, [&] { return x; }, [&] { return x; });
    });
}

TEST_F(ControlFlow, WritesCountOnTheSideThatIsTaken) {
  const Value condition = input({}, DType::kBool);
  for (const bool taken : {true, false}) {
    const auto then = variable(Tensor::scalar(1.0)), otherwise = variable(Tensor::scalar(1.0)),
               shared = variable(Tensor::scalar(1.0));
    const Value ten = constant(10, DType::kFloat64);
    const auto nothing = [] { return std::vector<Value>{}; };
    cond(
        condition,
        [&] {
          assign(then, ten);
          assign(shared, ten * 2.0);
          return nothing();
        },
        [&] {
          assign(otherwise, ten);
          assign(shared, ten * 3.0);
          return nothing();
        });
    only_if(condition, [&] { assign(shared, read_variable(shared) + 1.0); });
    evaluate({read_variable(shared)}, {Tensor::scalar(taken)});
    EXPECT_EQ(then->value.item(), taken ? 10 : 1);
    EXPECT_EQ(otherwise->value.item(), taken ? 1 : 10);
    EXPECT_EQ(shared->value.item(), taken ? 21 : 30);
  }
}

TEST_F(ControlFlow, ScattersToo) {
  const Value condition = input({}, DType::kBool);
  for (const DType dtype : {DType::kInt64, DType::kInt32, DType::kUInt8}) {
    const auto table = variable(Tensor::from<double>({1, 2, 3}, {3}));
    const Value rows = constant(Tensor::from<int64_t>({2, 0}, {2}).cast(dtype));
    only_if(condition, [&] {
      assign_scatter(table, ScatterOp::kAdd, rows, constant(Tensor::from<double>({5, 6}, {2})));
    });
    const Value after = read_variable(table);
    const Tensor untaken = evaluate({after}, {Tensor::scalar(false)})[0];
    EXPECT_EQ(untaken.data<double>()[0], 1);
    EXPECT_EQ(untaken.data<double>()[2], 3);
    evaluate({after}, {Tensor::scalar(true)});
    EXPECT_GE(table->value.data<double>()[0], 7);
  }
}

TEST_F(ControlFlow, NestsAndTheInnerCountsOnlyWithTheOuter) {
  const Value outer = input({}, DType::kBool), inner = input({}, DType::kBool);
  const auto count = variable(Tensor::scalar(0.0));
  only_if(outer, [&] {
    only_if(inner, [&] { assign(count, read_variable(count) + 1.0); });
    assign(count, read_variable(count) + 10.0);
  });
  const Value after = read_variable(count);
  const auto run = [&](bool a, bool b) {
    count->value = Tensor::scalar(0.0);
    return evaluate({after}, {Tensor::scalar(a), Tensor::scalar(b)})[0].item();
  };
  EXPECT_EQ(run(true, true), 11);
  EXPECT_EQ(run(true, false), 10);
  EXPECT_EQ(run(false, true), 0);
  EXPECT_EQ(run(false, false), 0);
}

// The slope of sqrt at 0 is infinite, and infinity times the zero of a side not taken no number.
TEST_F(ControlFlow, TheSideThatIsNotTakenHasNoPartInGradients) {
  const Value x = input({});
  const Value positive = greater(x, constant(0, DType::kFloat64));
  const Value y = cond(
      positive, [&] { return sqrt(x) * 3.0; }, [&] { return x * 2.0; });
  const Value slope = gradients(y * y, {x})[0].values;
  EXPECT_EQ(evaluate({slope}, {Tensor::scalar(0.0)})[0].item(), 0);
  EXPECT_EQ(evaluate({slope}, {Tensor::scalar(-1.0)})[0].item(), -8);
  EXPECT_DOUBLE_EQ(evaluate({slope}, {Tensor::scalar(4.0)})[0].item(), 9);
}

TEST_F(ControlFlow, NorInThatOfLookups) {
  const Value table = input({3, 1}), condition = input({}, DType::kBool);
  const Value row = constant(Tensor::from<int64_t>({1}, {1}));
  const Value y = cond(
      condition, [&] { return reduce_sum(sqrt(gather(table, row))); },
      [&] { return reduce_sum(table); });
  const Value slope = gradients(y, {table})[0].dense();
  const auto at = [&](bool taken) {
    return evaluate({slope}, {Tensor::zeros(DType::kFloat64, {3, 1}), Tensor::scalar(taken)})[0];
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(at(false).data<double>()[i], 1);
  EXPECT_TRUE(std::isinf(at(true).data<double>()[1]));
  EXPECT_EQ(at(true).data<double>()[0], 0);
}

// A row-sparse optimizer would move a row that it is given, also by zeros.
TEST_F(ControlFlow, RowsThatAreLookedUpOnTheOtherSideHaveNoGradient) {
  const Value table = input({3, 1}), condition = input({}, DType::kBool);
  const auto lookup = [&](int64_t row) {
    return [=] { return reduce_sum(gather(table, constant(Tensor::from<int64_t>({row}, {1})))); };
  };
  const Gradient slices = gradients(cond(condition, lookup(1), lookup(2)), {table})[0];
  ASSERT_TRUE(slices.sparse());
  for (const bool taken : {true, false}) {
    const Tensor rows =
        evaluate({cast(slices.indices, DType::kInt64)},
                 {Tensor::zeros(DType::kFloat64, {3, 1}), Tensor::scalar(taken)})[0];
    std::multiset<int64_t> named(rows.values<int64_t>().begin(), rows.values<int64_t>().end());
    EXPECT_EQ(named, (std::multiset<int64_t>{-1, taken ? 1 : 2}));
  }
}

TEST_F(ControlFlow, TheSideThatIsNotTakenHasNoPartInSecondDerivatives) {
  const Value x = input({});
  const Value y = cond(
      greater(x, constant(0, DType::kFloat64)), [&] { return log(x); }, [&] { return x * x; });
  const Value slope = gradients(y, {x})[0].values;
  const Value curvature = gradients(slope, {x})[0].values;
  EXPECT_EQ(evaluate({curvature}, {Tensor::scalar(0.0)})[0].item(), 2);
  EXPECT_DOUBLE_EQ(evaluate({curvature}, {Tensor::scalar(2.0)})[0].item(), -0.25);
}

TEST_F(ControlFlow, TheSideThatIsNotTakenRefusesNothing) {
  const Value condition = input({}, DType::kBool), x = input({});
  const Value y = cond(
      condition,
      [&] { return require(x, greater(x, constant(0, DType::kFloat64)), "not positive"); },
      [&] { return x * 2.0; });
  const auto run = [&](bool taken, double value) {
    return evaluate({y}, {Tensor::scalar(taken), Tensor::scalar(value)})[0].item();
  };
  EXPECT_EQ(run(false, -1), -2);
  EXPECT_EQ(run(true, 3), 3);
  EXPECT_THROW(run(true, -1), Error);
}

TEST_F(ControlFlow, GradientsInsideABranchAreThoseOfWhatItComputes) {
  const Value condition = input({}, DType::kBool), x = input({});
  const Value slope = cond(
      condition, [&] { return gradients(x * x, {x})[0].values; }, [&] { return x; });
  EXPECT_EQ(evaluate({slope}, {Tensor::scalar(true), Tensor::scalar(5.0)})[0].item(), 10);
  EXPECT_EQ(evaluate({slope}, {Tensor::scalar(false), Tensor::scalar(5.0)})[0].item(), 5);
}

}  // namespace
}  // namespace cohort
