#include "strategies/cross_device/buckets.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/runtime/profiler.h"
#include "strategies/mirrored_strategy.h"

namespace cohort {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

// Gradients that become ready in the order of `elements`, given to the reduction in the reverse
// order; the numbers of elements in each bucket, in the order in which they start.
std::vector<std::vector<int64_t>> buckets(const std::vector<TensorSpec>& specs,
                                          const CommunicationOptions& options = {}) {
  Graph graph;
  const GraphScope scope(graph);
  std::vector<Gradient> gradients;
  for (const TensorSpec& spec : specs)
    gradients.insert(gradients.begin(), {.values = ops::softmax(graph.add_input("x", spec))});
  const auto reduced = reduce_in_buckets(gradients, options, {});
  for (size_t i = 0; i < gradients.size(); ++i)
    EXPECT_EQ(reduced[i].values.spec(), gradients[i].values.spec());
  std::vector<std::vector<int64_t>> result;
  for (const auto& node : graph.nodes()) {
    if (!is_start(*node)) continue;
    result.emplace_back();
    for (const Value& input : node->inputs()) result.back().push_back(input.shape().num_elements());
  }
  return result;
}

std::vector<TensorSpec> floats(const std::vector<int64_t>& elements) {
  std::vector<TensorSpec> specs;
  for (const int64_t n : elements) specs.push_back({DType::kFloat32, {n}});
  return specs;
}

using Sizes = std::vector<std::vector<int64_t>>;

TEST(BucketsTest, AreFilledInTheOrderInWhichGradientsBecomeReady) {
  EXPECT_EQ(buckets(floats({3, 1, 4, 1, 5}), {.bytes_per_pack = 16}), (Sizes{{3, 1}, {4}, {1, 5}}));
  EXPECT_EQ(buckets(floats({3, 1, 4, 1, 5}), {.bytes_per_pack = 1}),
            (Sizes{{3}, {1}, {4}, {1}, {5}}));
  EXPECT_EQ(buckets(floats({3, 1, 4, 1, 5}), {.bytes_per_pack = kMegabyte}),
            (Sizes{{3, 1, 4, 1, 5}}));
}

TEST(BucketsTest, TheFirstIsSmallWhereTheSizeIsLeftToChoose) {
  const int64_t quarter = kMegabyte / 16;  // of a megabyte
  const std::vector<int64_t> gradients(40, quarter);
  const auto sizes = buckets(floats(gradients));
  ASSERT_EQ(sizes.size(), 3u);
  EXPECT_EQ(sizes[0].size(), 4u);   // 1 MiB
  EXPECT_EQ(sizes[1].size(), 32u);  // 8 MiB
  EXPECT_EQ(sizes[2].size(), 4u);
}

TEST(BucketsTest, HoldOneDType) {
  const std::vector<TensorSpec> specs = {{DType::kFloat32, {2}},
                                         {DType::kFloat64, {3}},
                                         {DType::kFloat32, {4}},
                                         {DType::kFloat64, {5}},
                                         {DType::kFloat32, {6}}};
  EXPECT_EQ(buckets(specs), (Sizes{{3, 5}, {2, 4, 6}}));
  // 24 bytes complete a bucket: {2, 4} of float32 after the third gradient.
  EXPECT_EQ(buckets(specs, {.bytes_per_pack = 24}), (Sizes{{3}, {2, 4}, {5}, {6}}));
}

TEST(BucketsTest, ALackOfGradientsStaysOne) {
  Graph graph;
  const GraphScope scope(graph);
  const Value g = graph.add_input("g", {DType::kFloat32, {2}});
  const auto reduced = reduce_in_buckets({{}, {.values = g}, {}}, {}, {});
  EXPECT_FALSE(reduced[0]);
  EXPECT_TRUE(reduced[1]);
  EXPECT_FALSE(reduced[2]);
  const size_t nodes = graph.nodes().size();
  EXPECT_FALSE(reduce_in_buckets({{}}, {}, {})[0]);
  EXPECT_EQ(graph.nodes().size(), nodes);
}

TEST(BucketsTest, UnderAConditionSlicesAreReducedDenseBecauseGatheringThemCannotBeLeftOut) {
  Graph graph;
  const GraphScope scope(graph);
  const Value rows = graph.add_input("rows", {DType::kFloat32, {3, 2}});
  const Value indices = graph.add_input("indices", {DType::kInt64, {3}});
  const Value when = graph.add_input("when", {DType::kBool, {}});
  const auto reduced = reduce_in_buckets({{rows, indices, 7}}, {}, when);
  EXPECT_FALSE(reduced[0].sparse());
  EXPECT_EQ(reduced[0].values.shape(), (Shape{7, 2}));
  for (const auto& node : graph.nodes()) EXPECT_NE(node->op().name, "AllGather");
}

// The gradients of a chain of products by square weights.
std::vector<Value> reduced_chain_gradients(Strategy& strategy, const std::vector<Value>& inputs) {
  const std::vector<Value> weights(inputs.begin() + 1, inputs.end());
  Value y = inputs[0];
  for (const Value& w : weights) y = ops::matmul(y, w);
  std::vector<Value> sums;
  for (const Gradient& d : strategy.reduce_gradients(gradients(ops::reduce_sum(y), weights)))
    sums.push_back(d.values);
  return sums;
}

bool reduced_before_the_backward_pass_ended(const Profiler& profiler) {
  std::map<int, Profiler::Clock::time_point> end;  // of the last product, by replica
  for (const auto& event : profiler.events())
    if (event.kind == "MatMul") end[event.replica] = std::max(end[event.replica], event.end);
  const auto events = profiler.events();
  return std::any_of(events.begin(), events.end(), [&](const auto& event) {
    return event.kind == "communication" && event.begin < end[event.replica];
  });
}

TEST(BucketsTest, AreReducedWhileTheBackwardPassGoesOn) {
  constexpr int64_t kSize = 192, kLayers = 12;
  set_logical_cpus(2, 1);
  MirroredStrategy strategy(
      {.devices = {"cpu:0", "cpu:1"}, .communication = {.bytes_per_pack = 1}});
  const Function step(
      [&](const std::vector<Value>& inputs) { return reduced_chain_gradients(strategy, inputs); });
  const std::vector<Tensor> inputs(kLayers + 1,
                                   Tensor::full(DType::kFloat32, {kSize, kSize}, 0.01));
  // A busy machine may let the background threads wait; not for ever.
  bool overlapped = false;
  const auto deadline = Profiler::Clock::now() + std::chrono::seconds(30);
  while (!overlapped && Profiler::Clock::now() < deadline) {
    const Profiler profiler;
    strategy.run(step, {inputs, inputs});
    overlapped = reduced_before_the_backward_pass_ended(profiler);
  }
  EXPECT_TRUE(overlapped) << "no reduction began before the backward pass had ended";
  set_logical_cpus(1);
}

}  // namespace
}  // namespace cohort
