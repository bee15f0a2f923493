#include "core/graph/serialization.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>

#include "core/base/random.h"
#include "core/graph/gradients.h"
#include "core/graph/op.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/control_flow.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/random_ops.h"
#include "core/ops/state_ops.h"
#include "core/tensor/elementwise_program.h"
#include "proto/graph.pb.h"
#include "tests/testing/error_of.h"
#include "tests/testing/evaluate.h"
#include "tests/testing/graph_bytes.h"
#include "tests/testing/trials.h"

namespace cohort {
namespace {

using namespace ops;
using testing::graph_bytes;
using testing::TestVariable;

struct Variables {
  std::shared_ptr<TestVariable> filter = make("conv/filter", {3, 3, 2, 4});
  std::shared_ptr<TestVariable> table = make("embedding", {5, 4});

  static std::shared_ptr<TestVariable> make(const char* name, Shape shape) {
    return std::make_shared<TestVariable>(name, Tensor::full(DType::kFloat32, shape, 0.1));
  }
  ResourceResolver resolver() const {
    return [this](const std::string& name) -> std::shared_ptr<Resource> {
      if (name == filter->name()) return filter;
      return name == table->name() ? table : nullptr;
    };
  }
};

void add_fused_ops(GraphFunction& f, const Value& rows) {
  Graph& graph = *f.graph;
  const ElementwiseProgram program{.num_inputs = 2,
                                   .instructions = {{Scalar::kAdd, 0, 1}, {Scalar::kRelu, 2}},
                                   .outputs = {3, 2}};
  const std::vector<int64_t> dtypes = {0, 1};
  const Value b = reshape(slice(rows, {0, 0}, {1, -1}), {-1});
  f.outputs.push_back(graph
                          .add("FusedElementwise", {rows, b},
                               {{"program", program.encode()},
                                {"shape", rows.shape().to_vector()},
                                {"dtypes", dtypes}})
                          .output());
  f.outputs.push_back(graph
                          .add("MultiElementwise", {rows, b, b, b},
                               {{"program", program.encode()}, {"groups", 2}, {"dtypes", dtypes}})
                          .output(3));
  const Value square_matrix = matmul(rows, rows, {.transpose_a = true});
  f.outputs.push_back(
      graph
          .add("FusedMatMul", {rows, square_matrix, b},
               {{"transpose_a", false}, {"transpose_b", true}, {"activation", std::string("Tanh")}})
          .output());
}

Value convolutional(const Value& image, const Variables& variables) {
  const Value filter = read_variable(variables.filter);
  const Value y = conv2d(image, filter, {.padding = Padding::same()});
  const Value ones = constant(Tensor::full(DType::kFloat32, {4}, 1));
  Attributes fused = y.node().attributes();
  fused.set("activation", std::string("Relu"));
  const Value z = image.graph().add("FusedConv2D", {image, filter, ones}, fused).output();
  const Value normalised = batch_norm(y + stop_gradient(z), ones, ones, 1e-3).y;
  return reduce_mean(avg_pool2d(max_pool2d(normalised), {.padding = Padding::same()}), {1, 2});
}

Value sequence(const Value& tokens, const Variables& variables) {
  const Value table = read_variable(variables.table);
  const Value x = gather(table, tokens), ones = constant(Tensor::full(DType::kFloat32, {4}, 1));
  const Value heads = reshape(x, {2, 3, 2, 2});
  const Value mixed =
      reshape(scaled_dot_product_attention(heads, heads, heads, {.causal = true}), {2, 3, 4});
  const Value y = rms_norm(layer_norm(dropout(mixed, 0.5), ones, ones, 1e-5), ones, 1e-5);
  return reduce_max(cumsum(softmax(transpose(y, {1, 0, 2})), 1), {0});
}

// A training step that holds every kind of op and attribute.
GraphFunction every_op(const Variables& variables) {
  GraphFunction f;
  const GraphScope scope(*f.graph);
  const NameScope name("step");
  const Value image = f.graph->add_input("image", {DType::kFloat32, {2, 6, 6, 2}});
  const Value tokens = f.graph->add_input("tokens", {DType::kInt32, {2, 3}});
  const Value rows =
      convolutional(image, variables) + sequence(tokens, variables) + random_normal({2, 4});
  const Value labels = cast(argmax(pad(rows, {0, 1}, {0, 0})), DType::kInt64);
  const Value targets = one_hot(labels, 4);
  const auto parts = split(concat({log_softmax(rows), top_k(rows, 4).values}, 1), {4, 4}, 1);
  const Value loss =
      reduce_sum(all_reduce({reduce_prod(parts[0]) + reduce_min(parts[1])})[0] +
                 reduce_sum(sparse_softmax_cross_entropy(rows, labels)) +
                 reduce_sum(softmax_cross_entropy(
                     where(greater(rows, targets), rows, stop_gradient(rows)), targets)));
  const auto d = gradients(loss, {read_variable(variables.filter), read_variable(variables.table)});
  assign(variables.filter, read_variable(variables.filter) - 0.1 * d[0].values);
  assign_scatter(variables.table, ScatterOp::kAdd, d[1].indices, d[1].values);
  f.outputs = {loss, read_variable(variables.table)};
  add_fused_ops(f, rows);
  return f;
}

std::string text(const GraphFunction& f) {
  std::ostringstream out;
  out << *f.graph;
  for (const Value& v : f.outputs) out << "-> %" << v.node().id() << '.' << v.index() << '\n';
  return out.str();
}

TEST(Serialization, GivesTheSameFunctionBack) {
  const Variables variables;
  const GraphFunction original = every_op(variables);
  const GraphFunction copy = import_function(serialize_function(original), variables.resolver());
  EXPECT_EQ(text(copy), text(original));
  ASSERT_EQ(copy.graph->inputs().size(), original.graph->inputs().size());
  for (size_t i = 0; i < copy.graph->nodes().size(); ++i) {
    EXPECT_EQ(copy.graph->nodes()[i]->attributes(), original.graph->nodes()[i]->attributes());
    EXPECT_EQ(copy.graph->nodes()[i]->resource(), original.graph->nodes()[i]->resource());
  }
}

TEST(Serialization, ABoolIsZeroOrOneWhateverByteItCameAs) {
  GraphFunction f;
  const GraphScope scope(*f.graph);
  constant(Tensor::full(DType::kBool, {3}, 1));
  proto::Graph graph;
  ASSERT_TRUE(graph.ParseFromString(serialize_function(f)));
  graph.mutable_nodes(0)->mutable_attributes(0)->mutable_tensor()->set_data("\2\0\xff", 3);
  const GraphFunction copy = import_function(graph_bytes(graph), Variables().resolver());
  const auto value = copy.graph->nodes()[0]->attributes().get<Tensor>("value");
  EXPECT_EQ(std::memcmp(value.raw(), "\1\0\1", 3), 0);
}

// The side that is not taken divides by zero.
TEST(Serialization, AConditionalHasTheSameGradientsBehindIt) {
  GraphFunction f;
  const GraphScope scope(*f.graph);
  const Value x = f.graph->add_input("x", {DType::kFloat64, {}});
  f.outputs = {cond(
      greater(x, constant(0, DType::kFloat64)), [&] { return 1.0 / x; }, [&] { return x * 3.0; })};
  const GraphFunction g = import_function(serialize_function(f), Variables().resolver());
  const Gradient slope = gradients(g.outputs[0], {g.graph->inputs()[0]})[0];
  for (const auto& [at, expected] : {std::pair(0.0, 3.0), std::pair(2.0, -0.25)})
    EXPECT_EQ(testing::evaluate({slope.values}, {Tensor::scalar(at)})[0].item(), expected);
}

TEST(Serialization, IsTheSameBytesEveryTime) {
  const Variables variables;
  EXPECT_EQ(serialize_function(every_op(variables)), serialize_function(every_op(variables)));
}

// y = x * factor, kept in a variable.
struct Small {
  std::string scope = "layer", variable = "w";
  double factor = 2;
  bool is_sum = false;

  GraphFunction trace() const {
    GraphFunction f;
    const GraphScope graph(*f.graph);
    const NameScope name(scope);
    const Value x = f.graph->add_input("x", {DType::kFloat32, {3}});
    const Value by = constant(Tensor::full(DType::kFloat32, {3}, factor));
    const Value y = is_sum ? x + by : x * by;
    assign(Variables::make(variable.c_str(), {3}), y);
    f.outputs = {y};
    return f;
  }
};

TEST(Fingerprint, IsOfWhatIsComputedAndNotOfTheNamesOfNodes) {
  const uint64_t own = fingerprint(Small{}.trace());
  EXPECT_EQ(fingerprint(Small{.scope = "other"}.trace()), own);
  for (const Small& other :
       {Small{.variable = "v"}, Small{.factor = 2.0000002}, Small{.is_sum = true}})
    EXPECT_NE(fingerprint(other.trace()), own);
  GraphFunction without_result = Small{}.trace();
  without_result.outputs.clear();
  EXPECT_NE(fingerprint(without_result), own);
}

class HostileGraph : public ::testing::Test {
 protected:
  HostileGraph() {
    GraphFunction f;
    const GraphScope scope(*f.graph);
    const Value x = f.graph->add_input("x", {DType::kFloat32, {5, 4}});
    f.outputs = {x + read_variable(variables_.table) +
                 constant(Tensor::full(DType::kFloat32, {4}, 1))};
    EXPECT_TRUE(graph_.ParseFromString(serialize_function(f)));
  }

  // Expects the changed graph to be refused with a message that says `why`.
  void expect_refused(Code code, const std::string& why) {
    try {
      import_function(graph_bytes(graph_), variables_.resolver());
      FAIL() << "accepted; expected: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.message();
      EXPECT_NE(error.message().find(why), std::string::npos) << error.message();
    }
  }
  proto::Node& node(const std::string& op) {
    for (auto& node : *graph_.mutable_nodes())
      if (node.op() == op) return node;
    throw std::logic_error("no node of op " + op);
  }

  Variables variables_;
  proto::Graph graph_;
};

TEST_F(HostileGraph, OfAnotherFormat) {
  graph_.set_format(2);
  expect_refused(Code::kInvalidArgument, "graph format 2");
}

TEST_F(HostileGraph, WithAnUnknownOp) {
  node("Add").set_op("Subtract");
  expect_refused(Code::kNotFound, "there is no op \"Subtract\"");
}

TEST_F(HostileGraph, WithAForwardReference) {
  node("Add").mutable_inputs(0)->set_node(graph_.nodes_size() - 1);
  expect_refused(Code::kInvalidArgument, "is used but not among the");
  node("Add").mutable_inputs(0)->set_node(-1);
  expect_refused(Code::kInvalidArgument, "node -1 is used");
}

TEST_F(HostileGraph, WithABranchOfNoCondition) {
  node("Add").mutable_branch()->set_node(graph_.nodes_size() - 1);
  expect_refused(Code::kInvalidArgument, "is used but not among the");
  node("Add").mutable_branch()->set_node(0);
  expect_refused(Code::kInvalidArgument, "a condition must be bool[], got float32[5,4]");
}

TEST_F(HostileGraph, WithAnOutputThatANodeDoesNotHave) {
  graph_.mutable_outputs(0)->set_output(1);
  expect_refused(Code::kInvalidArgument, "has no output 1");
}

TEST_F(HostileGraph, WhoseShapesAreNotTheInferredOnes) {
  node("Add").mutable_outputs(0)->set_shape(0, 6);
  expect_refused(Code::kInvalidArgument, "declared outputs");
}

TEST_F(HostileGraph, WithATensorOfOtherBytes) {
  auto& tensor = *node("Constant").mutable_attributes(0)->mutable_tensor();
  tensor.mutable_data()->pop_back();
  expect_refused(Code::kInvalidArgument, "comes with 15 bytes");
  tensor.mutable_data()->clear();
  tensor.mutable_spec()->set_shape(0, int64_t{1} << 62);
  expect_refused(Code::kInvalidArgument, "comes with 0 bytes");
  tensor.mutable_spec()->set_shape(0, -1);
  expect_refused(Code::kInvalidArgument, "negative extent");
  tensor.mutable_spec()->set_dtype(8);
  expect_refused(Code::kInvalidArgument, "8 is not a dtype");
}

TEST_F(HostileGraph, WithAttributesTwiceMissingOrEmpty) {
  auto& attributes = *node("Constant").mutable_attributes();
  *attributes.Add() = attributes[0];
  expect_refused(Code::kInvalidArgument, "\"value\" is given twice");
  attributes[1].set_name("other");
  attributes[1].clear_value();
  expect_refused(Code::kInvalidArgument, "has no value");
  attributes.Clear();
  expect_refused(Code::kInvalidArgument, "attribute \"value\" is missing");
}

TEST_F(HostileGraph, WhoseReductionsDoNotEndOnce) {
  GraphFunction f;
  const Value x = f.graph->add_input("x", {DType::kFloat32, {5, 4}});
  const auto sums = all_reduce_async({x, x}, ReduceOp::kSum);
  f.outputs = all_reduce_async(sums, ReduceOp::kSum);
  ASSERT_TRUE(graph_.ParseFromString(serialize_function(f)));
  import_function(graph_bytes(graph_), variables_.resolver());
  const proto::Graph right = graph_;
  const std::string why = "an AllReduceWait takes all outputs of one AllReduceStart";
  const int last = graph_.nodes_size() - 1;
  auto& inputs = *graph_.mutable_nodes(last)->mutable_inputs();
  inputs.SwapElements(0, 1);
  expect_refused(Code::kInvalidArgument, why);
  inputs.SwapElements(0, 1);
  inputs[2] = right.nodes(2).inputs(2);  // the other start's operation
  expect_refused(Code::kInvalidArgument, why);
  *graph_.mutable_nodes(last) = right.nodes(2);
  expect_refused(Code::kInvalidArgument, why);
  graph_ = right;
  graph_.clear_outputs();
  graph_.mutable_nodes()->RemoveLast();
  expect_refused(Code::kInvalidArgument, "no AllReduceWait takes what \"AllReduceStart\" starts");
}

// The operation would be any number, and there may be no communicator.
TEST_F(HostileGraph, WithAWaitForNoReduction) {
  GraphFunction f;
  const GraphScope scope(*f.graph);
  const Value x = f.graph->add_input("x", {DType::kFloat32, {5, 4}});
  f.outputs = {f.graph->add("AllReduceWait", {x, constant(Tensor::scalar(int64_t{5}))}).output()};
  ASSERT_TRUE(graph_.ParseFromString(serialize_function(f)));
  expect_refused(Code::kInvalidArgument, "takes all outputs of one AllReduceStart");
}

// Such as those that passes give nodes for kernels that trust them.
TEST_F(HostileGraph, WithAttributesThatTheOpDoesNotList) {
  ASSERT_TRUE(graph_.ParseFromString(serialize_function(every_op(variables_))));
  for (auto& node : *graph_.mutable_nodes()) {
    SCOPED_TRACE(node.op());
    auto& part = *node.add_attributes();
    part.set_name("part");
    part.mutable_integers()->add_values(0);
    part.mutable_integers()->add_values(0);
    expect_refused(Code::kInvalidArgument, "takes no attribute \"part\"");
    node.mutable_attributes()->RemoveLast();
  }
  const std::pair<const char*, const char*> of_others[] = {
      {"MatMul", "activation"}, {"Conv2D", "activation"}, {"MatMul", "rows"}, {"Add", "groups"}};
  for (const auto& [op, name] : of_others) {
    node(op).add_attributes()->set_name(name);
    node(op).mutable_attributes()->rbegin()->set_text("Add");
    expect_refused(Code::kInvalidArgument, str("op ", op, " takes no attribute \"", name, "\""));
    node(op).mutable_attributes()->RemoveLast();
  }
}

TEST_F(HostileGraph, WithANodeOfMoreOutputsThanMemoryHolds) {
  constexpr int64_t kMany = 2048;  // and many times as many
  GraphFunction f;
  const Value x = f.graph->add_input("x", {DType::kFloat32, {}});
  const ElementwiseProgram program{.num_inputs = 1, .instructions = {}, .outputs = {0}};
  f.graph->add(
      "MultiElementwise", std::vector<Value>(kMany, x),
      {{"program", program.encode()}, {"groups", kMany}, {"dtypes", std::vector<int64_t>{0}}});
  ASSERT_TRUE(graph_.ParseFromString(serialize_function(f)));
  for (auto& attribute : *node("MultiElementwise").mutable_attributes())
    if (attribute.name() != "groups")
      for (int64_t i = 1; i < kMany; ++i) attribute.mutable_integers()->add_values(0);
  expect_refused(Code::kInvalidArgument, "2048 groups of 2048 outputs are more than the limit of");
}

// At the first of them: so a graph never has many more outputs than it lists.
TEST_F(HostileGraph, WithNodesOfMoreOutputsThanTheyList) {
  constexpr int kMany = 2048;
  GraphFunction f;
  const Value x = f.graph->add_input("x", {DType::kFloat32, {}});
  const ElementwiseProgram program{.num_inputs = 1, .instructions = {}, .outputs = {0}};
  for (int i = 0; i < 2; ++i)
    f.graph->add("MultiElementwise", {x},
                 {{"program", program.encode()},
                  {"groups", int64_t{1}},
                  {"dtypes", std::vector<int64_t>{0}}});
  ASSERT_TRUE(graph_.ParseFromString(serialize_function(f)));
  for (auto& node : *graph_.mutable_nodes())
    for (auto& attribute : *node.mutable_attributes())
      if (attribute.name() == "program" || attribute.name() == "dtypes")
        for (int i = 1; i < kMany; ++i) attribute.mutable_integers()->add_values(0);
  expect_refused(Code::kInvalidArgument,
                 "node 1 \"MultiElementwise\": the declared outputs are not those of op");
}

TEST_F(HostileGraph, WithVariablesThatDoNotFit) {
  graph_.mutable_resources(0)->mutable_spec()->set_shape(0, 7);
  expect_refused(Code::kInvalidArgument,
                 "\"embedding\" is float32[5,4] here, float32[7,4] in the graph");
  graph_.mutable_resources(0)->mutable_spec()->set_shape(0, 5);
  *graph_.add_resources() = graph_.resources(0);
  expect_refused(Code::kInvalidArgument, "listed twice");
  graph_.mutable_resources(1)->set_name("bias");
  expect_refused(Code::kNotFound, "there is no variable \"bias\"");
  graph_.clear_resources();
  expect_refused(Code::kInvalidArgument, "\"embedding\" is not listed");
}

TEST_F(HostileGraph, WithAVariableWhereNoneBelongs) {
  ASSERT_TRUE(graph_.ParseFromString(serialize_function(every_op(variables_))));
  for (auto& node : *graph_.mutable_nodes()) {
    if (find_op(node.op()).uses_variable) continue;
    SCOPED_TRACE(node.op());
    node.set_resource("embedding");
    expect_refused(Code::kInvalidArgument,
                   node.op() == "Input" ? "names a variable" : "uses no variable");
    node.clear_resource();
  }
}

TEST_F(HostileGraph, WithoutAVariableWhereOneBelongs) {
  ASSERT_TRUE(graph_.ParseFromString(serialize_function(every_op(variables_))));
  for (const char* op : {"ReadVariable", "AssignVariable", "AssignScatter"}) {
    SCOPED_TRACE(op);
    const std::string name = node(op).resource();
    node(op).clear_resource();
    expect_refused(Code::kInvalidArgument, "names no variable");
    node(op).set_resource(name);
  }
}

TEST_F(HostileGraph, WithAVariableThatNothingFinds) {
  const Error error = testing::error_of([&] { import_function(graph_bytes(graph_), nullptr); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.message();
}

void expect_data_loss(const std::string& bytes, const std::string& what,
                      const ResourceResolver& resolve) {
  try {
    import_function(bytes, resolve);
    ADD_FAILURE() << what << ": accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDataLoss) << what << ": " << error.message();
  }
}

TEST(DamagedGraph, EverySingleBitThatHasChangedIsNoticed) {
  GraphFunction f;
  const GraphScope scope(*f.graph);
  const Variables variables;
  f.outputs = {read_variable(variables.table) + constant(Tensor::full(DType::kFloat32, {4}, 1))};
  const std::string good = serialize_function(f);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= static_cast<char>(1 << bit % 8);
    expect_data_loss(bad, str("bit ", bit % 8, " of byte ", bit / 8), variables.resolver());
  }
  for (size_t size = 0; size < good.size(); ++size)
    expect_data_loss(good.substr(0, size), str("cut to ", size), variables.resolver());
}

// Imports bytes that may be anything: the only allowed failure is an error that blames them.
void expect_no_crash(const std::string& bytes, const ResourceResolver& resolve) {
  try {
    import_function(bytes, resolve);
  } catch (const Error& error) {
    EXPECT_NE(error.code(), Code::kInternal) << error.message();
  }
}

TEST(FuzzedGraph, OfRandomBytesChangedNeverCrashes) {
  const auto [seed, count] = testing::trials(7, 2000);
  SCOPED_TRACE(str("seed ", seed));
  const Variables variables;
  const std::string valid = serialize_function(every_op(variables));
  RandomStream random(seed);
  for (uint64_t round = 0; round < count; ++round) {
    std::string bytes = valid;
    for (uint64_t changes = 1 + random.below(3); changes > 0; --changes)
      bytes[random.below(bytes.size())] = static_cast<char>(random.next());
    if (random.below(4) == 0) bytes.resize(random.below(bytes.size()));
    proto::Graph graph;
    expect_no_crash(graph.ParseFromString(bytes) ? graph_bytes(graph) : bytes,
                    variables.resolver());
  }
}

int64_t extreme_number(RandomStream& random) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(),
                    kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kNumbers[] = {kMin,      kMin + 1,         -1,       0,        1,   2, 3,
                                  INT32_MAX, int64_t{1} << 32, kMax / 2, kMax - 1, kMax};
  return kNumbers[random.below(std::size(kNumbers))];
}

void mutate(proto::Attribute& attribute, RandomStream& random) {
  switch (attribute.value_case()) {
    case proto::Attribute::kInteger:
      return attribute.set_integer(extreme_number(random));
    case proto::Attribute::kNumber:
      return attribute.set_number(random.below(2) == 0 ? NAN : -1e308 * 10);
    case proto::Attribute::kText:
      return attribute.set_text(random.below(2) == 0 ? "Select" : "Cast");
    case proto::Attribute::kDtype:
      return attribute.set_dtype(static_cast<int>(random.below(9)));
    case proto::Attribute::kIntegers: {
      auto& values = *attribute.mutable_integers()->mutable_values();
      if (values.empty() || random.below(4) == 0) return values.Add(extreme_number(random));
      if (random.below(4) == 0) return values.RemoveLast();
      return values.Set(static_cast<int>(random.below(values.size())), extreme_number(random));
    }
    default:
      return attribute.set_flag(random.below(2) == 0);
  }
}

// One sensible-looking lie in each graph, deep inside the message: these reach the shape functions.
void mutate(proto::Graph& graph, RandomStream& random) {
  proto::Node& node = *graph.mutable_nodes(static_cast<int>(random.below(graph.nodes_size())));
  const uint64_t kind = random.below(4);
  if (kind == 0 && node.inputs_size() > 0) {
    node.mutable_inputs(static_cast<int>(random.below(node.inputs_size())))
        ->set_node(static_cast<int>(random.below(graph.nodes_size())));
  } else if (kind == 1 && node.inputs_size() > 0) {
    node.mutable_inputs()->RemoveLast();
  } else if (node.attributes_size() > 0) {
    mutate(*node.mutable_attributes(static_cast<int>(random.below(node.attributes_size()))),
           random);
  }
}

TEST(FuzzedGraph, OfFieldsChangedNeverCrashes) {
  const auto [seed, count] = testing::trials(11, 2000);
  SCOPED_TRACE(str("seed ", seed));
  const Variables variables;
  proto::Graph valid;
  ASSERT_TRUE(valid.ParseFromString(serialize_function(every_op(variables))));
  RandomStream random(seed);
  for (uint64_t round = 0; round < count; ++round) {
    proto::Graph graph = valid;
    mutate(graph, random);
    expect_no_crash(graph_bytes(graph), variables.resolver());
  }
}

}  // namespace
}  // namespace cohort
