#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/state_ops.h"
#include "tests/testing/evaluate.h"

namespace cohort {
namespace {

using namespace ops;
using testing::TestVariable;

std::shared_ptr<TestVariable> variable(const std::string& name) {
  return std::make_shared<TestVariable>(name, Tensor::zeros(DType::kFloat32, {2, 2}));
}

// The ops of a function in their order, but for inputs, constants, reads and aliases, which take no
// time; nodes with a resource as "op name".
std::vector<std::string> schedule(const GraphFunction& function) {
  std::vector<std::string> ops;
  for (const auto& node : function.graph->nodes()) {
    const std::string& op = node->op().name;
    if (op == "Input" || op == "Constant" || is_read(*node) || is_alias(*node)) continue;
    ops.push_back(node->resource() == nullptr ? op : str(op, " ", node->resource()->name()));
  }
  return ops;
}

using Names = std::vector<std::string>;

class ScheduleCollectives : public ::testing::Test {
 protected:
  Value input(Shape shape = {2, 2}) {
    return traced_.graph->add_input("x", {DType::kFloat32, shape});
  }
  Value reduced(const Value& value) { return all_reduce_async({value}, ReduceOp::kSum)[0]; }

  GraphFunction traced_;
  GraphScope scope_{*traced_.graph};
};

TEST_F(ScheduleCollectives, StartsWhenTheLastInputIsThereAndWaitsAtTheFirstUse) {
  const Value x = input(), a = matmul(x, x), b = softmax(a), c = reduce_sum(b, {0});
  const auto sums = all_reduce_async({a, b}, ReduceOp::kSum);
  const Value last = reduced(c);
  traced_.outputs = {matmul(sums[0], sums[1]), softmax(last)};
  EXPECT_EQ(schedule(schedule_collectives(traced_)),
            (Names{"MatMul", "Softmax", "AllReduceStart", "ReduceSum", "AllReduceStart",
                   "AllReduceWait", "MatMul", "AllReduceWait", "Softmax"}));
}

TEST_F(ScheduleCollectives, TakesAlongWhatFinishesAGradientAndWhatFollowsItsSum) {
  const auto w = variable("w"), v = variable("v");
  const Value x = input(), a = matmul(x, x), b = softmax(a);
  const Value decayed = a * 0.5 + read_variable(w);  // after the last softmax
  const Value sum = reduced(decayed), other = reduced(b);
  const Value clipped = clip(sum, -1, 1), doubled = other * 2.0;
  assign(w, reshape(reshape(clipped, {4}), {2, 2}));
  assign(v, doubled);
  EXPECT_EQ(schedule(schedule_collectives(traced_)),
            (Names{"MatMul", "Mul", "Add", "AllReduceStart", "Softmax", "AllReduceStart",
                   "AllReduceWait", "Maximum", "Minimum", "AssignVariable w", "AllReduceWait",
                   "Mul", "AssignVariable v"}));
}

TEST_F(ScheduleCollectives, StartsStayInTheirOrder) {
  const Value x = input(), early = matmul(x, x), late = softmax(early);
  const Value first = reduced(late), second = reduced(reduce_sum(early, {0}));
  traced_.outputs = {first, second};
  const auto scheduled = schedule_collectives(traced_);
  std::vector<Shape> starts;
  for (const auto& node : scheduled.graph->nodes())
    if (is_start(*node)) starts.push_back(node->outputs()[0].shape);
  EXPECT_EQ(starts, (std::vector<Shape>{{2, 2}, {2}}));
}

TEST_F(ScheduleCollectives, AConditionMovesUpWithItsStart) {
  const auto count = std::make_shared<TestVariable>("count", Tensor::scalar(int64_t{0}));
  const Value x = input(), a = matmul(x, x), b = softmax(a);
  const Value calls = read_variable(count);
  assign(count, calls + 1.0);
  const Value when = equal(cast(calls, DType::kFloat64), constant(1, DType::kFloat64));
  traced_.outputs = {all_reduce_async({a}, ReduceOp::kSum, when)[0], b};
  EXPECT_EQ(schedule(schedule_collectives(traced_)),
            (Names{"MatMul", "Cast", "Equal", "AllReduceStart", "Softmax", "Add",
                   "AssignVariable count", "AllReduceWait"}));
}

TEST_F(ScheduleCollectives, AReadKeepsItsValueWhenWhatUsesItMoves) {
  const auto v = variable("v");
  const Value x = input(), sum = reduced(matmul(x, x));
  const Value before = sum + read_variable(v);  // must be computed before the write
  assign(v, softmax(x));
  const Value after = softmax(x) + read_variable(v);
  traced_.outputs = {before, reduced(after)};
  EXPECT_EQ(schedule(schedule_collectives(traced_)),
            (Names{"MatMul", "AllReduceStart", "Softmax", "AllReduceWait", "Add",
                   "AssignVariable v", "Softmax", "Add", "AllReduceStart", "AllReduceWait"}));
}

// One value is there before a blocking reduction, one after it; in a graph for one row `early` may
// be computed differently.
Names communication(bool one_row) {
  GraphFunction traced;
  const GraphScope scope(*traced.graph);
  const Value x = traced.graph->add_input("x", {DType::kFloat32, {2, 2}});
  const Value a = matmul(x, x);
  const Value blocking = all_reduce({softmax(x)})[0];
  const Value after = identity(one_row ? a : softmax(a));
  const Value sums = all_reduce_async({after}, ReduceOp::kMax)[0];
  traced.outputs = {blocking, sums};
  Names ops;
  const auto scheduled = schedule_collectives(traced);
  for (const auto& node : scheduled.graph->nodes())
    if (communicates(*node)) ops.push_back(node->op().name);
  return ops;
}

TEST_F(ScheduleCollectives, TheOrderOfCommunicationFollowsWhatWasTracedNotWhatAShapeNeeds) {
  EXPECT_EQ(communication(true), (Names{"AllReduce", "AllReduceStart", "AllReduceWait"}));
  EXPECT_EQ(communication(false), communication(true));
}

TEST_F(ScheduleCollectives, AStartGoesBeforeABlockingReductionThatItsValuesPrecede) {
  const Value x = input(), a = matmul(x, x), blocking = all_reduce({softmax(a)})[0];
  traced_.outputs = {blocking, reduced(a)};
  EXPECT_EQ(schedule(schedule_collectives(traced_)),
            (Names{"MatMul", "AllReduceStart", "Softmax", "AllReduce", "AllReduceWait"}));
}

TEST_F(ScheduleCollectives, AWriteStaysBehindTheFirstMeetingBeforeIt) {
  const auto w = variable("w"), v = variable("v");
  const Value x = input(), sum = reduced(matmul(x, x)), other = reduced(softmax(x));
  assign(w, read_variable(w) * 2.0);
  assign(v, other);
  traced_.outputs = {sum};
  EXPECT_EQ(schedule(schedule_collectives(traced_)),
            (Names{"MatMul", "AllReduceStart", "Softmax", "AllReduceStart", "Mul", "AllReduceWait",
                   "AssignVariable w", "AllReduceWait", "AssignVariable v"}));
}

TEST_F(ScheduleCollectives, AChainMayBeOfAnyLength) {
  const auto v = variable("v");
  const Value x = input();
  Value memory = read_variable(v), sum = reduced(x);
  for (int i = 0; i < 150'000; ++i) {
    memory = identity(memory);
    sum = identity(sum);
  }
  assign(v, sum);
  traced_.outputs = {memory};
  EXPECT_EQ(schedule(schedule_collectives(traced_)),
            (Names{"AllReduceStart", "AllReduceWait", "AssignVariable v"}));
}

// Random functions of products, sums, reads, writes and communication.
GraphFunction random_function(std::mt19937_64& random) {
  GraphFunction traced;
  const GraphScope scope(*traced.graph);
  const std::vector<std::shared_ptr<TestVariable>> variables = {variable("v"), variable("w")};
  std::vector<Value> pool = {traced.graph->add_input("x", {DType::kFloat32, {2, 2}})};
  const auto pick = [&] { return pool[random() % pool.size()]; };
  for (int i = 0; i < 40; ++i) {
    const auto& v = variables[random() % 2];
    switch (random() % 8) {
      case 0:
        pool.push_back(matmul(pick(), pick()));
        break;
      case 1:
        pool.push_back(pick() + pick());
        break;
      case 2:
        pool.push_back(read_variable(v));
        break;
      case 3:
        assign(v, pick());
        break;
      case 4:
        for (const Value& sum : all_reduce_async({pick(), pick()}, ReduceOp::kSum))
          pool.push_back(sum);
        break;
      case 5:
        pool.push_back(all_reduce({pick()})[0]);
        break;
      case 6:
        pool.push_back(reshape(reshape(pick(), {4}), {2, 2}));
        break;
      case 7:
        barrier();
        break;
    }
  }
  traced.outputs = {pick(), pick()};
  return traced;
}

// How often each op occurs, and the order of reads, writes and barriers, of starts, and of the
// other communication.
struct Effects {
  std::map<std::string, int> counts;
  Names writes, starts, blocking;
  bool operator==(const Effects&) const = default;
};

Effects effects_of(const GraphFunction& function) {
  Effects effects;
  for (const auto& node : function.graph->nodes()) {
    ++effects.counts[node->op().name];
    if (is_write(*node)) effects.writes.push_back(node->resource()->name());
    if (is_barrier(*node)) effects.writes.push_back("barrier");
    if (is_start(*node)) effects.starts.push_back(node->name());
    if (communicates(*node) && !is_start(*node) && !is_wait(*node))
      effects.blocking.push_back(node->op().name);
  }
  return effects;
}

TEST_F(ScheduleCollectives, LosesNothingAndKeepsTheOrderOfEffects) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const auto traced = random_function(random);
    EXPECT_EQ(effects_of(schedule_collectives(traced)), effects_of(traced)) << *traced.graph;
  }
}

TEST_F(ScheduleCollectives, LaterPassesKeepTheOrderOfCommunication) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto names = [](const GraphFunction& function) {
    Names ops;
    for (const auto& node : function.graph->nodes())
      if (communicates(*node)) ops.push_back(str(node->op().name, node->outputs().size()));
    return ops;
  };
  for (int round = 0; round < 200; ++round) {
    const auto traced = copy_outlived_reads(schedule_collectives(random_function(random)));
    const auto fused =
        fuse_updates(fuse_elementwise(fuse_batch_norm_activation(fuse_bias_activation(traced))));
    EXPECT_EQ(names(fused), names(traced)) << *traced.graph;
  }
}

using MeetBeforeWriting = ScheduleCollectives;

TEST_F(MeetBeforeWriting, WritesMoveBehindTheFirstMeetingWithWhatOnlyTheyNeed) {
  const auto w = variable("w"), v = variable("v");
  const Value x = input();
  assign(v, read_variable(v) + x);
  const Value again = traced_.graph->add("ReadVariable", {}, {}, v).output() * 3.0;
  const Value sum = reduced(matmul(x, x));
  assign(w, sum);
  traced_.outputs = {again};
  EXPECT_EQ(schedule(meet_before_writing(traced_)),
            (Names{"MatMul", "AllReduceStart", "AllReduceWait", "Add", "AssignVariable v", "Mul",
                   "AssignVariable w"}));
}

TEST_F(MeetBeforeWriting, ABarrierIsAddedWhereNothingElseMakesReplicasMeet) {
  const auto w = variable("w"), v = variable("v");
  const Value x = input(), when = equal(reduce_sum(x), constant(1, DType::kFloat32));
  assign(v, x);
  const Value a = matmul(x, x);
  assign(w, all_reduce_async({a}, ReduceOp::kSum, when)[0]);
  traced_.outputs = {softmax(a)};
  const auto met = meet_before_writing(traced_);
  EXPECT_EQ(schedule(met), (Names{"ReduceSum", "Equal", "MatMul", "AllReduceStart", "AllReduceWait",
                                  "Softmax", "Barrier", "AssignVariable v", "AssignVariable w"}));
  EXPECT_EQ(schedule(schedule_collectives(met)),
            (Names{"ReduceSum", "Equal", "MatMul", "AllReduceStart", "Softmax", "Barrier",
                   "AssignVariable v", "AllReduceWait", "AssignVariable w"}));
}

TEST_F(MeetBeforeWriting, AWriteStaysInFrontOfWhatNeedsIt) {
  const auto v = variable("v");
  const Value x = input();
  assign(v, x);
  const Value y = softmax(traced_.graph->add("ReadVariable", {}, {}, v).output());
  traced_.outputs = {reduced(y)};
  EXPECT_EQ(schedule(meet_before_writing(traced_)),
            (Names{"Barrier", "AssignVariable v", "Softmax", "AllReduceStart", "AllReduceWait"}));
}

TEST_F(MeetBeforeWriting, WhatWritesNothingStaysAsItIs) {
  const Value x = input(), y = softmax(x * 2.0);
  traced_.outputs = {y + x};
  EXPECT_EQ(schedule(meet_before_writing(traced_)), schedule(traced_));
}

TEST_F(MeetBeforeWriting, NoWriteOfAnyFunctionComesBeforeAMeeting) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const auto traced = random_function(random);
    const auto met = meet_before_writing(traced), scheduled = schedule_collectives(met);
    bool has_met = false;
    for (const auto& node : scheduled.graph->nodes()) {
      has_met = has_met || is_meeting(*node);
      EXPECT_TRUE(has_met || !is_write(*node)) << *traced.graph;
    }
    auto found = effects_of(met), expected = effects_of(traced);
    EXPECT_LE(found.counts["Barrier"], expected.counts["Barrier"] + 1) << *traced.graph;
    found.counts["Barrier"] = expected.counts["Barrier"];
    EXPECT_EQ(found.counts, expected.counts) << *traced.graph;
    EXPECT_EQ(found.starts, expected.starts) << *traced.graph;
  }
}

using MeetAs = ScheduleCollectives;

TEST_F(MeetAs, ABarrierIsBehindAllElseWhereThereAreNoFurtherCalls) {
  const Value x = input(), y = softmax(x),
              when = equal(reduce_sum(x), constant(1, DType::kFloat32));
  traced_.outputs = {all_reduce_async({y}, ReduceOp::kSum, when)[0]};
  const auto met = meet_as(traced_, traced_);
  EXPECT_EQ(schedule(met),
            (Names{"Softmax", "ReduceSum", "Equal", "AllReduceStart", "AllReduceWait", "Barrier"}));
  EXPECT_EQ(met.outputs[0].spec(), traced_.outputs[0].spec());
}

// An optimizer's step for variables whose gradients come in two buckets.
GraphFunction two_bucket_step(const std::vector<std::shared_ptr<TestVariable>>& variables) {
  GraphFunction traced;
  const GraphScope scope(*traced.graph);
  std::vector<Value> gradients;
  for (size_t i = 0; i < variables.size(); ++i)
    gradients.push_back(softmax(traced.graph->add_input("x", {DType::kFloat32, {2, 2}})));
  auto sums = all_reduce_async({gradients[0], gradients[1]}, ReduceOp::kSum);
  for (const Value& sum : all_reduce_async({gradients[2], gradients[3]}, ReduceOp::kSum))
    sums.push_back(sum);
  for (size_t i = 0; i < sums.size(); ++i) {
    const Value move = sums[i] * 0.1, kept = read_variable(variables[i]) * 0.9;
    assign(variables[i], kept - move);
  }
  return traced;
}

TEST(FuseUpdates, MakesOneGroupABucketWhichWaitsForNoOther) {
  std::vector<std::shared_ptr<TestVariable>> variables;
  for (const char* name : {"a", "b", "c", "d"}) variables.push_back(variable(name));
  const auto traced = two_bucket_step(variables);
  const auto fused = fuse_updates(fuse_elementwise(schedule_collectives(traced)));
  EXPECT_EQ(schedule(fused),
            (Names{"Softmax", "Softmax", "AllReduceStart", "Softmax", "Softmax", "AllReduceStart",
                   "AllReduceWait", "MultiElementwise", "AssignVariable a", "AssignVariable b",
                   "AllReduceWait", "MultiElementwise", "AssignVariable c", "AssignVariable d"}));
}

TEST(FuseElementwise, HoldsNoStartBack) {
  const auto v = variable("v");
  GraphFunction traced;
  const GraphScope scope(*traced.graph);
  const Value x = traced.graph->add_input("x", {DType::kFloat32, {2, 2}});
  const Value sum = read_variable(v) + softmax(x);  // a gradient that is accumulated
  traced.outputs = {softmax(sum), all_reduce_async({sum}, ReduceOp::kSum)[0]};
  assign(v, sum * 0.5);
  EXPECT_EQ(schedule(fuse_elementwise(schedule_collectives(traced))),
            (Names{"Softmax", "Add", "AllReduceStart", "Softmax", "Mul", "AllReduceWait",
                   "AssignVariable v"}));
}

// The square of this many steps would take minutes.
TEST(FuseElementwise, TakesTimeThatGrowsWithTheGraph) {
  constexpr int kMany = 100'000;
  GraphFunction traced;
  Value y = traced.graph->add_input("x", {DType::kFloat32, {2, 2}});
  for (int i = 0; i < kMany; ++i) y = softmax(neg(exp(y)));
  traced.outputs = {y};
  const auto fused = fuse_elementwise(traced);
  const auto& nodes = fused.graph->nodes();
  EXPECT_EQ(std::count_if(nodes.begin(), nodes.end(),
                          [](const auto& node) { return node->op().name == "FusedElementwise"; }),
            kMany);
}

TEST(Predecessors, ABarrierStaysBetweenWhatTouchesVariablesBeforeAndAfterIt) {
  const auto v = variable("v");
  GraphFunction traced;
  const GraphScope scope(*traced.graph);
  const Value x = traced.graph->add_input("x", {DType::kFloat32, {2, 2}});
  const Value use = softmax(reshape(read_variable(v), {4})), other = softmax(x);
  barrier();
  assign(v, x);
  barrier();
  const Value again = traced.graph->add("ReadVariable", {}, {}, v).output();
  traced.outputs = {use, other, again};
  const auto before = predecessors(traced);
  const auto follows = [&](const Node& node, const Node& other) {
    const auto& list = before[static_cast<size_t>(node.id())];
    return std::find(list.begin(), list.end(), &other) != list.end();
  };
  std::vector<const Node*> barriers;
  const Node* write = nullptr;
  for (const auto& node : traced.graph->nodes()) {
    if (is_barrier(*node)) barriers.push_back(node.get());
    if (is_write(*node)) write = node.get();
  }
  EXPECT_TRUE(follows(*barriers[0], use.node()));
  EXPECT_FALSE(follows(*barriers[0], other.node()));
  EXPECT_TRUE(follows(*write, *barriers[0]));
  EXPECT_TRUE(follows(*barriers[1], *write));
  EXPECT_TRUE(follows(*barriers[1], *barriers[0]));
  EXPECT_TRUE(follows(again.node(), *barriers[1]));
}

class PruneWrites : public ::testing::Test {
 protected:
  static GraphFunction pruned(const GraphFunction& function, const Resource& foreign) {
    return prune_writes(function, [&](const Resource& r) { return &r != &foreign; });
  }
  static std::vector<std::vector<int64_t>> unwanted(const GraphFunction& function) {
    std::vector<std::vector<int64_t>> lists;
    for (const auto& node : function.graph->nodes())
      if (is_start(*node))
        lists.push_back(node->attributes().get_or("unwanted", std::vector<int64_t>{}));
    return lists;
  }
};

TEST_F(PruneWrites, DropsThoseOfAnotherReplicaAndWhatOnlyTheyNeed) {
  std::vector<std::shared_ptr<TestVariable>> variables;
  for (const char* name : {"a", "b", "c", "d"}) variables.push_back(variable(name));
  const auto scheduled = schedule_collectives(two_bucket_step(variables));
  const auto without = pruned(scheduled, *variables[1]);
  EXPECT_EQ(schedule(without), (Names{"Softmax",
                                      "Softmax",
                                      "AllReduceStart",
                                      "Softmax",
                                      "Softmax",
                                      "AllReduceStart",
                                      "Mul",
                                      "AllReduceWait",
                                      "Mul",
                                      "Sub",
                                      "AssignVariable a",
                                      "Mul",
                                      "AllReduceWait",
                                      "Mul",
                                      "Sub",
                                      "AssignVariable c",
                                      "Mul",
                                      "Mul",
                                      "Sub",
                                      "AssignVariable d"}));
  EXPECT_EQ(unwanted(without), (std::vector<std::vector<int64_t>>{{1}, {}}));
  EXPECT_EQ(unwanted(scheduled), (std::vector<std::vector<int64_t>>{{}, {}}));
}

TEST_F(PruneWrites, KeepsWhatTheFunctionReturns) {
  const auto v = variable("v");
  GraphFunction traced;
  const GraphScope scope(*traced.graph);
  const Value x = traced.graph->add_input("x", {DType::kFloat32, {2, 2}});
  const Value sum = all_reduce_async({softmax(x)}, ReduceOp::kSum)[0], next = sum * 2.0;
  assign(v, next);
  traced.outputs = {next};
  const auto without = pruned(traced, *v);
  EXPECT_EQ(schedule(without), (Names{"Softmax", "AllReduceStart", "AllReduceWait", "Mul"}));
  EXPECT_EQ(unwanted(without), (std::vector<std::vector<int64_t>>{{}}));
}

}  // namespace
}  // namespace cohort
