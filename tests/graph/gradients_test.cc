#include "core/graph/gradients.h"

#include <gtest/gtest.h>

#include "core/graph/op.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/state_ops.h"
#include "tests/testing/error_of.h"
#include "tests/testing/evaluate.h"

namespace cohort {
namespace {

using namespace ops;
using testing::evaluate;
using testing::TestVariable;
using Values = std::vector<Value>;

class Gradients : public ::testing::Test {
 protected:
  Value input(Shape shape, DType dtype = DType::kFloat64) {
    return graph_.add_input(str("x", graph_.inputs().size()), {dtype, shape});
  }
  Graph graph_;
  GraphScope scope_{graph_};
};

TEST_F(Gradients, OfAnotherReadThanThatOfTheLossIsAnError) {
  const auto v = std::make_shared<TestVariable>("v", Tensor::scalar(2.0));
  const auto read = [&] { return graph_.add("ReadVariable", {}, {}, v).output(); };
  const Value used = read(), loss = used * used, other = read();
  const Error error = testing::error_of([&] { gradients(loss, {other}); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_NE(error.message().find("another read of variable \"v\""), std::string::npos)
      << error.message();
  const auto both = gradients(loss, {used, other});
  EXPECT_TRUE(both[0]);
  EXPECT_FALSE(both[1]);
  graph_.add("AssignVariable", {loss}, {}, v);
  EXPECT_FALSE(gradients(loss, {read()})[0]) << "what it is from now on is another value";
}

TEST_F(Gradients, OfWhatTheLossDoesNotDependOnIsNone) {
  const Value x = input({2}), unused = input({2});
  const auto d = gradients(reduce_sum(x * 2.0), {x, unused});
  EXPECT_TRUE(d[0]);
  EXPECT_FALSE(d[1]);
}

TEST_F(Gradients, OfTheLossItselfIsOne) {
  const Value x = input({});
  EXPECT_EQ(evaluate({gradients(x, {x})[0].values}, {Tensor::scalar(7.0)})[0].item(), 1);
}

TEST_F(Gradients, AddUpOverAllUses) {
  const Value x = input({});
  const auto d = gradients(x * x + x * 3.0 + x, {x, x});
  EXPECT_TRUE(d[0].values.is_same(d[1].values));
  EXPECT_EQ(evaluate({d[0].values}, {Tensor::scalar(5.0)})[0].item(), 14);
}

TEST_F(Gradients, OfAnIntermediateValueAndOfWhatItComesFrom) {
  const Value x = input({}), y = x * 2.0, loss = y * y;
  const auto d = gradients(loss, {y, x});
  const auto result = evaluate({d[0].values, d[1].values}, {Tensor::scalar(3.0)});
  EXPECT_EQ(result[0].item(), 12);
  EXPECT_EQ(result[1].item(), 24);
}

TEST_F(Gradients, StopAtStopGradientAndAtIntegers) {
  const Value x = input({3});
  EXPECT_FALSE(gradients(reduce_sum(stop_gradient(x)), {x})[0]);
  EXPECT_FALSE(gradients(reduce_sum(cast(cast(x, DType::kInt32), DType::kFloat64)), {x})[0]);
  const Value labels = input({3}, DType::kInt64);
  EXPECT_FALSE(gradients(reduce_sum(cast(labels, DType::kFloat64)), {labels})[0]);
}

TEST_F(Gradients, NameTheOpThatHasNone) {
  const NameScope scope("pool");
  const Value x = input({1, 4, 4, 1});
  const Value dx = gradients(reduce_sum(max_pool2d(x)), {x})[0].values;
  try {
    gradients(reduce_sum(dx * x), {x});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnimplemented);
    EXPECT_NE(error.message().find("op MaxPool2DGrad has no gradient"), std::string::npos)
        << error.message();
  }
}

TEST_F(Gradients, NeedAFloatingScalarOfTheSameGraph) {
  const Value x = input({2});
  EXPECT_THROW(gradients(x, {x}), Error);
  EXPECT_THROW(gradients(reduce_sum(argmax(x)), {x}), Error);
  Graph other;
  EXPECT_THROW(gradients(reduce_sum(x), {other.add_input("y", {DType::kFloat64, {}})}), Error);
}

// Of y = x^2 and z = (x0 + x1) 3, at (2, 5).
TEST_F(Gradients, OfSeveralValuesAreVectorsTimesJacobians) {
  const Value x = input({2}), dy = input({2}), dz = input({});
  const Value y = x * x, z = reduce_sum(x) * 3.0;
  const auto d = gradients({y, z}, {x, y}, {dy, dz});
  const auto result = evaluate({d[0].values, d[1].values},
                               {Tensor::from<double>({2, 5}, {2}),
                                Tensor::from<double>({1, 10}, {2}), Tensor::scalar(100.0)});
  EXPECT_EQ(to_string(result[0]), to_string(Tensor::from<double>({304, 400}, {2})));
  EXPECT_EQ(to_string(result[1]), to_string(Tensor::from<double>({1, 10}, {2})));
}

TEST_F(Gradients, OfAValueThatComesTwiceOrIsAnXItselfAddUp) {
  const Value x = input({2}), dy = input({2}), y = x * 3.0;
  const auto d = gradients({y, x, y}, {x}, {dy, dy, dy * 10.0});
  const auto result = evaluate(
      {d[0].values}, {Tensor::from<double>({7, 7}, {2}), Tensor::from<double>({1, 2}, {2})});
  EXPECT_EQ(to_string(result[0]), to_string(Tensor::from<double>({34, 68}, {2})));
}

TEST_F(Gradients, OfEmptyValuesAreZero) {
  const Value x = input({3}), y = broadcast_to(x, {0, 3});
  const auto result =
      evaluate({gradients({y}, {x}, {y})[0].values}, {Tensor::from<double>({1, 2, 3}, {3})});
  EXPECT_EQ(to_string(result[0]), to_string(Tensor::from<double>({0, 0, 0}, {3})));
}

// The product with the Jacobian's transpose is linear in the vector: its derivative by the vector
// is the Jacobian. Of y = (x0 x1, x0 + x1, x0^2).
TEST_F(Gradients, OfAProductByItsVectorAreForwardMode) {
  const Value x = input({2}), u = input({3}), v = input({2});
  const Value a = slice(x, {0}, {1}), b = slice(x, {1}, {1});
  const Value product = gradients({concat({a * b, a + b, a * a}, 0)}, {x}, {u})[0].values;
  const Value forward = gradients({product}, {u}, {v})[0].values;
  const auto result =
      evaluate({forward}, {Tensor::from<double>({2, 3}, {2}), Tensor::full(DType::kFloat64, {3}, 0),
                           Tensor::from<double>({1, 10}, {2})});
  EXPECT_EQ(to_string(result[0]), to_string(Tensor::from<double>({23, 11, 4}, {3})));
}

TEST_F(Gradients, NeedOneGradientOfEachValueAndOfItsSpec) {
  const Value x = input({2}), y = x * x, whole = cast(x, DType::kInt32);
  Graph other;
  const Value foreign = other.add_input("z", {DType::kFloat64, {2}});
  const struct {
    Values ys, grad_ys;
    const char* said;
  } cases[] = {
      {{}, {}, "nothing to differentiate"},
      {{y, y}, {y}, "2 values to differentiate, but 1 gradients"},
      {{y, whole}, {y, whole}, "value 1 to differentiate must be floating"},
      {{y}, {reduce_sum(y)}, "the gradient of value 0 must be float64[2]"},
      {{y}, {cast(y, DType::kFloat32)}, "the gradient of value 0 must be float64[2]"},
      {{y}, {Value()}, "empty value"},
      {{y}, {foreign}, "different functions"},
      {{y, foreign}, {y, y}, "different functions"},
  };
  for (const auto& [ys, grad_ys, said] : cases) {
    try {
      gradients(ys, {x}, grad_ys);
      ADD_FAILURE() << "expected: " << said;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(error.message().find(said), std::string::npos) << error.message();
    }
  }
}

TEST_F(Gradients, AreNamedAfterTheNodeTheyDifferentiate) {
  const Value x = input({2, 2});
  const Value loss = [&] {
    const NameScope scope("dense_1");
    return reduce_sum(tanh(x));
  }();
  const Value dx = gradients(loss, {x})[0].values;
  EXPECT_EQ(dx.node().inputs()[0].node().name(), "gradient/dense_1/Tanh/TanhGrad");
}

TEST_F(Gradients, StandWhereTheSweepCompletesThem) {
  // All three are there before the loss is computed from them, the last first; `shared` is used by
  // the first and by the last layer.
  const Value x = input({2, 3}), first = input({3, 3}), shared = input({3, 3}),
              last = input({3, 3});
  const Value hidden = matmul(matmul(matmul(x, first), shared), last);
  const auto d = gradients(reduce_sum(matmul(hidden, shared)), {first, shared, last});
  const auto id = [&](int i) { return d[static_cast<size_t>(i)].values.node().id(); };
  EXPECT_LT(id(2), id(1));
  EXPECT_LT(id(1), id(0));
  // Each before the sweep goes on, so that nothing has to wait for its end.
  EXPECT_EQ(id(0), static_cast<int>(graph_.nodes().size()) - 1);
}

// The order in which the gradients of a row added to all rows, of its product with a weight, and of
// a bias become ready; with one row there is nothing to reduce and the first is only passed on.
std::vector<size_t> order_of_gradients(int64_t rows) {
  Graph graph;
  const GraphScope scope(graph);
  const Value x = graph.add_input("x", {DType::kFloat64, {rows, 3}});
  const std::vector<Value> variables = {graph.add_input("row", {DType::kFloat64, {1, 3}}),
                                        graph.add_input("w", {DType::kFloat64, {3, 3}}),
                                        graph.add_input("b", {DType::kFloat64, {1, 3}})};
  const Value y = matmul(x + variables[0], variables[1]) + variables[2];
  const auto d = gradients(reduce_sum(y * y), variables);
  std::vector<size_t> order = {0, 1, 2};
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return d[a].values.node().id() < d[b].values.node().id(); });
  return order;
}

TEST_F(Gradients, BecomeReadyInTheSameOrderForAllShapes) {
  EXPECT_EQ(order_of_gradients(5), (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(order_of_gradients(1), order_of_gradients(5));
}

TEST_F(Gradients, AddNothingForBranchesWithoutAnX) {
  const Value x = input({2, 2}), other = input({2, 2});
  const Value loss = reduce_sum(x + matmul(other, other));
  const size_t before = graph_.nodes().size();
  gradients(loss, {x});
  for (size_t i = before; i < graph_.nodes().size(); ++i)
    EXPECT_NE(graph_.nodes()[i]->op().name, "MatMul");
}

class SparseGradients : public Gradients {
 protected:
  // As one dense tensor, whatever the form.
  Tensor dense(const Gradient& g, int64_t rows) {
    return evaluate({g.sparse() ? scatter_add(g.indices, g.values, rows) : g.values})[0];
  }
  Value indices(std::vector<int64_t> values, Shape shape) {
    return constant(Tensor::from<int64_t>(values, shape));
  }

  std::shared_ptr<TestVariable> table_ =
      std::make_shared<TestVariable>("embedding", Tensor::full(DType::kFloat64, {4, 2}, 1));
};

TEST_F(SparseGradients, ComeFromALookup) {
  const Value table = read_variable(table_);
  const Value rows = gather(table, indices({3, 0, 3, 1}, {2, 2}));
  const Gradient d = gradients(reduce_sum(rows * 2.0), {table})[0];
  ASSERT_TRUE(d.sparse());
  EXPECT_EQ(d.values.shape(), (Shape{4, 2}));
  EXPECT_EQ(d.indices.shape(), (Shape{4}));
  EXPECT_EQ(to_string(dense(d, 4)),
            to_string(Tensor::from<double>({2, 2, 2, 2, 0, 0, 4, 4}, {4, 2})));
}

TEST_F(SparseGradients, OfSeveralLookupsAreJoined) {
  const Value table = read_variable(table_);
  const Value first = gather(table, indices({3}, {1}));
  const Value second = gather(table, cast(indices({1, 3}, {2}), DType::kInt32));
  const Gradient d = gradients(reduce_sum(first) + reduce_sum(second), {table})[0];
  ASSERT_TRUE(d.sparse());
  EXPECT_EQ(d.indices.shape(), (Shape{3}));
  EXPECT_EQ(to_string(dense(d, 4)),
            to_string(Tensor::from<double>({0, 0, 1, 1, 0, 0, 2, 2}, {4, 2})));
}

TEST_F(SparseGradients, BecomeDenseWhenTheTableIsAlsoUsedWhole) {
  const Value table = read_variable(table_);
  const Value loss = reduce_sum(gather(table, indices({2, 2}, {2}))) + reduce_sum(table);
  const Gradient d = gradients(loss, {table})[0];
  ASSERT_FALSE(d.sparse());
  EXPECT_EQ(to_string(dense(d, 4)),
            to_string(Tensor::from<double>({1, 1, 1, 1, 3, 3, 1, 1}, {4, 2})));
}

TEST_F(SparseGradients, AreNotTakenAlongOtherAxesOrThroughOtherOps) {
  const Value table = read_variable(table_);
  EXPECT_FALSE(gradients(reduce_sum(gather(table, indices({1}, {1}), 1)), {table})[0].sparse());
  EXPECT_FALSE(
      gradients(reduce_sum(gather(square(table), indices({1}, {1}))), {table})[0].sparse());
}

}  // namespace
}  // namespace cohort
