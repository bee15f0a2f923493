#include "core/graph/graph.h"

#include <sstream>
#include <utility>

#include <gtest/gtest.h>

#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/value_map.h"
#include "core/ops/math_ops.h"
#include "tests/testing/evaluate.h"

namespace cohort {
namespace {

using namespace ops;

Code code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kUnknown;
}

template <typename T>
concept Condition = requires(T x) {
  x ? 1 : 2;
};
template <typename T>
concept Ordered = requires(T x, T y) {
  x < y;
};
template <typename T>
concept Comparable = requires(T x, T y) {
  x == y;
};

// They would be about nodes, and not about elements.
static_assert(!Condition<Value> && !Ordered<Value> && !Comparable<Value>);

TEST(Graph, ValuesAreTheSameWhereTheyAreOneOutputOfANode) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {2}});
  EXPECT_TRUE(x.is_same(x.node().output()));
  EXPECT_FALSE(x.is_same(graph.add_input("x", x.spec())));
  EXPECT_FALSE(x.is_same(Value()));
  EXPECT_TRUE(Value().is_same(Value()));
  EXPECT_TRUE(x.defined());
  EXPECT_FALSE(Value().defined());
}

TEST(Graph, AValueThatHasBeenMovedFromIsNone) {
  Graph graph;
  Value from = graph.add_input("x", {DType::kFloat32, {2}});
  const Value x = from;
  Value to = std::move(from);
  EXPECT_FALSE(from.defined());  // NOLINT: what this is about
  EXPECT_TRUE(from.is_same(Value()));
  EXPECT_EQ(code_of([&] { from.shape(); }), Code::kInvalidArgument);
  EXPECT_TRUE(to.is_same(x));
  from = std::move(to);
  EXPECT_TRUE(from.is_same(x));
  EXPECT_FALSE(to.defined());  // NOLINT: what this is about
}

// The nodes of the later graphs are where those of the earlier ones were.
TEST(Graph, ValuesOfGraphsThatAreGoneAreTheSameOnlyAsTheirCopies) {
  ValueSet gone;
  for (int i = 0; i < 20; ++i) {
    Graph graph;
    const Value x = graph.add_input("x", {DType::kFloat32, {2}});
    for (const Value& other : gone) EXPECT_FALSE(x.is_same(other)) << i;
    EXPECT_TRUE(gone.insert(x).second) << i;
  }
  for (const Value& x : gone) {
    const Value copy = x;
    EXPECT_TRUE(copy.is_same(x));
    EXPECT_TRUE(gone.contains(copy));
  }
}

TEST(Graph, KeepsNodesInTheOrderOfTracing) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {2}});
  const Value y = relu(x + x);
  for (size_t i = 0; i < graph.nodes().size(); ++i)
    EXPECT_EQ(graph.nodes()[i]->id(), static_cast<int>(i));
  EXPECT_GT(y.node().id(), y.node().inputs()[0].node().id());
  ASSERT_EQ(graph.inputs().size(), 1u);
  EXPECT_TRUE(graph.inputs()[0].is_same(x));
}

TEST(Graph, ErrorsNameTheLayerTheOpAndTheInputs) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {2, 3}}),
              y = graph.add_input("y", {DType::kInt32, {3}});
  const NameScope outer("model"), inner("dense");
  try {
    add(x, y);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "model/dense/Add: op Add(float32[2,3], int32[3]): dtypes differ: the first is "
              "float32, the second is "
              "int32; cast one of them");
  }
}

TEST(Graph, RefusesValuesOfAnotherGraphUnknownOpsAndWrongCounts) {
  Graph graph, other;
  const Value x = graph.add_input("x", {DType::kFloat32, {}}),
              y = other.add_input("y", {DType::kFloat32, {}});
  EXPECT_EQ(code_of([&] { add(x, y); }), Code::kFailedPrecondition);
  EXPECT_EQ(code_of([&] { graph.add("NoSuchOp", {}); }), Code::kNotFound);
  EXPECT_EQ(code_of([&] { graph.add("Add", {x}); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([&] { graph.add("Add", {x, Value()}); }), Code::kInvalidArgument);
  EXPECT_EQ(graph.nodes().size(), 1u);
}

TEST(Graph, RefusesValuesOfAGraphThatIsGone) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {}});
  auto other = std::make_unique<Graph>();
  const Value kept = other->add_input("y", {DType::kFloat32, {}});
  EXPECT_TRUE(kept.is_of(*other));
  other.reset();
  EXPECT_TRUE(kept.defined());
  EXPECT_FALSE(kept.is_of(graph));
  EXPECT_FALSE(Value().is_of(graph));
  for (const std::function<void()>& use :
       std::vector<std::function<void()>>{[&] { add(x, kept); },
                                          [&] {
                                            graph.add("Add", {x, kept});
                                          },
                                          [&] { kept.shape(); }, [&] { kept.node(); }})
    EXPECT_EQ(code_of(use), Code::kFailedPrecondition);
}

TEST(Graph, OnlyOpsThatUseAVariableNameOne) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {100}});
  const auto w = std::make_shared<testing::TestVariable>("w", Tensor::zeros(DType::kFloat32, {1}));
  const Attributes dropout = {{"rate", 0.5}, {"seed", int64_t{1}}};
  EXPECT_EQ(code_of([&] { graph.add("Dropout", {x}, dropout, w); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([&] { graph.add("Relu", {x}, {}, w); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([&] { graph.add("ReadVariable", {}); }), Code::kInvalidArgument);
  graph.add("Dropout", {x}, dropout);
  graph.add("ReadVariable", {}, {}, w);
  EXPECT_EQ(graph.nodes().size(), 3u);
}

TEST(Graph, OpsTakeOnlyTheAttributesThatTheyList) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {4}});
  EXPECT_EQ(code_of([&] {
              graph.add("Relu", {x}, {{"axis", int64_t{0}}});
            }),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of([&] {
              graph.add("Cast", {x}, {{"to", DType::kInt32}});
            }),
            Code::kInvalidArgument);
  graph.add("Cast", {x}, {{"dtype", DType::kInt32}});
  EXPECT_EQ(graph.nodes().size(), 2u);
}

TEST(Graph, CopiesOfANodeAreOfItsOpWithoutLookingForItsName) {
  const OpDef unregistered = {.name = "Unregistered",
                              .num_inputs = 1,
                              .infer = [](const InferenceContext& c) { return c.inputs; }};
  GraphFunction function;
  const Value x = function.graph->add_input("x", {DType::kFloat32, {4}});
  function.outputs = {function.graph->add_named("y", unregistered, {x}, {}).output()};
  Rewriter rewrite(function);
  for (const auto& node : function.graph->nodes()) rewrite.copy(*node);
  const GraphFunction copy = rewrite.finish();
  EXPECT_EQ(&copy.outputs[0].node().op(), &unregistered);
  EXPECT_EQ(copy.outputs[0].spec(), x.spec());
}

TEST(Graph, ConstantsNeedAFunctionBeingTraced) {
  EXPECT_EQ(code_of([] { constant(1, DType::kFloat32); }), Code::kFailedPrecondition);
  Graph outer, inner;
  const GraphScope outer_scope(outer);
  {
    const GraphScope inner_scope(inner);
    EXPECT_EQ(&constant(1, DType::kFloat32).graph(), &inner);
  }
  EXPECT_EQ(&constant(1, DType::kFloat32).graph(), &outer);
}

TEST(Graph, PrintsOneLineANode) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {2, 3}});
  const NameScope scope("layer");
  top_k(relu(x), 1);
  std::ostringstream out;
  out << graph;
  EXPECT_EQ(out.str(),
            "%0 = Input() : float32[2,3]  # x\n"
            "%1 = Relu(%0) : float32[2,3]  # layer/Relu\n"
            "%2 = TopK(%1) : float32[2,1], int32[2,1]  # layer/TopK\n");
}

}  // namespace
}  // namespace cohort
