#include <algorithm>
#include <atomic>
#include <cmath>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/base/cancellation.h"
#include "core/base/random.h"
#include "core/data/distributed_dataset.h"
#include "core/device/device_fetcher.h"
#include "core/graph/gradients.h"
#include "core/graph/op.h"
#include "core/kernels/kernel.h"
#include "core/nn/layers.h"
#include "core/nn/losses.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/random_ops.h"
#include "core/optim/optimizers.h"
#include "core/runtime/function.h"
#include "core/runtime/plan.h"
#include "core/runtime/profiler.h"
#include "core/runtime/variable.h"
#include "strategies/central_storage_strategy.h"
#include "strategies/mirrored_strategy.h"
#include "strategies/one_device_strategy.h"
#include "tests/runtime/gpu/two_gpus.h"
#include "tests/runtime/trace.h"
#include "tests/strategies/on_workers.h"

// What runs on cpu:n runs on gpu:n: plans, variables and strategies on devices with memory of their
// own. Two programs: one with simulated GPUs, for which the host's touching that memory is a
// segmentation fault, and one with two logical ones of a real card.
namespace cohort {
namespace {

constexpr uint64_t kSeed = 5;
constexpr Device kGpu{DeviceType::kGpu, 0};
constexpr size_t kMemory = 128 << 20;

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string kMissing = testing::make_two_gpus(kMemory);
    if (!kMissing.empty()) GTEST_SKIP() << kMissing;
  }
};

Tensor ramp(Shape shape, double scale = 1) {
  Tensor t(DType::kFloat32, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i) + 1) * scale);
  return t;
}

std::vector<double> to_vector(const Tensor& tensor) {
  const Tensor x = tensor.cast(DType::kFloat64);
  return {x.values<double>().begin(), x.values<double>().end()};
}

std::shared_ptr<Variable> variable(const Tensor& value, Device device) {
  return make_local_variable(
      {.name = "w", .spec = value.spec(), .initial_value = [value] { return value.clone(); }},
      device);
}

TEST_F(Gpu, RunsAPlanAgainAndAgainWithNewFeeds) {
  const auto traced = trace({{DType::kFloat32, {4, 3}}}, [](auto& x) {
    return std::vector<Value>{ops::softmax(x[0] * 2.0), ops::reduce_sum(x[0], {0}), x[0]};
  });
  Plan on_gpu(traced, {.device = kGpu}), on_cpu(traced, {});
  EXPECT_TRUE(on_gpu.stats().recorded);
  EXPECT_TRUE(on_gpu.stats().host_ops.empty());
  for (int run = 1; run <= 4; ++run) {  // the third is the first of a recording's replays alone
    const std::vector<Tensor> feeds = {ramp({4, 3}, run)};
    const auto got = on_gpu.run(feeds, {}), want = on_cpu.run(feeds, {});
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const auto a = to_vector(got[i]), b = to_vector(want[i]);
      for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-6) << "run " << run;
    }
  }
  EXPECT_TRUE(on_gpu.stats().recorded) << "a recording was refused";
}

// What the device has already stays what it was, whatever is done to the host's memory.
TEST_F(Gpu, FeedsThatWereFetchedAreNotSentAgain) {
  const TensorSpec spec{DType::kFloat32, {4, 3}};
  const auto traced = trace({spec, spec, spec, spec}, [](auto& x) {
    return std::vector<Value>{x[0] + 10.0 * x[1] + 100.0 * x[2] + 1000.0 * x[3]};
  });
  Plan on_gpu(traced, {.device = kGpu}), on_cpu(traced, {});
  DeviceFetcher fetcher(kGpu);
  for (int run = 0; run < 16; ++run) {  // each of the four is fetched, or not
    std::vector<Tensor> feeds;
    for (int i = 0; i < 4; ++i) feeds.push_back(ramp(spec.shape, run + 2 * i + 1));
    const auto want = to_vector(on_cpu.run(feeds, {})[0]);
    for (size_t i = 0; i < feeds.size(); ++i)
      if ((run >> i & 1) != 0) {
        feeds[i] = fetcher.fetch({feeds[i]})[0];
        std::fill_n(feeds[i].data<float>(), feeds[i].num_elements(), 0.0f);
      }
    const auto got = to_vector(on_gpu.run(feeds, {})[0]);
    for (size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(got[k], want[k], 0.05) << "run " << run;
  }
}

TEST_F(Gpu, BatchesAreFetchedToTheDevicesOfTheirReplicas) {
  const auto rows = data::from_tensor_slices({{"x", ramp({11, 3})}}).batch(4);
  MirroredStrategy strategy({.devices = {"gpu:0", "gpu:1"}});
  const auto devices = strategy.devices();
  for (const int64_t prefetch : {2, 0}) {
    int64_t steps = 0;
    for (const auto& batch : strategy.distribute_dataset(rows, {.prefetch = prefetch})) {
      ++steps;
      for (size_t r = 0; r < devices.size(); ++r) {
        const Tensor& x = batch[r]["x"];
        EXPECT_EQ(fetched(x, devices[r]) != nullptr, prefetch > 0);
        EXPECT_EQ(fetched(x, devices[1 - r]), nullptr);
        EXPECT_EQ(x.shape()[1], 3);
      }
    }
    EXPECT_EQ(steps, 3);
  }
  const auto total =
      strategy.function([](const BatchValues& batch) { return ops::reduce_sum(batch["x"]); });
  double sum = 0;
  for (const auto& batch : strategy.distribute_dataset(rows))
    sum += strategy.reduce("sum", strategy.run(total, batch)).item();
  double want = 0;
  for (const double x : to_vector(ramp({11, 3}))) want += x;
  EXPECT_NEAR(sum, want, 1e-5);
}

// Libraries refuse a workspace that is not aligned to 256 bytes.
TEST_F(Gpu, ScratchMemoryIsAlignedBehindAnArenaOfAnySize) {
  const auto traced = trace({{DType::kFloat32, {3, 3}}}, [](auto& x) {
    return std::vector<Value>{ops::matmul(ops::softmax(x[0]), x[0])};
  });
  Plan on_gpu(traced, {.device = kGpu}), on_cpu(traced, {});
  ASSERT_NE(on_gpu.stats().arena_bytes % 256, 0u);
  const std::vector<Tensor> feeds = {ramp({3, 3})};
  const auto got = to_vector(on_gpu.run(feeds, {})[0]), want = to_vector(on_cpu.run(feeds, {})[0]);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

TEST_F(Gpu, ResultsStayWhenThePlanRunsAgain) {
  const auto traced =
      trace({{DType::kFloat32, {2}}}, [](auto& x) { return std::vector<Value>{x[0] + 1.0}; });
  Plan plan(traced, {.device = kGpu});
  const auto first = plan.run(std::vector<Tensor>{ramp({2}, 1)}, {});
  const auto before = to_vector(first[0]);
  plan.run(std::vector<Tensor>{ramp({2}, 2)}, {});
  EXPECT_EQ(to_vector(first[0]), before);
}

TEST_F(Gpu, RandomNumbersFollowTheStepAlsoInARecording) {
  const auto traced = trace({}, [](auto&) {
    return std::vector<Value>{ops::random_uniform({64}),
                              ops::dropout(ops::random_normal({65}), 0.5)};
  });
  Plan on_gpu(traced, {.device = kGpu}), on_cpu(traced, {});
  EXPECT_TRUE(on_gpu.stats().recorded);
  std::vector<double> previous;
  for (int64_t step = 0; step < 4; ++step) {
    const StepInfo info{.seed = kSeed, .step = step};
    const auto got = on_gpu.run({}, info), want = on_cpu.run({}, info);
    for (size_t i = 0; i < got.size(); ++i) {
      const auto a = to_vector(got[i]), b = to_vector(want[i]);
      for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-5) << "step " << step;
    }
    EXPECT_NE(to_vector(got[0]), previous) << "step " << step;
    previous = to_vector(got[0]);
  }
}

// By the device's clock, in the host's time.
TEST_F(Gpu, AProfilerTimesKernelsInTheRowOfTheirStream) {
  constexpr auto kRounding = std::chrono::microseconds(2);  // events are half as exact
  const auto traced = trace({{DType::kFloat32, {8, 8}}}, [](auto& x) {
    return std::vector<Value>{ops::softmax(ops::matmul(ops::softmax(x[0]), x[0]))};
  });
  Plan plan(traced, {.device = kGpu});
  const std::vector<Tensor> feeds = {ramp({8, 8})};
  const auto want = to_vector(plan.run(feeds, {})[0]);
  for (int run = 0; run < 2; ++run) {
    const auto before = Profiler::Clock::now();
    const Profiler profiler;
    EXPECT_EQ(to_vector(plan.run(feeds, {})[0]), want);
    const auto after = Profiler::Clock::now();
    std::vector<std::string> kinds;
    auto last = before;
    for (const auto& event : profiler.events()) {
      kinds.push_back(event.kind);
      EXPECT_EQ(event.row, "gpu:0 computation");
      EXPECT_GE(event.begin, last - kRounding) << event.kind;
      EXPECT_GE(event.end, event.begin) << event.kind;
      last = event.end;
    }
    EXPECT_LE(last, after);
    EXPECT_EQ(kinds, (std::vector<std::string>{"Softmax", "MatMul", "Softmax"}));
  }
  EXPECT_EQ(to_vector(plan.run(feeds, {})[0]), want) << "recorded after it";
}

// Where the CPU would only widen what it reads.
TEST_F(Gpu, MixedPrecisionLowersAttentionAndItsGradient) {
  const TensorSpec spec{DType::kFloat32, {2, 16, 2, 8}};
  const auto traced = trace({spec, spec, spec}, [](auto& x) {
    const Value y = ops::scaled_dot_product_attention(x[0], x[1], x[2], {.causal = true});
    std::vector<Value> outputs = {y};
    for (const Gradient& g : gradients(ops::reduce_sum(y * y), {x[0], x[1], x[2]}))
      outputs.push_back(g.values);
    return outputs;
  });
  constexpr Precision kMixed = Precision::kMixedBFloat16;
  Plan exact(traced, {}), on_gpu(traced, {.device = kGpu, .precision = kMixed}),
      on_cpu(traced, {.precision = kMixed});
  const std::vector<Tensor> feeds = {ramp(spec.shape), ramp(spec.shape, 0.5),
                                     ramp(spec.shape, 0.9)};
  const auto want = exact.run(feeds, {}), lowered = on_gpu.run(feeds, {}),
             kept = on_cpu.run(feeds, {});
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(lowered[i].spec(), want[i].spec());
    const auto a = to_vector(want[i]), b = to_vector(lowered[i]);
    double difference = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      EXPECT_NEAR(b[k], a[k], 0.15) << "output " << i;
      difference = std::max(difference, std::abs(a[k] - b[k]));
    }
    EXPECT_GT(difference, 5e-5) << "output " << i << " was not rounded";
    EXPECT_EQ(to_vector(kept[i]), a) << "output " << i;
  }
}

bool is_bfloat16(const Tensor& tensor) {
  return to_vector(tensor.cast(DType::kBFloat16)) == to_vector(tensor);
}

// The libraries of GPUs have no convolutions of 16 bits that give float32.
TEST_F(Gpu, MixedPrecisionRoundsWhatConvolutionsAndTheirGradientsGive) {
  const TensorSpec image{DType::kFloat32, {2, 6, 6, 8}}, filter{DType::kFloat32, {3, 3, 8, 16}};
  const auto traced = trace({image, filter}, [](auto& x) {
    const Value y = ops::conv2d(x[0], x[1]);
    std::vector<Value> outputs = {y};
    for (const Gradient& g : gradients(ops::reduce_sum(y * y), {x[0], x[1]}))
      outputs.push_back(g.values);
    return outputs;
  });
  constexpr Precision kMixed = Precision::kMixedBFloat16;
  Plan exact(traced, {}), on_gpu(traced, {.device = kGpu, .precision = kMixed}),
      on_cpu(traced, {.precision = kMixed});
  const std::vector<Tensor> feeds = {ramp(image.shape), ramp(filter.shape, 0.1)};
  const auto want = exact.run(feeds, {}), got = on_gpu.run(feeds, {}), kept = on_cpu.run(feeds, {});
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(str("output ", i));
    EXPECT_EQ(got[i].spec(), want[i].spec());
    EXPECT_TRUE(is_bfloat16(got[i]));
    EXPECT_FALSE(is_bfloat16(kept[i]));
    const auto a = to_vector(want[i]), b = to_vector(got[i]);
    double magnitude = 1;
    for (const double x : a) magnitude = std::max(magnitude, std::abs(x));
    // Sums of 72 products, which cancel, of factors with 8 bits.
    for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(b[k], a[k], 0.04 * magnitude);
  }
}

TEST_F(Gpu, AWrongIndexIsTheSameErrorAndTheNextRunWorks) {
  const auto traced = trace({{DType::kFloat32, {3, 2}}, {DType::kInt32, {2}}},
                            [](auto& x) { return std::vector<Value>{ops::gather(x[0], x[1])}; });
  const auto error_of = [&](Plan& plan) {
    try {
      plan.run(std::vector<Tensor>{ramp({3, 2}), Tensor::from<int32_t>({1, 9}, {2})}, {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  Plan on_gpu(traced, {.device = kGpu}), on_cpu(traced, {});
  for (int run = 0; run < 3; ++run) {
    EXPECT_EQ(error_of(on_gpu), error_of(on_cpu));
    const auto good =
        on_gpu.run(std::vector<Tensor>{ramp({3, 2}), Tensor::from<int32_t>({1, 2}, {2})}, {});
    EXPECT_EQ(good[0].shape(), Shape({2, 2}));
  }
}

TEST_F(Gpu, ACancelledThreadBeginsNoStep) {
  const auto w = variable(Tensor::from<float>({1}, {1}), kGpu);
  const auto traced = trace({{DType::kFloat32, {1}}}, [&](auto& x) {
    w->assign_add(x[0]);
    return std::vector<Value>{w->read() * 2.0};
  });
  Plan plan(traced, {.device = kGpu});
  const std::vector<Tensor> feeds = {Tensor::from<float>({1}, {1})};
  for (int run = 1; run <= 3; ++run) {  // the third is replayed from a recording
    std::atomic<bool> cancelled = false;
    const CancelScope scope(cancelled);
    plan.run(feeds, {});
    cancelled = true;
    try {
      plan.run(feeds, {});
      ADD_FAILURE() << "it has run";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCancelled) << error.what();
    }
    cancelled = false;
    EXPECT_EQ(to_vector(w->value()), std::vector<double>{1.0 + run});
  }
}

void run_triple(const KernelCall& call, const KernelContext& context) {
  for (int64_t i = 0; i < call.input_specs[0].shape.num_elements(); ++i)
    context.output<float>(0)[i] = 3 * context.input<float>(0)[i];
}

COHORT_REGISTER_OP({.name = "TestTriple",
                    .num_inputs = 1,
                    .infer = [](const InferenceContext& c) { return c.inputs; },
                    .gradient = no_gradient});
COHORT_REGISTER_KERNEL("TestTriple", kCpu, stateless_kernel(run_triple));

TEST_F(Gpu, OpsWithoutAKernelRunOnTheHostAndAreNamed) {
  const auto traced = trace({{DType::kFloat32, {2, 5}}}, [](auto& x) {
    const Value y = x[0] * 3.0;
    return std::vector<Value>{y.graph().add("TestTriple", {y}).output() + 1.0};
  });
  Plan on_gpu(traced, {.device = kGpu}), on_cpu(traced, {});
  EXPECT_EQ(on_gpu.stats().host_ops, std::vector<std::string>{"TestTriple"});
  EXPECT_FALSE(on_gpu.stats().recorded);
  const std::vector<Tensor> feeds = {ramp({2, 5})};
  for (int run = 0; run < 3; ++run)
    EXPECT_EQ(to_vector(on_gpu.run(feeds, {})[0]), to_vector(on_cpu.run(feeds, {})[0]));
}

TEST_F(Gpu, CollectivesOfOneReplicaAreCopies) {
  const auto traced = trace({{DType::kFloat32, {2, 5}}}, [](auto& x) {
    const Value sum = ops::all_reduce({x[0] * 3.0})[0];
    const Value part = ops::reduce_scatter(ops::all_gather(sum, {2}) + 1.0, {2}, 2);
    return std::vector<Value>{ops::broadcast(part, 0) * 2.0, sum};
  });
  Plan on_gpu(traced, {.device = kGpu}), on_cpu(traced, {});
  EXPECT_TRUE(on_gpu.stats().host_ops.empty());
  const std::vector<Tensor> feeds = {ramp({2, 5})};
  for (int run = 0; run < 3; ++run) {
    const auto got = on_gpu.run(feeds, {}), want = on_cpu.run(feeds, {});
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(to_vector(got[i]), to_vector(want[i]));
  }
}

TEST_F(Gpu, AVariableIsReadAndWrittenFromOutside) {
  const auto w = variable(ramp({3}), kGpu);
  EXPECT_EQ(to_vector(w->value()), to_vector(ramp({3})));
  w->assign(Tensor::from<float>({1, 2, 3}, {3}));
  w->assign_add(Tensor::from<float>({10, 20, 30}, {3}));  // a function on the CPU
  EXPECT_EQ(to_vector(w->value()), (std::vector<double>{11, 22, 33}));
}

TEST_F(Gpu, APlanUpdatesVariablesWhereverTheyAre) {
  for (const Device home : {kGpu, Device{DeviceType::kGpu, 1}, Device{}}) {
    const auto w = variable(Tensor::from<float>({1, 2}, {2}), home);
    const auto traced = trace({{DType::kFloat32, {2}}}, [&](auto& x) {
      w->assign_add(x[0]);
      return std::vector<Value>{w->read() * 2.0};
    });
    Plan plan(traced, {.device = kGpu});
    const std::vector<Tensor> feeds = {Tensor::from<float>({1, 1}, {2})};
    for (int run = 1; run <= 3; ++run)
      EXPECT_EQ(to_vector(plan.run(feeds, {})[0]),
                (std::vector<double>{2.0 + 2 * run, 4.0 + 2 * run}))
          << home;
    EXPECT_EQ(to_vector(w->value()), (std::vector<double>{4, 5})) << home;
  }
}

TEST_F(Gpu, AVariableElsewhereIsReturnedAsItIs) {
  for (const auto& [home, device] : {std::pair(kGpu, Device{}), std::pair(Device{}, kGpu)}) {
    const auto w = variable(Tensor::from<float>({1, 2}, {2}), home);
    Plan plan(trace({}, [&](auto&) { return std::vector<Value>{w->read()}; }), {.device = device});
    for (const float x : {3.0f, 4.0f}) {
      w->assign(Tensor::from<float>({x, 5}, {2}));
      EXPECT_EQ(to_vector(plan.run({}, {})[0]), (std::vector<double>{x, 5})) << home;
    }
  }
}

// What the first replica has written the others read, in the same step and in the next.
TEST_F(Gpu, ReplicasShareOneCopyOfAVariableWhereverItIs) {
  constexpr int64_t kSize = 1 << 12;
  constexpr int kSteps = 5;
  const std::vector<std::vector<std::string>> replicas = {
      {"gpu:0", "gpu:1"}, {"gpu:1", "cpu:0"}, {"cpu:0", "gpu:0"}};
  for (const auto& devices : replicas)
    for (const char* home : {"cpu:0", "gpu:0", "gpu:1"}) {
      SCOPED_TRACE(str(devices[0], " and ", devices[1], ", by way of ", home));
      CentralStorageStrategy strategy({.compute_devices = devices, .parameter_device = home});
      const auto scope = strategy.scope();
      const auto w =
          create_variable({.name = "w", .spec = {DType::kFloat32, {kSize}}, .initial_value = [] {
                             return Tensor::zeros(DType::kFloat32, {kSize});
                           }});
      EXPECT_EQ(w->devices(), std::vector{parse_device(home)});
      const auto step = strategy.function([&](const Value& x) {
        const Value before = ops::reduce_sum(w->read());
        const auto sum = strategy.reduce_gradients({Gradient{.values = x}})[0].values;
        strategy.begin_update();
        w->update(w->read() + sum);
        strategy.end_update();
        return std::vector<Value>{before, ops::reduce_sum(w->read())};
      });
      for (int i = 0; i < kSteps; ++i) {
        const auto sums = strategy.run(step, Tensor::full(DType::kFloat32, {kSize}, 0.5));
        for (size_t r = 0; r < devices.size(); ++r) {
          ASSERT_EQ(sums[0][r].item(), static_cast<double>(i) * kSize) << "step " << i;
          ASSERT_EQ(sums[1][r].item(), static_cast<double>(i + 1) * kSize) << "step " << i;
        }
      }
      EXPECT_EQ(to_vector(w->value()), std::vector<double>(kSize, kSteps));
    }
}

TEST_F(Gpu, TooLargeAVariableIsNamedWithItsSize) {
  try {
    variable(Tensor(DType::kFloat32, {40 << 20}), kGpu);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
    EXPECT_NE(error.message().find("variable \"w\" needs 160.00 MiB on gpu:0"), std::string::npos)
        << error.what();
  }
}

// Initial values follow from names, which two networks of a test have in common therefore.
nn::Layer dense_network() {
  return nn::make_sequential({nn::Dense(8, {.activation = nn::relu, .name = "hidden"}),
                              nn::LayerNormalization(), nn::Dropout(0.2),
                              nn::Dense(3, {.name = "output"})});
}

nn::Layer convolutional_network() {
  return nn::make_sequential(
      {nn::Reshape({4, 4, 1}),
       nn::Conv2D(4, 3, {.padding = nn::Padding::same(), .use_bias = false, .name = "conv"}),
       nn::BatchNormalization(), nn::ActivationLayer(nn::relu), nn::MaxPool2D(), nn::Flatten(),
       nn::Dense(3, {.name = "output"})});
}

optim::Optimizer adam() { return optim::Adam(0.01); }
optim::Optimizer sgd() { return optim::SGD(0.1, {.momentum = 0.9}); }

// The losses of some steps on rows of 16 features in 3 classes.
std::vector<double> train(Strategy& strategy, nn::Layer (*make_network)(),
                          optim::Optimizer (*make_optimizer)()) {
  constexpr int64_t kRows = 8;
  const auto scope = strategy.scope();
  const optim::Optimizer optimizer = make_optimizer();
  const nn::Layer network = make_network();
  const Function step([&](const std::vector<Value>& in) {
    const Value y = network(in[0], {.training = true});
    const Value loss =
        ops::reduce_sum(losses::sparse_softmax_cross_entropy(y, in[1])) / double{kRows};
    optimizer.minimize(loss, network.trainable_variables());
    return std::vector<Value>{loss};
  });
  Tensor labels(DType::kInt32, {kRows});
  for (int64_t i = 0; i < kRows; ++i) labels.data<int32_t>()[i] = static_cast<int32_t>(i % 3);
  const auto inputs = strategy.split_batch({ramp({kRows, 16}), labels});
  std::vector<double> losses;
  for (int i = 0; i < 6; ++i) {
    double loss = 0;
    for (const auto& outputs : strategy.run(step, inputs)) loss += outputs[0].item();
    losses.push_back(loss);
  }
  return losses;
}

void expect_same_training(Strategy& on_gpu, Strategy& on_cpu, nn::Layer (*make_network)(),
                          optim::Optimizer (*make_optimizer)()) {
  const auto got = train(on_gpu, make_network, make_optimizer),
             want = train(on_cpu, make_network, make_optimizer);
  EXPECT_LT(want.back(), want.front());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-4) << "step " << i;
}

TEST_F(Gpu, TrainsADenseNetworkAsTheCpuDoes) {
  const auto gpu = OneDeviceStrategy("gpu:1"), cpu = OneDeviceStrategy("cpu:0");
  expect_same_training(*gpu, *cpu, dense_network, adam);
}

TEST_F(Gpu, TrainsAConvolutionalNetworkAsTheCpuDoes) {
  const auto gpu = OneDeviceStrategy("gpu:0"), cpu = OneDeviceStrategy("cpu:0");
  expect_same_training(*gpu, *cpu, convolutional_network, sgd);
}

TEST_F(Gpu, TrainsMirroredReplicasAsTheCpuDoes) {
  set_logical_cpus(2, 1);
  MirroredStrategy gpus({.devices = {"gpu:0", "gpu:1"}}), cpus({.devices = {"cpu:0", "cpu:1"}});
  expect_same_training(gpus, cpus, dense_network, adam);
  set_logical_cpus(1);
}

[[noreturn]] void train_and_tell_of_the_card(const std::string& device) {
  train(*OneDeviceStrategy(device), dense_network, adam);
  _exit(*testing::first_card_in_use() ? 1 : 0);
}

// In processes of their own, since other tests here have named both GPUs.
TEST(GpuDeathTest, ACardThatIsNotNamedIsNotTouched) {
  if (!testing::first_card_in_use()) GTEST_SKIP() << "no GPU: no card is in this machine";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(train_and_tell_of_the_card("cpu:0"), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(train_and_tell_of_the_card("gpu:0"), ::testing::ExitedWithCode(1), "");
}

// By the host's memory, of which it warns.
TEST_F(Gpu, TrainsReplicasOnAGpuAndACpuAsTheCpuDoes) {
  set_logical_cpus(2, 1);
  for (const auto& devices :
       {std::vector<std::string>{"gpu:0", "cpu:0"}, std::vector<std::string>{"cpu:0", "gpu:0"}}) {
    ::testing::internal::CaptureStderr();
    MirroredStrategy both({.devices = devices});
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("several kinds"), std::string::npos) << said;
    MirroredStrategy cpus({.devices = {"cpu:0", "cpu:1"}});
    expect_same_training(both, cpus, dense_network, adam);
    expect_same_training(both, cpus, convolutional_network, sgd);
  }
  set_logical_cpus(1);
}

// As batch normalisation's moving statistics are, and sums of gradients that accumulate.
TEST_F(Gpu, SeveralWorkersMergeWhatIsSynchronisedOnRead) {
  testing::on_good_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto make = [](const char* name, Aggregation aggregation) {
          return create_variable(
              {.name = name,
               .spec = {DType::kFloat32, {2}},
               .initial_value = [] { return Tensor::zeros(DType::kFloat32, {2}); },
               .synchronization = Synchronization::kOnRead,
               .aggregation = aggregation});
        };
        const auto sum = make("sum", Aggregation::kSum), mean = make("mean", Aggregation::kMean);
        const auto values = [](Strategy& s, float a, float b) {
          return s.distribute_values_from_function([=](const ValueContext&) {
            return Tensor::from<float>({a, b}, {2});
          });
        };
        const auto step = strategy.function([&](const Value& x) {
          sum->assign_add(x);
          mean->assign(x);
          return x;
        });
        const float own = strategy.is_chief() ? 1 : 10;
        strategy.run(step, values(strategy, own, 2 * own));
        EXPECT_EQ(to_vector(sum->value()), (std::vector<double>{11, 22}));
        EXPECT_EQ(to_vector(mean->value()), (std::vector<double>{5.5, 11}));
        sum->assign(Tensor::from<float>({8, 6}, {2}));
        EXPECT_EQ(to_vector(sum->value()), (std::vector<double>{8, 6}));
        strategy.run(step, values(strategy, 1, 1));
        EXPECT_EQ(to_vector(sum->value()), (std::vector<double>{10, 8}));
      },
      {.devices = {"gpu:0"}});
}

TEST_F(Gpu, TrainsSeveralWorkersWithBatchNormalisationAsTheCpuDoes) {
  const auto losses_on = [](const std::string& device) {
    std::vector<std::vector<double>> losses(2);
    testing::on_good_workers(2,
                             [&](MultiWorkerMirroredStrategy& strategy) {
                               losses[strategy.is_chief() ? 0 : 1] =
                                   train(strategy, convolutional_network, sgd);
                             },
                             {.devices = {device}});
    return losses;
  };
  const auto got = losses_on("gpu:0"), want = losses_on("cpu:0");
  for (size_t worker = 0; worker < want.size(); ++worker) {
    ASSERT_EQ(got[worker].size(), want[worker].size());
    for (size_t i = 0; i < want[worker].size(); ++i)
      EXPECT_NEAR(got[worker][i], want[worker][i], 2e-4) << "worker " << worker << ", step " << i;
  }
}

}  // namespace
}  // namespace cohort
