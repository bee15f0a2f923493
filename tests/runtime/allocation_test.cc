#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <thread>

#include <gtest/gtest.h>

#include "core/collective/communicator.h"
#include "core/graph/gradients.h"
#include "core/nn/layers.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/optim/optimizers.h"
#include "core/runtime/function.h"
#include "core/runtime/plan.h"
#include "core/runtime/variable.h"
#include "core/tensor/specs_of.h"

// Counts the allocations of this process: C++'s through operator new, the tensors' through
// aligned_alloc.
namespace {
std::atomic<int64_t> allocations = 0;

// oneDNN makes a list of the arguments inside every execute: a few dozen bytes that nobody outside
// can spare it. What its general products pack operands into does not come from here.
bool is_in_onednn(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "libdnnl") != nullptr;
}
}  // namespace

void* operator new(size_t bytes) {
  if (!is_in_onednn(__builtin_return_address(0))) ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) {
  ++allocations;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

namespace cohort {
namespace {

std::shared_ptr<Variable> variable(const std::string& name, Shape shape) {
  return make_local_variable(
      {.name = name, .spec = {DType::kFloat32, shape}, .initial_value = [shape] {
         return Tensor::full(DType::kFloat32, shape, 0.01);
       }});
}

TEST(AllocationTest, TheCountersSeeTensorsAndVectors) {
  const int64_t before = allocations;
  const Tensor tensor(DType::kFloat32, {100});
  EXPECT_GE(allocations - before, 2) << "a tensor takes its memory and the record that owns it";
}

TEST(AllocationTest, ATrainingStepAllocatesNothingAfterTheFirst) {
  const std::vector<std::shared_ptr<Variable>> variables = {
      variable("filter", {3, 3, 2, 4}), variable("gamma", {4}), variable("beta", {4}),
      variable("w", {64, 10}), variable("b", {10})};
  GraphFunction step;
  {
    const GraphScope scope(*step.graph);
    const Value x = step.graph->add_input("x", {DType::kFloat32, {8, 8, 8, 2}});
    const Value labels = step.graph->add_input("labels", {DType::kInt32, {8}});
    std::vector<Value> v;
    for (const auto& variable : variables) v.push_back(variable->read());
    const auto norm =
        ops::batch_norm(ops::conv2d(x, v[0], {.padding = ops::Padding::same()}), v[1], v[2], 1e-3);
    const Value pooled = ops::max_pool2d(ops::relu(norm.y));
    const Value flat =
        pooled.graph().add("Reshape", {pooled}, {{"shape", std::vector<int64_t>{8, 64}}}).output();
    const Value loss =
        ops::reduce_mean(ops::sparse_softmax_cross_entropy(ops::matmul(flat, v[3]) + v[4], labels));
    const auto gradient = gradients(loss, v);
    for (size_t i = 0; i < v.size(); ++i) variables[i]->assign(v[i] - gradient[i].values * 0.01);
    step.outputs = {loss};
  }
  Plan plan(step, {});
  const std::vector<Tensor> feeds = {Tensor::full(DType::kFloat32, {8, 8, 8, 2}, 0.5),
                                     Tensor::zeros(DType::kInt32, {8})};
  std::vector<Tensor> outputs;
  plan.run(feeds, {}, outputs);
  const double first = outputs[0].item();
  const int64_t before = allocations;
  for (int i = 1; i <= 5; ++i) plan.run(feeds, {.step = i}, outputs);
  EXPECT_EQ(allocations - before, 0);
  EXPECT_LT(outputs[0].item(), first) << "the steps should have trained";
}

// A block of a GPT and what is around it. Positions are more than a block of attention, rows of the
// table come more than once.
TEST(AllocationTest, NorDoesOneInWhichAdamTrainsATransformer) {
  constexpr int64_t kBatch = 2, kLength = 130, kVocabulary = 11, kSize = 8;
  const nn::Layer network = nn::make_sequential(
      {nn::Embedding(kVocabulary, kSize), nn::PositionEmbedding(kLength),
       nn::Residual({nn::LayerNormalization(),
                     nn::MultiHeadAttention(2, 4, {.causal = true, .dropout = 0.1})}),
       nn::Residual({nn::LayerNormalization(), nn::Dense(4 * kSize, {.activation = nn::gelu}),
                     nn::Dense(kSize)}),
       nn::Dense(kVocabulary)});
  const optim::Optimizer optimizer = optim::Adam(0.02);
  const Function step([&](const std::vector<Value>& in) {
    const Value logits = network(in[0], {.training = true});
    const Value loss = ops::reduce_mean(ops::sparse_softmax_cross_entropy(logits, in[1]));
    optimizer.minimize(loss, network.trainable_variables());
    return std::vector<Value>{loss};
  });
  std::vector<Tensor> feeds = {Tensor(DType::kInt32, {kBatch, kLength}),
                               Tensor::full(DType::kInt32, {kBatch, kLength}, 3)};
  for (int64_t i = 0; i < kBatch * kLength; ++i)
    feeds[0].data<int32_t>()[i] = static_cast<int32_t>(i % kVocabulary);

  Plan plan(step.trace(specs_of(feeds)), {});
  std::vector<Tensor> outputs;
  plan.run(feeds, {}, outputs);
  const double first = outputs[0].item();
  const int64_t before = allocations;
  for (int i = 1; i <= 20; ++i) plan.run(feeds, {.step = i}, outputs);
  EXPECT_EQ(allocations - before, 0);
  EXPECT_LT(outputs[0].item(), first) << "the steps should have trained";
}

TEST(AllocationTest, NorDoesOneWhoseReplicasReduceBehindIt) {
  constexpr int kReplicas = 2, kSteps = 5;
  GraphFunction step;
  {
    const GraphScope scope(*step.graph);
    const Value x = step.graph->add_input("x", {DType::kFloat32, {8, 8}});
    const Value a = ops::softmax(x), b = ops::softmax(a);
    const Value first = ops::all_reduce_async({a}, ReduceOp::kSum)[0];
    const Value second = ops::all_reduce_async({b}, ReduceOp::kSum)[0];
    step.outputs = {first, second};
  }
  const auto communicators = make_in_process_communicators(kReplicas);
  std::barrier together(kReplicas);
  int64_t allocated = 0;
  const auto run = [&](int replica) {
    Plan plan(step, {.local_replica = replica});
    const std::vector<Tensor> feeds = {Tensor::full(DType::kFloat32, {8, 8}, 0.5)};
    const StepInfo info{.replica_id = replica,
                        .num_replicas = kReplicas,
                        .communicator = communicators[static_cast<size_t>(replica)].get()};
    std::vector<Tensor> outputs;
    plan.run(feeds, info, outputs);
    together.arrive_and_wait();
    const int64_t before = allocations;
    together.arrive_and_wait();
    for (int i = 0; i < kSteps; ++i) plan.run(feeds, info, outputs);
    together.arrive_and_wait();
    if (replica == 0) allocated = allocations - before;
    together.arrive_and_wait();
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(allocated, 0);
}

}  // namespace
}  // namespace cohort
