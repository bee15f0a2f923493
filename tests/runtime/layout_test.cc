#include "core/runtime/layout.h"

#include <random>

#include <gtest/gtest.h>

#include "core/base/threads.h"
#include "core/graph/gradients.h"
#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/state_ops.h"
#include "core/runtime/variable.h"
#include "core/tensor/specs_of.h"
#include "tests/runtime/trace.h"

namespace cohort {
namespace {

// A traced function with kernels, scheduled and laid out as a plan does it, without fusion.
class Placed {
 public:
  Placed(const std::vector<TensorSpec>& inputs, const Body& body) {
    function_ = copy_outlived_reads(schedule_collectives(trace(inputs, body)));
    for (const auto& node : function_.graph->nodes())
      if (!is_alias(*node) && !is_read(*node) && node->op().name != "Input" &&
          node->op().name != "Constant")
        schedule_.push_back({node.get(), kernel(*node)});
    layout_ = make_layout(function_, schedule_);
  }

  const Graph& graph() const { return *function_.graph; }
  const std::vector<Value>& outputs() const { return function_.outputs; }
  const std::vector<ScheduledKernel>& schedule() const { return schedule_; }
  const Layout& layout() const { return layout_; }
  const Location& at(const Value& value) const { return layout_.locations.at(value); }
  std::vector<Node*> nodes(const std::string& op) const {
    std::vector<Node*> found;
    for (const auto& node : function_.graph->nodes())
      if (node->op().name == op) found.push_back(node.get());
    return found;
  }

 private:
  static std::unique_ptr<Kernel> kernel(const Node& node) {
    KernelSpec spec{.op = node.op().name,
                    .inputs = specs_of(node.inputs()),
                    .outputs = node.outputs(),
                    .attributes = node.attributes(),
                    .num_threads = num_threads()};
    if (node.resource() != nullptr) spec.outputs = {node.resource()->spec()};
    return make_kernel(spec);
  }

  GraphFunction function_;
  std::vector<ScheduledKernel> schedule_;
  Layout layout_;
};

TensorSpec matrix(int64_t rows, int64_t columns) { return {DType::kFloat32, {rows, columns}}; }

// Expects the results of `start` side by side, in order, each aligned.
void expect_bucket(const Placed& placed, Node& start) {
  const int count = static_cast<int>(start.outputs().size()) - 1;
  size_t offset = placed.at(start.output(0)).offset;
  for (int i = 0; i < count; ++i) {
    const Location& place = placed.at(start.output(i));
    EXPECT_EQ(place.kind, Location::Kind::kArena);
    EXPECT_EQ(place.offset, offset) << "value " << i;
    offset += aligned_size(start.outputs()[static_cast<size_t>(i)].bytes());
  }
}

TEST(LayoutTest, KernelsWriteWhatIsReducedSideBySide) {
  const Placed placed({matrix(3, 5), matrix(5, 7)}, [](auto& x) {
    const Value product = ops::matmul(x[0], x[1]), row = ops::reduce_sum(product, {0});
    const Value rows = ops::reshape(ops::softmax(product), {21});
    return ops::all_reduce_async({rows, row, product}, ReduceOp::kSum);
  });
  Node& start = *placed.nodes("AllReduceStart").at(0);
  Node& wait = *placed.nodes("AllReduceWait").at(0);
  expect_bucket(placed, start);
  for (int i = 0; i < 3; ++i) {
    const size_t offset = placed.at(start.output(i)).offset;
    EXPECT_EQ(placed.at(start.inputs()[static_cast<size_t>(i)]).offset, offset) << "value " << i;
    EXPECT_EQ(placed.at(wait.output(i)).offset, offset) << "value " << i;
  }
}

TEST(LayoutTest, WhatIsNeededUnreducedIsKeptBesideItsBucket) {
  const Placed placed({matrix(3, 5)}, [](auto& x) {
    const Value a = ops::softmax(x[0]), b = ops::reduce_sum(x[0]);
    const auto sums = ops::all_reduce_async({a, b}, ReduceOp::kSum);
    return std::vector<Value>{sums[0] - a, sums[1]};
  });
  Node& start = *placed.nodes("AllReduceStart").at(0);
  expect_bucket(placed, start);
  EXPECT_NE(placed.at(start.inputs()[0]).offset, placed.at(start.output(0)).offset);
  EXPECT_EQ(placed.at(start.inputs()[1]).offset, placed.at(start.output(1)).offset);
}

TEST(LayoutTest, AValueReducedTwiceInOneBucketHasTwoPlaces) {
  const Placed placed({matrix(3, 5)}, [](auto& x) {
    const Value a = ops::softmax(x[0]);
    return ops::all_reduce_async({a, a}, ReduceOp::kSum);
  });
  expect_bucket(placed, *placed.nodes("AllReduceStart").at(0));
}

TEST(LayoutTest, AReducedValueMayBeReducedAgain) {
  const Placed placed({matrix(3, 5)}, [](auto& x) {
    const Value a = ops::softmax(x[0]), b = ops::softmax(a * 2.0);
    const auto first = ops::all_reduce_async({a, b}, ReduceOp::kSum);
    return ops::all_reduce_async({first[1], first[0]}, ReduceOp::kMax);
  });
  for (Node* start : placed.nodes("AllReduceStart")) expect_bucket(placed, *start);
}

std::shared_ptr<Variable> variable(const std::string& name, Shape shape) {
  return make_local_variable(
      {.name = name, .spec = {DType::kFloat32, shape}, .initial_value = [shape] {
         return Tensor::zeros(DType::kFloat32, shape);
       }});
}

TEST(LayoutTest, NothingIsWrittenToAVariableBeforeTheBarrierInFrontOfItsAssignment) {
  const auto early = variable("early", {3, 5}), late = variable("late", {3, 5});
  const Placed placed({matrix(3, 5)}, [&](auto& x) {
    const Value before = ops::softmax(x[0]);
    ops::barrier();
    ops::assign(early, before);
    ops::assign(late, ops::softmax(x[0]));
    return std::vector<Value>{};
  });
  std::vector<const Resource*> in_place;
  for (const Node* node : placed.layout().elided) in_place.push_back(node->resource());
  EXPECT_EQ(in_place, std::vector<const Resource*>{late.get()});
}

TEST(LayoutTest, NothingIsWrittenToAVariableBeforeReplicasHaveMet) {
  const auto early = variable("early", {3, 5}), late = variable("late", {3, 5});
  const Placed placed({matrix(3, 5)}, [&](auto& x) {
    const Value before = ops::softmax(x[0]);
    const Value sum = ops::all_reduce_async({x[0]}, ReduceOp::kSum)[0];
    ops::assign(early, before);
    ops::assign(late, ops::softmax(sum));
    return std::vector<Value>{};
  });
  std::vector<const Resource*> in_place;
  for (const Node* node : placed.layout().elided) in_place.push_back(node->resource());
  EXPECT_EQ(in_place, std::vector<const Resource*>{late.get()});
}

TEST(LayoutTest, NothingIsWrittenToAVariableBeforeACheckInFrontOfItsAssignment) {
  const auto early = variable("early", {3, 5}), late = variable("late", {3, 5});
  const Placed placed({matrix(3, 5), {DType::kInt32, {2}}}, [&](auto& x) {
    const Value before = ops::softmax(x[0]), row = ops::gather(x[0], x[1]);
    ops::assign(early, before);
    ops::assign(late, ops::softmax(x[0]));
    return std::vector<Value>{row};
  });
  std::vector<const Resource*> in_place;
  for (const Node* node : placed.layout().elided) in_place.push_back(node->resource());
  EXPECT_EQ(in_place, std::vector<const Resource*>{late.get()});
}

// When the first one fails, parts of its result may have come.
TEST(LayoutTest, WhatReplicasMeetForFirstDoesNotComeIntoAVariable) {
  const auto first = variable("first", {3, 5}), second = variable("second", {3, 5});
  const Placed placed({matrix(3, 5)}, [&](auto& x) {
    ops::assign(first, ops::all_reduce({x[0]})[0]);
    ops::assign(second, ops::all_reduce({x[0]})[0]);
    return std::vector<Value>{};
  });
  std::vector<const Resource*> in_place;
  for (const Node* node : placed.layout().elided) in_place.push_back(node->resource());
  EXPECT_EQ(in_place, std::vector<const Resource*>{second.get()});
}

// A network of square layers; its gradients are reduced two at a time, or not at all.
std::vector<Value> train_layers(const std::vector<Value>& x, bool reduce) {
  const std::vector<Value> weights(x.begin() + 1, x.end());
  Value y = x[0];
  for (const Value& w : weights) y = ops::softmax(ops::matmul(y, w));
  std::vector<Value> sums;
  const auto d = gradients(ops::reduce_sum(y * y), weights);
  for (size_t i = d.size(); i > 0; i -= 2) {
    const std::vector<Value> pair = {d[i - 1].values, d[i - 2].values};
    for (const Value& sum : reduce ? ops::all_reduce_async(pair, ReduceOp::kSum) : pair)
      sums.push_back(ops::reduce_sum(sum));
  }
  return sums;
}

TEST(LayoutTest, BucketsTakeLittleMoreThanTheirValues) {
  constexpr int64_t kSize = 32, kLayers = 8;
  const std::vector<TensorSpec> inputs(kLayers + 1, matrix(kSize, kSize));
  const Placed reduced(inputs, [](auto& x) { return train_layers(x, true); });
  const Placed plain(inputs, [](auto& x) { return train_layers(x, false); });
  EXPECT_LE(reduced.layout().arena_bytes,
            plain.layout().arena_bytes + kLayers * matrix(kSize, kSize).bytes());
}

std::vector<Value> random_body(std::mt19937_64& random, const std::vector<Value>& inputs,
                               const std::shared_ptr<Variable>& v) {
  std::vector<Value> pool = inputs;
  const auto pick = [&] { return pool[random() % pool.size()]; };
  for (int i = 0; i < 40; ++i) {
    switch (random() % 8) {
      case 0:
        pool.push_back(ops::softmax(pick()));
        break;
      case 1:
        pool.push_back(ops::tanh(pick()));
        break;
      case 2:
        pool.push_back(pick() + pick());
        break;
      case 3:
        pool.push_back(ops::reshape(ops::reshape(pick(), {24}), {4, 6}));
        break;
      case 4:
        pool.push_back(ops::read_variable(v));
        break;
      case 5:
        ops::assign(v, pick());
        break;
      default:
        for (const Value& sum : ops::all_reduce_async({pick(), pick(), pick()}, ReduceOp::kSum))
          pool.push_back(sum);
    }
  }
  return {pick(), pick(), pool.back()};
}

// Walks through the schedule, remembering what each 64 bytes of the arena hold: every input must
// still be there when it is used, and what a start was given until its wait.
void expect_nothing_is_overwritten(const Placed& placed) {
  std::map<size_t, Value> holds;
  const auto for_each_piece = [&](const Value& value, const auto& action) {
    const Location& place = placed.at(value);
    if (place.kind != Location::Kind::kArena) return;
    ASSERT_LE(place.offset + value.spec().bytes(), placed.layout().arena_bytes);
    for (size_t at = 0; at < value.spec().bytes(); at += 64) action(place.offset + at);
  };
  const auto root = [](Value value) {
    while (is_alias(value.node())) value = value.node().inputs()[0];
    return value;
  };
  const auto expect_there = [&](const Value& value) {
    for_each_piece(value, [&](size_t at) {
      EXPECT_TRUE(holds[at].is_same(root(value))) << value.node().id();
    });
  };
  for (const ScheduledKernel& item : placed.schedule()) {
    for (const Value& input : item.node->inputs()) expect_there(input);
    if (item.node->resource() != nullptr) continue;
    for (int i = 0; i < static_cast<int>(item.node->outputs().size()); ++i) {
      const Value output(const_cast<Node*>(item.node), i);
      for_each_piece(output, [&](size_t at) { holds[at] = output; });
    }
  }
  for (const Value& output : placed.outputs()) expect_there(output);
}

TEST(LayoutTest, NoValueIsOverwrittenWhileItIsNeeded) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 100; ++round) {
    const auto v = variable("v", {4, 6});
    const Placed placed({matrix(4, 6), matrix(4, 6)},
                        [&](auto& x) { return random_body(random, x, v); });
    expect_nothing_is_overwritten(placed);
    for (Node* start : placed.nodes("AllReduceStart")) expect_bucket(placed, *start);
    if (testing::Test::HasFailure()) FAIL() << "round " << round << "\n" << placed.graph();
  }
}

}  // namespace
}  // namespace cohort
