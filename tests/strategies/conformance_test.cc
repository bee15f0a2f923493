// What every strategy promises: the same program trains to the same numbers under each of them, for
// any number of replicas and rows. Three programs: on CPUs, on GPUs, which are simulated, and on
// logical GPUs of a card, all against one CPU.
#include <map>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "cohort.h"
#include "tests/strategies/conformance_programs.h"
#include "tests/strategies/tested_devices.h"
#include "tests/strategies/training_testing.h"

namespace cohort {
namespace {

using data::Batch;

constexpr int kMaxReplicas = 7;

struct Kind {
  std::string name;
  int replicas;  // of one worker
  int workers = 1;

  std::string text() const {
    return workers == 1 ? str(name, replicas) : str(name, workers, "x", replicas);
  }
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.text(); }

// The last replica of "CentralBesideCpu" is on a CPU.
std::vector<std::string> devices_of(const Kind& kind) {
  auto devices = device_names(kind.replicas, tested_devices());
  if (kind.name == "CentralBesideCpu") devices.back() = "cpu:0";
  return devices;
}

std::unique_ptr<Strategy> make_strategy(const Kind& kind) {
  const auto devices = devices_of(kind);
  if (kind.name == "OneDevice") return OneDeviceStrategy(devices[0]);
  if (kind.name.starts_with("Central"))
    return std::make_unique<CentralStorageStrategy>(
        CentralStorageStrategy::Options{.compute_devices = devices});
  if (kind.name.starts_with("Server")) {
    ParameterServerStrategy::Options options{.devices = devices,
                                             .partitioner = FixedShardsPartitioner(3)};
    if (kind.name == "ServerSynchronous") options.max_staleness = 0;
    return std::make_unique<ParameterServerStrategy>(options);
  }
  MirroredStrategy::Options options{.devices = devices};
  if (kind.name == "MirroredManyBuckets") options.communication.bytes_per_pack = 1;
  if (kind.name == "MirroredOneDeviceReduction") options.cross_device_ops = ReductionToOneDevice();
  return std::make_unique<MirroredStrategy>(options);
}

bool is_on_gpus() { return tested_devices() == DeviceType::kGpu; }

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds = {{"OneDevice", 1}};
  for (const char* name : {"Mirrored", "Central"})
    for (const int replicas : {1, 2, 3, 4, kMaxReplicas}) kinds.push_back({name, replicas});
  for (const char* name : {"MirroredManyBuckets", "MirroredOneDeviceReduction"})
    for (const int replicas : {2, 3}) kinds.push_back({name, replicas});
  for (const int replicas : {1, 2, 3}) kinds.push_back({"Server", replicas});
  kinds.push_back({"ServerSynchronous", 1});
  if (is_on_gpus()) kinds.push_back({"CentralBesideCpu", 2});
  for (const auto& [workers, replicas] :
       {std::pair(1, 2), std::pair(2, 1), std::pair(2, 2), std::pair(2, 4), std::pair(3, 1),
        std::pair(4, 2), std::pair(8, 1)})
    kinds.push_back({"Workers", replicas, workers});
  std::erase_if(kinds, [](const Kind& kind) {
    return kind.replicas * kind.workers > most_tested_replicas();
  });
  return kinds;
}

// Calls `body` with a strategy of this kind: on a thread for each worker, as its processes would.
void run_under(const Kind& kind, const std::function<void(Strategy&)>& body) {
  if (kind.name != "Workers") return body(*make_strategy(kind));
  std::vector<std::thread> threads;
  for (const auto& link : make_in_process_links(kind.workers))
    threads.emplace_back([&body, &kind, link] {
      try {
        MultiWorkerMirroredStrategy strategy({.devices = devices_of(kind), .link = link});
        body(strategy);
      } catch (const Error& error) {
        ADD_FAILURE() << link->name(link->rank()) << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

class ConformanceTest : public testing::TestWithParam<Kind> {
 protected:
  static void SetUpTestSuite() { make_tested_devices(kMaxReplicas); }
};
INSTANTIATE_TEST_SUITE_P(Strategies, ConformanceTest, testing::ValuesIn(all_kinds()),
                         [](const auto& info) { return info.param.text(); });

class DefaultDevicesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { make_tested_devices(kMaxReplicas); }
};

TEST_F(DefaultDevicesTest, AreTheGpusAndWhereThereAreNoneTheCpus) {
  std::vector<Device> expected = list_devices();
  const DeviceType last = expected.back().type;  // CPUs are listed first
  EXPECT_TRUE(!is_on_gpus() || last == DeviceType::kGpu);
  std::erase_if(expected, [&](const Device& device) { return device.type != last; });
  EXPECT_EQ(MirroredStrategy().devices(), expected);
  const CentralStorageStrategy central;
  EXPECT_EQ(central.devices(), expected);
  EXPECT_EQ(central.parameter_device(), expected.size() == 1 ? expected[0] : Device{});
}

// --- Training

const std::vector<int64_t> kBatchSizes = {13, 5, 13, 1, 13, 5};

Trained train(Strategy& strategy, DType dtype, const MakeProgram& make,
              const MakeOptimizer& make_optimizer,
              const std::vector<int64_t>& batch_sizes = kBatchSizes) {
  std::vector<Batch> batches;
  for (const int64_t rows : batch_sizes)
    batches.push_back(make_batch(dtype, rows, static_cast<int>(batches.size())));
  return train_on(strategy, make, make_optimizer, batches);
}

// Trains under the parameter's strategy and under the default one.
void expect_conformance(const Kind& kind, DType dtype, const MakeProgram& make,
                        const MakeOptimizer& make_optimizer, double tolerance,
                        const std::vector<int64_t>& batch_sizes = kBatchSizes) {
  const Trained expected = train(default_strategy(), dtype, make, make_optimizer, batch_sizes);
  run_under(kind, [&](Strategy& strategy) {
    expect_near(train(strategy, dtype, make, make_optimizer, batch_sizes), expected, tolerance);
  });
}

const std::vector<std::pair<std::string, MakeOptimizer>>& optimizers() {
  static const std::vector<std::pair<std::string, MakeOptimizer>> all = {
      {"SGD with momentum", [] { return optim::SGD(0.05, {.momentum = 0.9}); }},
      {"Adam", [] { return optim::Adam(0.02); }},
      {"SGD", [] { return optim::SGD(0.05); }},
      {"Adagrad", [] { return optim::Adagrad(0.1); }},
      {"clipped SGD", [] { return optim::SGD(0.1, {.gradients = {.global_clipnorm = 0.5}}); }}};
  return all;
}

TEST_P(ConformanceTest, TrainsAPerceptronLikeOneDevice) {
  for (const auto& [name, optimizer] : optimizers()) {
    SCOPED_TRACE(name);
    expect_conformance(
        GetParam(), DType::kFloat64,
        [] {
          return perceptron(DType::kFloat64, {5, 4});
        },
        optimizer, 1e-12);
  }
}

TEST_P(ConformanceTest, TrainsASparseEmbeddingLikeOneDevice) {
  for (const auto& [name, optimizer] : optimizers()) {
    SCOPED_TRACE(name);
    expect_conformance(
        GetParam(), DType::kFloat64, [] { return embedding(DType::kFloat64); }, optimizer, 1e-12);
    expect_conformance(
        GetParam(), DType::kFloat64, [] { return embedding_bag(DType::kFloat64); }, optimizer,
        1e-12);
  }
}

TEST_P(ConformanceTest, TrainsGroupsOfVariablesLikeOneDevice) {
  const auto grouped = [] {
    return optim::SGD(0.05, {.groups = {{.variables = {"table"}, .learning_rate_multiplier = 0.5},
                                        {.variables = {"kernel"}, .weight_decay = 0.5}}});
  };
  expect_conformance(
      GetParam(), DType::kFloat64, [] { return embedding(DType::kFloat64); }, grouped, 1e-12);
}

TEST_P(ConformanceTest, AccumulatesGradientsLikeOneDevice) {
  const auto accumulating = [] {
    return optim::SGD(
        0.05, {.momentum = 0.9, .gradients = {.global_clipnorm = 0.5, .accumulation_steps = 3}});
  };
  for (const auto& make :
       {+[] { return perceptron(DType::kFloat64); }, +[] { return embedding(DType::kFloat64); }})
    expect_conformance(GetParam(), DType::kFloat64, make, accumulating, 1e-12);
}

TEST_P(ConformanceTest, CompressesGradientsLikeOneDevice) {
  const auto compressing = [] {
    return optim::SGD(0.05, {.momentum = 0.9,
                             .gradients = {.power_sgd = optim::PowerSgdOptions{
                                               .start_iteration = 2, .min_compression = 1}}});
  };
  for (const auto& make :
       {+[] { return perceptron(DType::kFloat64); }, +[] { return embedding(DType::kFloat64); }})
    expect_conformance(GetParam(), DType::kFloat64, make, compressing, 1e-9);
}

const optim::GradientOptions kScaled = {.loss_scale = optim::LossScale{.dynamic_growth_steps = 2}};

// Powers of two leave no trace, however often the scale changes.
TEST_P(ConformanceTest, ScalesTheLossWithoutTrace) {
  for (const auto& make :
       {+[] { return perceptron(DType::kFloat64); }, +[] { return embedding(DType::kFloat64); }})
    for (const bool by_rows : {true, false}) {
      const auto optimizer = [&](optim::GradientOptions gradients) {
        gradients.global_clipnorm = 0.5;
        if (by_rows) return optim::Adagrad(0.1, {.gradients = gradients});
        gradients.accumulation_steps = 3;
        return optim::SGD(0.05, {.momentum = 0.9, .gradients = gradients});
      };
      const Trained expected =
          train(default_strategy(), DType::kFloat64, make, [&] { return optimizer({}); });
      run_under(GetParam(), [&](Strategy& strategy) {
        const auto scaled = [&] { return optimizer(kScaled); };
        expect_near(train(strategy, DType::kFloat64, make, scaled), expected, 1e-12);
      });
    }
}

// With one row that gives no finite gradient, which the last replica has.
Batch make_bad_batch() {
  Batch batch = make_batch(DType::kFloat64, 8, 2);
  Tensor y = batch["y"].clone();
  y.data<double>()[15] = std::numeric_limits<double>::infinity();
  batch.set("y", y);
  return batch;
}

// On four batches, of which the third is a bad one, or left out.
Trained train_past_bad_batch(Strategy& strategy, const MakeProgram& make,
                             const optim::Optimizer& optimizer, bool has_bad_batch = true) {
  const auto scope = strategy.scope();
  const Program program = make();
  const auto step = strategy.function([&](const BatchValues& batch) {
    optimizer.minimize(program.loss(batch), program.variables);
  });
  for (int i = 0; i < 4; ++i) {
    if (i == 2 && !has_bad_batch) continue;
    const Batch batch = i == 2 ? make_bad_batch() : make_batch(DType::kFloat64, 8, i);
    strategy.run(step, split(strategy, batch));
  }
  Trained trained;
  for (const auto& variable : program.variables) {
    expect_equal_copies(strategy, variable);
    trained.weights.push_back(variable->value());
  }
  return trained;
}

const std::vector<MakeProgram>& dense_and_sparse() {
  static const std::vector<MakeProgram> all = {[] { return perceptron(DType::kFloat64); },
                                               [] { return embedding(DType::kFloat64); }};
  return all;
}

// What is left of the training is as if the batch had not been there.
TEST_P(ConformanceTest, AGradientThatIsNotFiniteIsSkippedByAllReplicas) {
  for (const MakeProgram& make : dense_and_sparse())
    for (const bool by_rows : {true, false}) {
      const auto optimizer = [&](const optim::GradientOptions& gradients) {
        return by_rows ? optim::Adagrad(0.1, {.gradients = gradients})
                       : optim::Adam(0.02, {.gradients = gradients});
      };
      const Trained expected = train_past_bad_batch(default_strategy(), make, optimizer({}), false);
      run_under(GetParam(), [&](Strategy& strategy) {
        const optim::Optimizer scaled = optimizer({.loss_scale = optim::LossScale{}});
        expect_near(train_past_bad_batch(strategy, make, scaled), expected, 1e-12);
        const auto scope = strategy.scope();
        EXPECT_EQ(scaled.loss_scale(), 0x1p14);
        EXPECT_EQ(scaled.iterations()->value().item(), 4);
      });
      run_under(GetParam(), [&](Strategy& strategy) {
        const optim::Optimizer skipping = optimizer({.non_finite = optim::NonFinite::kSkip});
        expect_near(train_past_bad_batch(strategy, make, skipping), expected, 1e-12);
        const auto scope = strategy.scope();
        EXPECT_EQ(skipping.iterations()->value().item(), 4);
      });
    }
}

TEST_P(ConformanceTest, ZerosInTheGradientOfOneReplicaLeaveAllWithTheSameFiniteWeights) {
  for (const MakeProgram& make : dense_and_sparse())
    run_under(GetParam(), [&](Strategy& strategy) {
      const auto zeroing =
          optim::Adagrad(0.1, {.gradients = {.non_finite = optim::NonFinite::kZero}});
      const Trained trained = train_past_bad_batch(strategy, make, zeroing);
      for (const Tensor& values : trained.weights)
        for (const double value : values.values<double>()) ASSERT_TRUE(std::isfinite(value));
    });
}

TEST_P(ConformanceTest, AGradientThatIsNotFiniteIsAnErrorWhereItIsToBe) {
  const int replicas = GetParam().workers * GetParam().replicas;
  if (is_on_gpus() && GetParam().workers > 1)
    GTEST_SKIP() << "other workers' steps take place there, and their next one has the error";
  for (const MakeProgram& make : dense_and_sparse())
    run_under(GetParam(), [&](Strategy& strategy) {
      const auto strict = optim::SGD(0.1, {.gradients = {.non_finite = optim::NonFinite::kError}});
      try {
        train_past_bad_batch(strategy, make, strict);
        ADD_FAILURE() << "a gradient that is not finite was accepted";
      } catch (const Error& error) {
        const std::string message = error.message();
        EXPECT_EQ(error.code(), Code::kOutOfRange) << message;
        EXPECT_NE(message.find("the gradient of variable \""), std::string::npos) << message;
        const std::string place = str("on replica ", replicas - 1, " in step 2, counted from 0");
        EXPECT_EQ(message.find(place) != std::string::npos, replicas > 1) << message;
      }
    });
}

TEST_P(ConformanceTest, TrainsInFloat32LikeOneDevice) {
  const auto& [name, momentum] = optimizers()[0];
  expect_conformance(
      GetParam(), DType::kFloat32, [] { return perceptron(DType::kFloat32); }, momentum, 2e-6);
  expect_conformance(
      GetParam(), DType::kFloat32, [] { return embedding(DType::kFloat32); }, momentum, 2e-6);
}

TEST_P(ConformanceTest, SharedFrozenAndUnusedParameters) {
  testing::internal::CaptureStderr();
  expect_conformance(
      GetParam(), DType::kFloat64, [] { return odd_parameters(DType::kFloat64); },
      [] { return optim::SGD(0.05, {.momentum = 0.9}); }, 1e-12);
  const std::string said = testing::internal::GetCapturedStderr();
  int named = 0;
  for (size_t at = said.find("\"unused\""); at != said.npos; at = said.find("\"unused\"", at + 1))
    ++named;
  EXPECT_EQ(named, 1 + GetParam().workers) << "by the default strategy, and each worker: " << said;
  EXPECT_EQ(said.find("frozen"), std::string::npos) << said;
}

TEST_P(ConformanceTest, FewerRowsThanReplicas) {
  for (const int64_t rows : {1, 2, 6})
    expect_conformance(
        GetParam(), DType::kFloat64, [] { return perceptron(DType::kFloat64); },
        [] { return optim::Adam(0.01); }, 1e-12, {rows, rows});
}

TEST_P(ConformanceTest, AStepIsTracedForEachSizeOfPartOnly) {
  run_under(GetParam(), [](Strategy& strategy) {
    const auto scope = strategy.scope();
    const Program program = perceptron(DType::kFloat64);
    const auto optimizer = optim::SGD(0.1);
    int calls = 0;
    const auto step = strategy.function([&](const BatchValues& batch) {
      ++calls;
      const Value loss = program.loss(batch);
      optimizer.minimize(loss, program.variables);
      return loss;
    });
    const int64_t rows = 3 * strategy.num_replicas_in_sync();
    for (int i = 0; i < 10; ++i)
      strategy.run(step, split(strategy, make_batch(DType::kFloat64, rows, i)));
    EXPECT_EQ(calls, 1);
    strategy.run(step, split(strategy, make_batch(DType::kFloat64, rows - 1, 0)));
    const int traced = calls;
    for (int i = 0; i < 10; ++i)
      strategy.run(step, split(strategy, make_batch(DType::kFloat64, rows - 1, i)));
    EXPECT_EQ(calls, traced);
  });
}

// Two networks, each with an optimizer of its own, that learn against each other in one step.
TEST_P(ConformanceTest, TwoOptimizersInOneStep) {
  const auto compete = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    constexpr DType kDType = DType::kFloat64;
    const auto g = weight("generator", kDType, {3, 2}, 1),
               d = weight("discriminator", kDType, {2, 1}, 2);
    const auto g_optimizer = optim::Adam(0.01), d_optimizer = optim::SGD(0.05, {.momentum = 0.5});
    const auto step = strategy.function([&](const BatchValues& batch) {
      const double rows = static_cast<double>(batch.global_rows());
      const auto score = [&](const Value& x) { return ops::tanh(ops::matmul(x, d->read())); };
      const Value fake = ops::matmul(batch["x"], g->read());
      const Value gap = score(fake) - score(batch["y"]);
      const Value d_loss = ops::reduce_sum(gap) / rows, g_loss = ops::reduce_sum(gap * gap) / rows;
      const auto d_gradient = optim::gradients(d_loss, {d}),
                 g_gradient = optim::gradients(g_loss, {g});
      d_optimizer.apply_gradients(d_gradient, {d});
      g_optimizer.apply_gradients(g_gradient, {g});
      return std::vector<Value>{d_loss, g_loss};
    });
    Trained trained;
    for (int i = 0; i < 6; ++i) {
      const auto batch = split(strategy, make_batch(kDType, kBatchSizes[i], i));
      for (const auto& loss : strategy.run(step, batch))
        trained.losses.push_back(strategy.reduce("sum", loss).item());
    }
    for (const auto& variable : {g, d}) {
      expect_equal_copies(strategy, variable);
      trained.weights.push_back(variable->value());
    }
    return trained;
  };
  const Trained expected = compete(default_strategy());
  run_under(GetParam(),
            [&](Strategy& strategy) { expect_near(compete(strategy), expected, 1e-12); });
}

TEST_P(ConformanceTest, SeveralModelsAndStrategiesInOneProcess) {
  const auto make = [] { return perceptron(DType::kFloat64); };
  const auto optimizer = [] { return optim::SGD(0.05, {.momentum = 0.9}); };
  const Trained expected = train(default_strategy(), DType::kFloat64, make, optimizer);
  run_under(GetParam(), [&](Strategy& outer) {
    for (int round = 0; round < 2; ++round) {
      expect_near(train(outer, DType::kFloat64, make, optimizer), expected, 1e-12);
      for (const Kind& other : {Kind{"Mirrored", 2}, Kind{"Central", 3}, Kind{"Workers", 1, 2}})
        run_under(other, [&](Strategy& inner) {
          expect_near(train(inner, DType::kFloat64, make, optimizer), expected, 1e-12);
        });
    }
  });
}

// What training has left behind: variables by their names.
using Left = std::map<std::string, Tensor>;

// Looks rows of a table up, two for each replica, in steps of which some are tried in vain: the
// last replica is given a row that is not there.
Left look_up(Strategy& strategy, const optim::Optimizer& optimizer, int replicas, bool has_errors) {
  constexpr DType kDType = DType::kFloat64;
  const auto scope = strategy.scope();
  const auto make = [](const std::string& name, DType dtype, Synchronization synchronization,
                       Aggregation aggregation) {
    return create_variable({.name = name,
                            .spec = {dtype, {}},
                            .initial_value = [=] { return Tensor::full(dtype, {}, 0); },
                            .trainable = false,
                            .synchronization = synchronization,
                            .aggregation = aggregation});
  };
  const auto table = weight("table", kDType, {4, 2}, 1),
             kernel = weight("kernel", kDType, {2, 8}, 2),
             steps = make("steps", DType::kInt64, Synchronization::kAuto, Aggregation::kNone),
             total = make("total", kDType, Synchronization::kOnRead, Aggregation::kSum);
  const auto step = strategy.function([&](const BatchValues& batch) {
    const Value rows = ops::matmul(ops::gather(table->read(), batch["ids"]), kernel->read());
    Value loss = ops::reduce_sum(rows * rows) / static_cast<double>(batch.global_rows());
    steps->assign_add(ops::constant(1, DType::kInt64));
    total->assign_add(loss);
    optimizer.minimize(loss, {table, kernel});
    return loss;
  });
  for (int i = 0; i < 5; ++i) {
    Tensor ids(DType::kInt64, {2 * replicas});
    for (int k = 0; k < 2 * replicas; ++k) ids.data<int64_t>()[k] = (3 * i + k * k) % 4;
    for (int error = 0; has_errors && error < i % 3; ++error) {
      Tensor wrong = ids.clone();
      wrong.data<int64_t>()[2 * replicas - 1] = 4;
      try {
        strategy.run(step, split(strategy, Batch{{"ids", wrong}}));
        ADD_FAILURE() << "an id out of range was accepted";
      } catch (const Error& thrown) {
        EXPECT_EQ(thrown.code(), Code::kOutOfRange) << thrown.what();
      }
    }
    strategy.run(step, split(strategy, Batch{{"ids", ids}}));
  }
  std::vector<VariablePtr> all = optimizer.variables();
  all.insert(all.end(), {table, kernel, steps, total});
  Left left;
  for (const auto& variable : all) {
    if (variable->synchronization() != Synchronization::kOnRead && !variable->devices().empty())
      expect_equal_copies(strategy, variable);
    left[variable->name()] = variable->value();
  }
  return left;
}

TEST_P(ConformanceTest, AStepThatFailsChangesNothing) {
  if (is_on_gpus()) GTEST_SKIP() << "on GPUs the rest of a step takes place (docs/gpu.md)";
  const int replicas = GetParam().workers * GetParam().replicas;
  const std::vector<std::pair<std::string, MakeOptimizer>> all = {
      {"SGD", [] { return optim::SGD(0.05); }},
      {"Adam", [] { return optim::Adam(0.1); }},
      {"Adam that accumulates",
       [] { return optim::Adam(0.1, {.gradients = {.accumulation_steps = 2}}); }},
      {"SGD that compresses", [] {
         return optim::SGD(0.05, {.gradients = {.power_sgd = optim::PowerSgdOptions{
                                                    .start_iteration = 2, .min_compression = 1}}});
       }}};
  for (const auto& [name, make] : all) {
    SCOPED_TRACE(name);
    const Left expected = look_up(default_strategy(), make(), replicas, false);
    run_under(GetParam(), [&, &make = make](Strategy& strategy) {
      const Left found = look_up(strategy, make(), replicas, true);
      for (const auto& [variable, value] : expected) {
        SCOPED_TRACE(variable);
        ASSERT_TRUE(found.contains(variable));
        expect_near({{}, {found.at(variable)}}, {{}, {value}}, 1e-9);
      }
    });
  }
}

TEST_P(ConformanceTest, RandomProgramsTrainLikeOneDevice) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    std::vector<int64_t> hidden(static_cast<size_t>(pick(0, 3))), sizes(4);
    for (int64_t& width : hidden) width = pick(1, 9);
    for (int64_t& rows : sizes) rows = pick(1, 20);
    const auto& optimizer = optimizers()[static_cast<size_t>(pick(0, 4))].second;
    const int64_t kind = pick(0, 2);
    expect_conformance(
        GetParam(), DType::kFloat64,
        [&] {
          if (kind == 0) return embedding(DType::kFloat64);
          return perceptron(DType::kFloat64, hidden);
        },
        optimizer, 1e-11, sizes);
  }
}

// --- Through Model

struct Fitted {
  Trained trained;
  Tensor predicted;
  std::vector<double> accuracies;  // by weight in each epoch, then without and by weight
};

Fitted fit(Strategy& strategy) {
  const auto scope = strategy.scope();
  set_global_seed(3);
  auto model = nn::Sequential({nn::Dense(8, {.activation = nn::tanh}), nn::Dense(3)});
  model.compile({.optimizer = optim::Adam(0.01),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {metrics::SparseCategoricalAccuracy("accuracy")},
                 .weighted_metrics = {metrics::SparseCategoricalAccuracy("by_weight")}});
  constexpr int64_t kRows = 23;
  Tensor label(DType::kInt32, {kRows}), weights(DType::kFloat32, {kRows});
  for (int64_t i = 0; i < kRows; ++i) {
    label.data<int32_t>()[i] = static_cast<int32_t>(i * i % 3);
    weights.data<float>()[i] = static_cast<float>(i % 4);
  }
  const Tensor x = numbers(DType::kFloat32, {kRows, 4}, 1);
  const auto rows =
      data::from_tensor_slices({{"x", x}, {"label", label}, {"weight", weights}}).batch(8);
  const History history =
      model.fit(rows, {.epochs = 3, .verbose = Verbose::kSilent, .class_weight = {{1, 0.5}}});
  Fitted fitted;
  fitted.trained.losses = history["loss"];
  for (const auto& variable : model.variables()) {
    expect_equal_copies(strategy, variable);
    fitted.trained.weights.push_back(variable->value());
  }
  fitted.predicted = model.predict(x, {.batch_size = 5});
  const Logs logs = model.evaluate(rows);
  fitted.trained.losses.push_back(logs.at("loss"));
  fitted.accuracies = history["by_weight"];
  for (const char* name : {"accuracy", "by_weight"}) fitted.accuracies.push_back(logs.at(name));
  return fitted;
}

TEST_P(ConformanceTest, FitEvaluateAndPredictGiveTheNumbersOfOneDevice) {
  const Fitted expected = fit(default_strategy());
  run_under(GetParam(), [&](Strategy& strategy) {
    const Fitted found = fit(strategy);
    expect_near(found.trained, expected.trained, 1e-5);
    EXPECT_EQ(found.accuracies, expected.accuracies);
    ASSERT_EQ(found.predicted.shape(), expected.predicted.shape());
    for (int64_t i = 0; i < expected.predicted.num_elements(); ++i)
      EXPECT_NEAR(found.predicted.data<float>()[i], expected.predicted.data<float>()[i], 1e-4);
  });
}

// --- Functions in files

// Whose moving statistics each replica has of its own.
void expect_same_in_bytes(Strategy& strategy) {
  const Tensor x = numbers(DType::kFloat32, {32, 4}, 1), row = x.slice_rows(0, 1);
  std::map<std::string, Tensor> values;
  const auto find_variable = [&](const std::string& name) -> std::shared_ptr<Resource> {
    const auto found = values.find(name);
    if (found == values.end()) return nullptr;
    return make_local_variable({.name = name, .spec = found->second.spec(), .initial_value = [&] {
                                  return found->second;
                                }});
  };
  const auto scope = strategy.scope();
  Model model = nn::Sequential({nn::Dense(3), nn::BatchNormalization(), nn::Dense(1)});
  model.compile({.optimizer = optim::SGD(0.01), .loss = losses::MeanSquaredError()});
  model.fit(x, numbers(DType::kFloat32, {32, 1}, 2), {.verbose = Verbose::kSilent});
  const Function predict = function([&](Value v) { return model(v); });
  const std::string bytes = serialize_function(predict.trace({row.spec()}));
  for (const auto& variable : model.variables()) values[variable->name()] = variable->value();
  const double expected = model.predict(row).item();
  const GraphFunction loaded = import_function(bytes, find_variable);
  EXPECT_NEAR(Plan(loaded, {}).run(std::vector{row}, StepInfo{})[0].item(), expected, 1e-4);
  if (strategy.workers().size() > 1) return;
  EXPECT_NEAR(predict({row})[0].item(), expected, 1e-4);
  std::map<std::string, std::shared_ptr<Resource>> own;
  for (const auto& variable : model.variables()) own[variable->name()] = variable;
  const GraphFunction of_model =
      import_function(bytes, [&](const std::string& name) { return own.at(name); });
  EXPECT_NEAR(Plan(of_model, {}).run(std::vector{row}, StepInfo{})[0].item(), expected, 1e-4);
  for (const auto& variable : model.variables())
    if (variable->synchronization() == Synchronization::kOnRead)
      variable->assign(Tensor::full(DType::kFloat32, {3}, 7));
  EXPECT_NEAR(predict({row})[0].item(), model.predict(row).item(), 1e-4);
}

TEST_P(ConformanceTest, AFunctionInBytesGivesWhatTheModelPredicts) {
  run_under(GetParam(), expect_same_in_bytes);
}

}  // namespace
}  // namespace cohort
