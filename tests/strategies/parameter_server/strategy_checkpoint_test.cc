// What a job with parameter servers saves, and goes on from.
#include <filesystem>
#include <limits>

#include "core/train/callbacks.h"
#include "core/train/safetensors.h"
#include "strategies/mirrored_strategy.h"
#include "tests/strategies/parameter_server/job.h"

namespace cohort::testing {
namespace {

TEST(Checkpoints, FitAnyStrategyAndAnyNumberOfShards) {
  const TemporaryFolder folder("ps");
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
  const std::vector<Tensor> expected = trained(default_strategy(), 7);
  std::filesystem::remove(path);
  set_logical_cpus(2, 1);
  {
    MirroredStrategy mirrored({.devices = {"cpu:0", "cpu:1"}});
    trained(mirrored, 1);
  }
  std::vector<Tensor> values;
  for (const int shards : {4, 1, 4, 2, 4}) {
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
  EXPECT_EQ(file.tensors.at("optimizer/iterations").item(), 7 * kRows / 8);
}

// A sum may overflow, and no training has diverged by that.
TEST(Checkpoints, OfServersHaveSumsThatAreNotFinite) {
  const TemporaryFolder folder("ps");
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  counting("sum", {4})
      ->assign_add(Tensor::full(DType::kFloat32, {4}, std::numeric_limits<double>::infinity()));
  strategy->snapshot(folder.path());
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/ps-0/snapshot.json"));
}

TEST(Checkpoints, OfOtherShardsMayBeLoadedBeforeThereAreVariables) {
  const TemporaryFolder folder("ps");
  const std::string path = folder.path() + "/model.safetensors";
  const auto train = [](Model& model) {
    model.fit(line(8), {.epochs = 1, .verbose = Verbose::kSilent});
    std::vector<Tensor> values;
    for (const auto& variable : model.variables()) values.push_back(variable->value());
    return values;
  };
  Model undisturbed = line_model(optim::Adam(0.05));
  train(undisturbed);
  undisturbed.save_checkpoint(path);
  std::vector<std::vector<Tensor>> expected;
  for (int epoch = 0; epoch < 3; ++epoch) expected.push_back(train(undisturbed));
  for (size_t epoch = 0; const int shards : {4, 1, 2}) {
    const Job job(2, 1, {.partitioner = FixedShardsPartitioner(shards)});
    const auto strategy = job.worker(0);
    const auto scope = strategy->scope();
    auto model = nn::Sequential({nn::Dense(4, {.activation = nn::tanh}), nn::Dense(1)});
    model.load_checkpoint(path);
    model.compile({.optimizer = optim::Adam(0.05), .loss = losses::MeanSquaredError()});
    const std::vector<Tensor> found = train(model);
    for (size_t i = 0; i < found.size(); ++i) expect_near(found[i], expected[epoch][i], 1e-5);
    model.save_checkpoint(path);
    ++epoch;
  }
}

TEST(Checkpoints, AreLoadedByTheChiefAlone) {
  const TemporaryFolder folder("ps");
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

TEST(Checkpoints, AreLoadedByEachIntoWhatItHasToItself) {
  const TemporaryFolder folder("ps");
  const std::string path = folder.path() + "/variables.safetensors";
  const Job job(1, 2);
  const auto chief = job.worker(0), other = job.worker(1);
  const auto make = [](ParameterServerStrategy& strategy, float value) {
    const auto scope = strategy.scope();
    Variables variables;
    for (const auto kept : {Synchronization::kOnRead, Synchronization::kNone})
      variables.push_back(create_variable({.name = str("v", variables.size()),
                                           .spec = {DType::kFloat32, {1}},
                                           .initial_value = [=] { return floats({value}); },
                                           .synchronization = kept,
                                           .aggregation = Aggregation::kMean}));
    return variables;
  };
  save_variables(path, make(*chief, 7), {}, chief->workers());
  const Variables found = make(*other, 0);
  load_variables(path, found, {}, other->workers());
  for (const auto& variable : found)
    EXPECT_EQ(values_of(variable->value()), (std::vector<float>{7})) << variable->name();
}

TEST(Checkpoints, ABackupGivesAChiefItsPlaceAndNotTheWeightsOfBefore) {
  const TemporaryFolder folder("ps");
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
  constexpr int64_t kSteps = kRows / 2 / 8;
  const auto epoch = static_cast<double>(kSteps);
  EXPECT_EQ(run(0, 2), std::pair(size_t{2}, 2 * epoch));
  EXPECT_EQ(run(1, 1), std::pair(size_t{1}, 3 * epoch)) << "the backup is the chief's";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(0, 3), std::pair(size_t{1}, 4 * epoch)) << "two of its epochs are done";
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(str("after ", 3 * epoch, " updates")), std::string::npos) << said;
  EXPECT_NE(said.find(str("are after ", 2 * epoch)), std::string::npos) << said;
}

TEST(Checkpoints, ABackupGivesAChiefItsOwnVariablesWhateverTheServersHave) {
  const TemporaryFolder folder("ps");
  const Job job(1, 2);
  using Statistics = std::vector<std::vector<float>>;
  const auto run = [&](int worker, int64_t epochs) {
    const auto strategy = job.worker(worker);
    const auto scope = strategy->scope();
    set_global_seed(11);
    auto model = nn::Sequential({nn::Dense(4), nn::BatchNormalization(), nn::Dense(1)});
    model.compile({.optimizer = optim::SGD(0.1), .loss = losses::MeanSquaredError()});
    model.fit(
        line(8),
        {.epochs = epochs,
         .callbacks = {callbacks::BackupAndRestore(folder.path(), {.delete_checkpoint = false})},
         .verbose = Verbose::kSilent});
    Statistics statistics;
    for (const auto& variable : model.variables())
      if (variable->synchronization() == Synchronization::kOnRead)
        statistics.push_back(values_of(variable->value()));
    return statistics;
  };
  const Statistics expected = run(0, 2);
  EXPECT_EQ(expected.size(), 2u);
  EXPECT_NE(run(1, 1), expected) << "those of another worker";
  EXPECT_EQ(run(0, 2), expected) << "nothing is left to be trained";
}

// Another worker has trained a little before the chief comes.
TEST(Checkpoints, ABackupGivesNewServersTheWeightsThatTheyLack) {
  const TemporaryFolder folder("ps");
  using Weights = std::vector<std::vector<float>>;
  const auto run = [&](const Job& job, int worker, int64_t epochs) {
    const auto strategy = job.worker(worker);
    const auto scope = strategy->scope();
    Model model = line_model(optim::SGD(0.1));
    model.fit(
        line(8),
        {.epochs = epochs,
         .callbacks = {callbacks::BackupAndRestore(folder.path(), {.delete_checkpoint = false})},
         .verbose = Verbose::kSilent});
    Weights weights;
    for (const auto& variable : model.variables()) weights.push_back(values_of(variable->value()));
    return weights;
  };
  const Weights expected = run(Job(1, 2), 0, 2);
  const Job again(1, 2);
  EXPECT_NE(run(again, 1, 1), expected);
  EXPECT_EQ(run(again, 0, 2), expected);
}

// Trains for some epochs from a checkpoint, if there is one, leaves one, and returns the weights.
std::vector<std::vector<float>> trained(const Job& job, const std::string& path, int epochs) {
  const auto model = [] { return line_model(optim::Adam(0.05)); };
  if (std::filesystem::exists(path)) {
    const auto chief = job.worker(0);
    const auto scope = chief->scope();
    model().load_checkpoint(path);
  }
  job.on_workers([&](ParameterServerStrategy&) {
    model().fit(line(8), {.epochs = epochs, .verbose = Verbose::kSilent});
  });
  const auto chief = job.worker(0);
  const auto scope = chief->scope();
  const Model last = model();
  last.save_checkpoint(path);
  std::vector<std::vector<float>> weights;
  for (const auto& variable : last.variables()) weights.push_back(values_of(variable->value()));
  return weights;
}

TEST(Checkpoints, GoOnInOtherServersAsWithoutTheBreak) {
  struct Case {
    const char* name;
    int workers;
    std::optional<int64_t> max_staleness;
  };
  for (const Case& c : {Case{"asynchronous", 1, std::nullopt}, Case{"synchronous", 2, 0}}) {
    SCOPED_TRACE(c.name);
    const TemporaryFolder folder("ps");
    const auto job = [&](int servers, int shards) {
      return Job(servers, c.workers,
                 {.max_staleness = c.max_staleness, .partitioner = FixedShardsPartitioner(shards)});
    };
    const auto expected = trained(job(2, 2), folder.path() + "/whole", 4);
    const std::string path = folder.path() + "/part";
    trained(job(2, 2), path, 1);
    trained(job(3, 3), path, 2);
    EXPECT_EQ(trained(job(1, 1), path, 1), expected);
  }
}

TEST(Checkpoints, OfServersReplaceThoseOfMoreServers) {
  const TemporaryFolder folder("ps");
  const auto job = [](int servers) {
    return Job(servers, 1, {.partitioner = FixedShardsPartitioner(servers)});
  };
  for (const int servers : {4, 2}) {
    const Job saving = job(servers);
    const auto strategy = saving.worker(0);
    const auto scope = strategy->scope();
    const auto v = counting("v", {6});
    v->assign(Tensor::full(DType::kFloat32, {6}, servers));
    strategy->snapshot(folder.path());
    if (servers == 4) std::filesystem::remove_all(folder.path() + "/ps-2");  // leaves a gap
  }
  const Job restoring = job(3);
  const auto strategy = restoring.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {6});
  v->value();  // makes it
  for (int server = 0; server < 3; ++server)
    EXPECT_EQ(strategy->session()->client(server).restore(folder.path()), 1);
  EXPECT_EQ(values_of(v->value()), (std::vector<float>(6, 2)));
}

TEST(Checkpoints, OfBeforeAreLoadedIntoTheSameServers) {
  const TemporaryFolder folder("ps");
  const std::string path = folder.path() + "/model";
  const Job job(2, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  Model model = line_model(optim::Adam(0.05));
  const auto train = [&](int epochs) {
    model.fit(line(8), {.epochs = epochs, .verbose = Verbose::kSilent});
    std::vector<std::vector<float>> weights;
    for (const auto& variable : model.variables()) weights.push_back(values_of(variable->value()));
    return weights;
  };
  train(2);
  model.save_checkpoint(path);
  const auto expected = train(2);
  model.load_checkpoint(path);
  EXPECT_EQ(train(2), expected);
}

// A worker does not train on with what it has pulled before, nor makes the shards by itself.
TEST(Checkpoints, GiveBackWhatAServerWithoutSnapshotsHasLost) {
  const TemporaryFolder folder("ps");
  const std::string path = folder.path() + "/model.safetensors";
  const Job job(1, 1);
  std::vector<float> saved;
  const auto value = [](const Model& model) {
    return values_of(model.trainable_variables().front()->value());
  };
  {
    const auto strategy = job.worker(0);
    const auto scope = strategy->scope();
    Model model = line_model(optim::SGD(0.05));
    model.fit(line(8), {.epochs = 1, .verbose = Verbose::kSilent});
    model.save_checkpoint(path);
    saved = value(model);
    job.server(0).stop();
    job.server(0).start();
    EXPECT_ERROR(model.fit(line(8), {.epochs = 1, .verbose = Verbose::kSilent}), Code::kNotFound,
                 "the server has lost it");
    EXPECT_EQ(job.sum(&ServerStatistics::shards), 0u);
  }
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  Model model = line_model(optim::SGD(0.05));
  EXPECT_NE(value(model), saved) << "new shards have initial values";
  model.load_checkpoint(path);
  EXPECT_EQ(value(model), saved);
  model.fit(line(8), {.epochs = 1, .verbose = Verbose::kSilent});
  EXPECT_NE(value(model), saved);
}

}  // namespace
}  // namespace cohort::testing
