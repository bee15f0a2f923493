// Training with parameter servers: several workers on threads, servers with ports of their own.
#include <atomic>
#include <cmath>
#include <thread>

#include "core/base/file.h"
#include "core/base/random.h"
#include "core/data/dataset.h"
#include "core/nn/layers.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/train/callbacks.h"
#include "core/train/model.h"
#include "core/train/safetensors.h"
#include "strategies/cluster/literal_resolver.h"
#include "strategies/mirrored_strategy.h"
#include "strategies/parameter_server_strategy.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

using Options = ParameterServerStrategy::Options;
using VariablePtr = std::shared_ptr<Variable>;

// Servers, and the workers that a test makes.
class Job {
 public:
  explicit Job(int servers, int workers, Options options = {})
      : options_(std::move(options)), workers_(workers) {
    options_.job_id = "job";
    options_.timeout = std::chrono::seconds(20);
    for (int s = 0; s < servers; ++s)
      servers_.push_back(std::make_unique<TestServer>(
          ParameterServerOptions{.consistency = {.max_staleness = options_.max_staleness,
                                                 .num_workers = workers,
                                                 .backup_workers = options_.backup_workers}}));
  }

  std::unique_ptr<ParameterServerStrategy> worker(int index, const Options* other = nullptr) const {
    ClusterSpec::Jobs jobs;
    for (const auto& server : servers_) jobs["ps"].push_back(server->address().text());
    for (int w = 0; w < workers_; ++w) jobs["worker"].push_back(str("127.0.0.1:", 1 + w));
    Options options = other != nullptr ? *other : options_;
    options.job_id = "job";
    options.resolver = std::make_shared<LiteralResolver>(
        ClusterSpec(jobs), LiteralResolverOptions{.task_type = "worker", .task_id = index});
    return std::make_unique<ParameterServerStrategy>(options);
  }
  // Runs `body` as each worker, on a thread of its own.
  void on_workers(const std::function<void(ParameterServerStrategy&)>& body) const {
    std::vector<std::thread> threads;
    for (int w = 0; w < workers_; ++w)
      threads.emplace_back([&, w] {
        try {
          const auto strategy = worker(w);
          const auto scope = strategy->scope();
          body(*strategy);
        } catch (const Error& error) {
          ADD_FAILURE() << "worker:" << w << ": " << error.what();
        }
      });
    for (auto& thread : threads) thread.join();
  }

  TestServer& server(int index) const { return *servers_[static_cast<size_t>(index)]; }
  uint64_t sum(uint64_t ServerStatistics::*member) const {
    uint64_t total = 0;
    for (const auto& server : servers_) total += (**server).statistics().*member;
    return total;
  }

 private:
  Options options_;
  const int workers_;
  std::vector<std::unique_ptr<TestServer>> servers_;
};

VariablePtr counting(const std::string& name, const Shape& shape) {
  return create_variable({.name = name, .spec = {DType::kFloat32, shape}, .initial_value = [=] {
                            Tensor t(DType::kFloat32, shape);
                            for (int64_t i = 0; i < t.num_elements(); ++i)
                              t.data<float>()[i] = static_cast<float>(i);
                            return t;
                          }});
}

ServerVariable& on_servers(const VariablePtr& variable) {
  return dynamic_cast<ServerVariable&>(*variable);
}

TEST(ServerVariable, IsCutIntoShardsAndReadAsOne) {
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(4)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {10});
  const auto shards = on_servers(v).shards();
  std::vector<std::vector<float>> values;
  std::vector<int> servers;
  std::vector<std::string> names;
  for (const auto& shard : shards) {
    values.push_back(values_of(shard.value));
    servers.push_back(shard.server);
    names.push_back(shard.name);
  }
  EXPECT_EQ(values, (std::vector<std::vector<float>>{{0, 1, 2}, {3, 4, 5}, {6, 7}, {8, 9}}));
  EXPECT_EQ(servers, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(names, (std::vector<std::string>{"v/part_0", "v/part_1", "v/part_2", "v/part_3"}));
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(ServerVariable, IsAssignedAddedToAndScatteredAcrossItsShards) {
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(3)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {4, 2});
  v->assign(Tensor::from<float>({4, 4, 5, 5, 6, 6, 7, 7}, {4, 2}));
  v->assign_add(Tensor::full(DType::kFloat32, {4, 2}, 2));
  v->assign_sub(Tensor::full(DType::kFloat32, {4, 2}, 1));
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{5, 5, 6, 6, 7, 7, 8, 8}));
  const Tensor rows = Tensor::from<int64_t>({3, 0}, {2}),
               twos = Tensor::full(DType::kFloat32, {2, 2}, 2);
  v->scatter(ScatterOp::kAdd, rows, twos);
  v->scatter(ScatterOp::kMul, rows, twos);
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{14, 14, 6, 6, 7, 7, 20, 20}));
  EXPECT_ERROR(v->assign(Tensor::zeros(DType::kFloat32, {4})), Code::kInvalidArgument, "\"v\"");
}

TEST(ServerVariable, ScalarsAndIntegersHaveOneShardAndCount) {
  const Job job(2, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto counter =
      create_variable({.name = "n", .spec = {DType::kInt64, {}}, .initial_value = [] {
                         return Tensor::scalar(int64_t{1} << 60);
                       }});
  EXPECT_EQ(on_servers(counter).info().num_shards(), 1u);
  for (int i = 0; i < 3; ++i) counter->assign_add(Tensor::scalar(int64_t{2}));
  EXPECT_EQ(counter->value().data<int64_t>()[0], (int64_t{1} << 60) + 6);
}

TEST(ServerVariable, SameNamesAreDifferentVariables) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto a = counting("v", {2}), b = counting("v", {3});
  a->assign(floats({5, 5}));
  EXPECT_EQ(values_of(b->value()), (std::vector<float>{0, 1, 2}));
}

TEST(Workers, ShareTheValuesOfWhoCameFirst) {
  const Job job(2, 2);
  const auto first = job.worker(0), second = job.worker(1);
  const auto make = [](ParameterServerStrategy& strategy, float value) {
    const auto scope = strategy.scope();
    return create_variable({.name = "v", .spec = {DType::kFloat32, {1}}, .initial_value = [=] {
                              return floats({value});
                            }});
  };
  const auto a = make(*first, 3), b = make(*second, 4);
  EXPECT_EQ(values_of(a->value())[0], 3);
  EXPECT_EQ(values_of(b->value())[0], 3);
}

TEST(Workers, EachAddsToTheSameVariable) {
  const Job job(1, 3);
  job.on_workers([](ParameterServerStrategy& strategy) {
    const auto v = create_variable({.name = "v",
                                    .spec = {DType::kFloat32, {}},
                                    .initial_value = [] { return Tensor::scalar(0.0f); },
                                    .aggregation = Aggregation::kOnlyFirstReplica});
    const auto step = strategy.function([&] { v->assign_add(ops::constant(2, DType::kFloat32)); });
    for (int i = 0; i < 5; ++i) strategy.run(step);
  });
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  EXPECT_EQ(counting("v", {})->value().item(), 30);
}

// --- Training

constexpr int64_t kRows = 48;

data::Dataset line(int64_t batch) {
  Tensor x(DType::kFloat32, {kRows, 3}), y(DType::kFloat32, {kRows, 1});
  RandomStream random(5);
  for (int64_t i = 0; i < kRows; ++i) {
    float sum = 0;
    for (int64_t c = 0; c < 3; ++c) {
      const auto value = static_cast<float>(random.uniform() - 0.5);
      x.data<float>()[3 * i + c] = value;
      sum += value * static_cast<float>(c + 1);
    }
    y.data<float>()[i] = sum;
  }
  return data::from_tensor_slices({{"x", x}, {"label", y}}).batch(batch);
}

Model line_model(const optim::Optimizer& optimizer) {
  set_global_seed(11);
  auto model = nn::Sequential({nn::Dense(4, {.activation = nn::tanh}), nn::Dense(1)});
  model.build({{DType::kFloat32, {1, 3}}});
  model.compile({.optimizer = optimizer, .loss = losses::MeanSquaredError()});
  return model;
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.spec(), expected.spec());
  const Tensor a = found.cast(DType::kFloat64), b = expected.cast(DType::kFloat64);
  for (int64_t i = 0; i < a.num_elements(); ++i)
    ASSERT_NEAR(a.data<double>()[i], b.data<double>()[i], tolerance) << "element " << i;
}

TEST(Training, SynchronousWorkersTakeTheMeanOfTheirGradients) {
  // Each of two workers has half of the elements: one with batches twice as large sees the same.
  Model alone = line_model(optim::Adam(0.01));
  alone.fit(line(8), {.epochs = 2, .verbose = Verbose::kSilent});
  const Job job(2, 2, {.max_staleness = 0, .partitioner = FixedShardsPartitioner(2)});
  std::vector<Tensor> weights(4);
  job.on_workers([&](ParameterServerStrategy& strategy) {
    Model model = line_model(optim::Adam(0.01));
    const History history = model.fit(line(4), {.epochs = 2, .verbose = Verbose::kSilent});
    EXPECT_EQ(history["late_updates"].back(), 0);
    EXPECT_EQ(model.optimizer().iterations()->value().item(), 2 * kRows / 8);
    if (strategy.is_chief())
      for (size_t i = 0; i < weights.size(); ++i) weights[i] = model.variables()[i]->value();
  });
  for (size_t i = 0; i < weights.size(); ++i)
    expect_near(weights[i], alone.variables()[i]->value(), 1e-5);
}

TEST(Training, AsynchronousWorkersLearnTogetherAndReportStaleness) {
  const Job job(2, 2);
  std::atomic<double> loss = 1;
  job.on_workers([&](ParameterServerStrategy& strategy) {
    Model model = line_model(optim::SGD(0.1, {.momentum = 0.5}));
    const History history = model.fit(line(4), {.epochs = 40, .verbose = Verbose::kSilent});
    EXPECT_EQ(history.epochs.size(), 40u) << "epochs count for each worker";
    EXPECT_GE(history["staleness"].back(), 0);
    EXPECT_GE(history["staleness_max"].back(), history["staleness"].back());
    EXPECT_EQ(history["lost_updates"].back(), 0);
    if (strategy.is_chief()) loss = model.evaluate(line(8)).at("loss");
  });
  EXPECT_LT(loss, 0.05);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  Model model = line_model(optim::SGD(0.1, {.momentum = 0.5}));
  model.optimizer().build(model.trainable_variables());
  EXPECT_EQ(model.optimizer().iterations()->value().item(), 2 * 40 * (kRows / 2 / 4))
      << "updates of both workers";
}

TEST(Training, WorkersReadTheirShareInBatchesOfTheirOwn) {
  const Job job(1, 2);
  std::atomic<int64_t> rows = 0;
  job.on_workers([&](ParameterServerStrategy& strategy) {
    for (const auto& batch : strategy.distribute_dataset(line(8))) {
      EXPECT_EQ(batch.rows(), 8);
      rows += batch.rows();
    }
    Model model = line_model(optim::SGD(0.1));
    Tensor x(DType::kFloat32, {5, 3});
    EXPECT_EQ(model.predict(Tensor::zeros(DType::kFloat32, {5, 3})).shape()[0], 5)
        << "predict computes all rows on each worker";
  });
  EXPECT_EQ(rows, kRows);
}

TEST(Training, BoundedStalenessMakesAFastWorkerWait) {
  constexpr int64_t kBound = 2;
  const Job job(1, 2, {.max_staleness = kBound});
  std::atomic<int> fast = 0, slow = 0;
  const auto steps = [](ParameterServerStrategy& strategy, std::atomic<int>& done, int count,
                        const std::function<void(int)>& before) {
    const auto scope = strategy.scope();
    const auto v = counting("v", {3});
    const optim::Optimizer optimizer = optim::SGD(0.1);
    const auto step =
        strategy.function([&] { optimizer.minimize(ops::reduce_sum(v->read()), {v}); });
    for (int i = 0; i < count; ++i) {
      before(i);
      strategy.run(step);
      ++done;
    }
  };
  constexpr int kSteps = 12;
  const auto first = job.worker(0), second = job.worker(1);
  std::thread runner([&] {
    steps(*first, fast, kSteps, [&](int i) { EXPECT_LE(i - slow, kBound + 2) << "step " << i; });
  });
  steps(*second, slow, kSteps, [&](int i) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (fast < std::min<int>(i + kBound, kSteps) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_GE(fast, std::min<int>(i + kBound, kSteps))
        << "the fast one runs ahead as far as it may";
  });
  runner.join();
}

TEST(Training, AccumulationCountsEachWorkersOwnCalls) {
  const Job job(1, 2);
  job.on_workers([&](ParameterServerStrategy& strategy) {
    const auto v = counting("v", {1});
    const optim::Optimizer optimizer = optim::SGD(1.0, {.gradients = {.accumulation_steps = 3}});
    const auto step =
        strategy.function([&] { optimizer.minimize(ops::reduce_sum(v->read()), {v}); });
    for (int i = 0; i < 9; ++i) strategy.run(step);
  });
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {1});
  optim::SGD(1.0).build({v});
  EXPECT_EQ(values_of(v->value())[0], -6) << "two workers, three updates each, of the mean 1";
}

TEST(Training, CompressesGradientsAndNothingElse) {
  const Job job(1, 1, {.compression = {.kind = Compression::kOneBit}});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto counter = counting("n", {2});
  counter->assign_add(floats({0.25, 3}));
  EXPECT_EQ(values_of(counter->value()), (std::vector<float>{0.25, 4}));
  Model model = line_model(optim::SGD(0.1));
  const History history = model.fit(line(8), {.epochs = 20, .verbose = Verbose::kSilent});
  EXPECT_LT(history["loss"].back(), history["loss"].front() / 2);
  EXPECT_EQ(model.optimizer().iterations()->value().item(), 20 * kRows / 8);
}

TEST(Training, ACompiledModelIsCompiledAgainAndKeepsItsValues) {
  const Job job(2, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  Model model = line_model(optim::SGD(0.1));
  model.fit(line(8), {.epochs = 1, .verbose = Verbose::kSilent});
  const Tensor before = model.variables()[0]->value();
  model.compile({.optimizer = optim::Adam(0.01), .loss = losses::MeanSquaredError()});
  model.optimizer().build(model.trainable_variables());
  EXPECT_EQ(values_of(model.variables()[0]->value()), values_of(before));
  const History history = model.fit(line(8), {.epochs = 1, .verbose = Verbose::kSilent});
  EXPECT_EQ(history.epochs.size(), 1u);
  EXPECT_NE(values_of(model.variables()[0]->value()), values_of(before));
}

TEST(Training, AServersRestartIsWaitedForAndCounted) {
  const Folder folder;
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {1});
  const optim::Optimizer optimizer = optim::SGD(1.0);
  const auto step =
      strategy->function([&] { optimizer.minimize(ops::reduce_sum(v->read()), {v}); });
  strategy->run(step);
  strategy->snapshot(folder.path());
  for (int i = 0; i < 3; ++i) strategy->run(step);
  job.server(0).stop();
  job.server(0).start();
  strategy->session()->client(0).restore(folder.path() + "/ps-0");
  strategy->run(step);
  EXPECT_EQ(values_of(v->value())[0], -2) << "three updates are gone";
  EXPECT_EQ(strategy->take_report().numbers.at("lost_updates"), 6) << "of v and of iterations";
}

// --- Checkpoints

TEST(Checkpoints, FitAnyStrategyAndAnyNumberOfShards) {
  const Folder folder;
  const std::string path = folder.path() + "/model.safetensors";
  const auto optimizer = [] { return optim::RMSprop(0.01, {.momentum = 0.5}); };
  const auto trained = [&](Strategy& strategy, int epochs) {
    const auto scope = strategy.scope();
    Model model = line_model(optimizer());
    if (std::filesystem::exists(path)) model.load_checkpoint(path);
    model.fit(line(8), {.epochs = epochs, .verbose = Verbose::kSilent});
    model.save_checkpoint(path);
    std::vector<Tensor> values;
    for (const auto& variable : model.variables()) values.push_back(variable->value());
    return values;
  };
  const std::vector<Tensor> expected = trained(default_strategy(), 5);
  std::filesystem::remove(path);
  set_logical_cpus(2, 1);
  {
    MirroredStrategy mirrored({.devices = {"cpu:0", "cpu:1"}});
    trained(mirrored, 1);
  }
  std::vector<Tensor> values;
  for (const int shards : {4, 1, 2}) {
    const Job job(2, 1, {.partitioner = FixedShardsPartitioner(shards)});
    trained(*job.worker(0), 1);
  }
  {
    MirroredStrategy mirrored({.devices = {"cpu:0", "cpu:1"}});
    values = trained(mirrored, 1);
  }
  set_logical_cpus(1);
  for (size_t i = 0; i < values.size(); ++i) expect_near(values[i], expected[i], 1e-5);
  const Safetensors file = read_safetensors(path);
  EXPECT_TRUE(file.tensors.contains("dense/kernel"));
  EXPECT_TRUE(file.tensors.contains("optimizer/velocity/dense/kernel"));
  EXPECT_EQ(file.tensors.at("optimizer/iterations").item(), 5 * kRows / 8);
}

TEST(Checkpoints, AreLoadedByTheChiefAlone) {
  const Folder folder;
  const std::string path = folder.path() + "/weights.safetensors";
  const Job job(1, 2);
  const auto chief = job.worker(0), other = job.worker(1);
  const auto make = [](ParameterServerStrategy& strategy) {
    const auto scope = strategy.scope();
    return counting("v", {2});
  };
  const auto v = make(*chief), w = make(*other);
  save_variables(path, {v}, {}, chief->workers());
  v->assign(floats({7, 8}));
  load_variables(path, {w}, {}, other->workers());
  EXPECT_EQ(values_of(v->value())[0], 7) << "the others train already";
  load_variables(path, {v}, {}, chief->workers());
  EXPECT_EQ(values_of(w->value())[0], 0);
}

TEST(Checkpoints, ABackupGivesAChiefItsPlaceAndNotTheWeightsOfBefore) {
  const Folder folder;
  const Job job(1, 2);
  const auto run = [&](int worker, int64_t epochs) {
    const auto strategy = job.worker(worker);
    const auto scope = strategy->scope();
    Model model = line_model(optim::SGD(0.1));
    const History history = model.fit(
        line(8),
        {.epochs = epochs,
         .callbacks = {callbacks::BackupAndRestore(folder.path(), {.delete_checkpoint = false})},
         .verbose = Verbose::kSilent});
    return std::pair(history.epochs.size(), model.optimizer().iterations()->value().item());
  };
  const double epoch = kRows / 2 / 8;
  EXPECT_EQ(run(0, 2), std::pair(size_t{2}, 2 * epoch));
  EXPECT_EQ(run(1, 1), std::pair(size_t{1}, 3 * epoch)) << "the backup is the chief's";
  EXPECT_EQ(run(0, 3), std::pair(size_t{1}, 4 * epoch)) << "two of its epochs are done";
}

// --- Rows on first use

TEST(LazyTable, OfAVocabularyTooLargeForMemoryIsTrained) {
  constexpr int64_t kVocabulary = int64_t{1} << 40;
  const Job job(2, 1, {.rows_on_first_use = [](const std::string& name, const TensorSpec&) {
                  return name.find("embeddings") == std::string::npos
                             ? std::nullopt
                             : std::optional(RowInitializer{
                                   .kind = RowInitializer::Kind::kUniform, .a = -0.1, .b = 0.1});
                }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  auto model = nn::Sequential({nn::Embedding(kVocabulary, 16), nn::Flatten(), nn::Dense(1)});
  model.compile({.optimizer = optim::Adagrad(0.5), .loss = losses::MeanSquaredError()});
  constexpr int64_t kExamples = 32;
  Tensor ids(DType::kInt64, {kExamples, 2}), label(DType::kFloat32, {kExamples, 1});
  RandomStream random(3);
  for (int64_t i = 0; i < kExamples; ++i) {
    for (int64_t c = 0; c < 2; ++c)
      ids.data<int64_t>()[2 * i + c] = static_cast<int64_t>(random.below(uint64_t{kVocabulary}));
    label.data<float>()[i] = static_cast<float>(i % 2);
  }
  const auto data = data::from_tensor_slices({{"ids", ids}, {"label", label}}).batch(8);
  const History history = model.fit(data, {.epochs = 20, .verbose = Verbose::kSilent});
  EXPECT_LT(history["loss"].back(), 0.02) << "each example has rows of its own";
  EXPECT_LT(history["loss"].back(), history["loss"].front() / 5);
  EXPECT_LE(job.sum(&ServerStatistics::rows), 2 * kExamples + 100);
  EXPECT_ERROR(model.variables()[0]->value(), Code::kUnimplemented, "embeddings");
}

TEST(LazyTable, NeedsAnOptimizerThatLeavesOtherRowsAlone) {
  const Job job(1, 1, {.rows_on_first_use = [](const std::string&, const TensorSpec&) {
                  return std::optional(RowInitializer{});
                }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto table = counting("table", {1000, 4});
  EXPECT_ERROR(optim::Adam(0.1).build({table}), Code::kInvalidArgument, "\"table\"");
  optim::Adam(0.1, {.lazy = true}).build({table});
}

TEST(EmbeddingLookup, MovesItsRowsAlone) {
  constexpr int64_t kVocabulary = 100'000;
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(4)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  auto model = nn::Sequential({nn::Embedding(kVocabulary, 4), nn::Flatten(), nn::Dense(1)});
  model.compile({.optimizer = optim::SGD(0.1), .loss = losses::MeanSquaredError()});
  const auto data =
      data::from_tensor_slices({{"ids", Tensor::from<int64_t>({1, 99'999, 1, 5}, {2, 2})},
                                {"label", Tensor::zeros(DType::kFloat32, {2, 1})}})
          .batch(2);
  model.fit(data, {.epochs = 1, .verbose = Verbose::kSilent});
  const uint64_t sent = job.sum(&ServerStatistics::sent_bytes),
                 received = job.sum(&ServerStatistics::received_bytes);
  model.fit(data, {.epochs = 1, .verbose = Verbose::kSilent});
  EXPECT_LT(job.sum(&ServerStatistics::sent_bytes) - sent, 1000u);
  EXPECT_LT(job.sum(&ServerStatistics::received_bytes) - received, 1000u);
}

// --- Clusters

TEST(Cluster, NeedsServersAndIsForWorkers) {
  const auto strategy_of = [](const ClusterSpec::Jobs& jobs, const std::string& task) {
    Options options;
    options.resolver = std::make_shared<LiteralResolver>(
        ClusterSpec(jobs), LiteralResolverOptions{.task_type = task, .task_id = 0});
    ParameterServerStrategy strategy(options);
  };
  EXPECT_ERROR(strategy_of({{"worker", {"127.0.0.1:1"}}}, "worker"), Code::kInvalidArgument, "ps");
  const ClusterSpec::Jobs both = {{"worker", {"127.0.0.1:1"}}, {"ps", {"127.0.0.1:2"}}};
  EXPECT_ERROR(strategy_of(both, "ps"), Code::kInvalidArgument, "run_parameter_server");
  EXPECT_FALSE(run_parameter_server(
      {.resolver = std::make_shared<LiteralResolver>(
           ClusterSpec(both), LiteralResolverOptions{.task_type = "worker", .task_id = 0})}));
  EXPECT_ERROR(ParameterServerStrategy({.max_staleness = 0, .backup_workers = 1}),
               Code::kInvalidArgument, "backup");
}

TEST(Cluster, AProgramOnItsOwnHasAServerOfItsOwn) {
  ParameterServerStrategy strategy;
  const auto scope = strategy.scope();
  Model model = line_model(optim::SGD(0.1));
  model.fit(line(8), {.epochs = 1, .verbose = Verbose::kSilent});
  EXPECT_EQ(model.optimizer().iterations()->value().item(), kRows / 8);
}

}  // namespace
}  // namespace cohort::testing
