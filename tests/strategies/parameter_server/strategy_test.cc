// Training with parameter servers: several workers on threads, servers with ports of their own.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include "core/base/file.h"
#include "core/ops/array_ops.h"
#include "core/ops/control_flow.h"
#include "core/ops/math_ops.h"
#include "core/train/callbacks.h"
#include "core/train/training.h"
#include "strategies/cluster/literal_resolver.h"
#include "tests/strategies/parameter_server/job.h"
#include "tests/testing/event_fields.h"

namespace cohort::testing {
namespace {

TEST(ParameterServerStrategy, TellsOtherTasksWhatTheyAreToDoInstead) {
  const ClusterSpec cluster(ClusterSpec::Jobs{
      {"ps", {"127.0.0.1:1"}}, {"worker", {"127.0.0.1:2"}}, {"evaluator", {"127.0.0.1:3"}}});
  const auto make_as = [&](const std::string& job) {
    const ParameterServerStrategy strategy(
        Options{.resolver = std::make_shared<LiteralResolver>(
                    cluster, LiteralResolverOptions{.task_type = job, .task_id = 0})});
  };
  EXPECT_ERROR(make_as("ps"), Code::kInvalidArgument, "ps:0: call run_parameter_server()");
  EXPECT_ERROR(make_as("evaluator"), Code::kInvalidArgument, "evaluator:0: its model needs no");
}

TEST(ServerSession, MayBeUsedByWorkThatItDoesForAllServers) {
  const Job job(2, 1);
  const auto strategy = job.worker(0);
  const std::vector<int> servers = {0, 1};
  std::atomic<int> calls = 0;
  strategy->session()->on_servers(
      servers, [&](int) { strategy->session()->on_servers(servers, [&](int) { ++calls; }); });
  EXPECT_EQ(calls, 4);
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

// A worker that has not trained itself.
TEST(Workers, SeeWhatOthersHaveTrained) {
  const TemporaryFolder folder("ps");
  const std::string path = folder.path() + "/weights.safetensors";
  const Tensor x = Tensor::full(DType::kFloat32, {5, 3}, 0.25);
  const Job job(2, 2, {.partitioner = FixedShardsPartitioner(2)});
  const auto as_worker = [&](int index, const std::function<void(Model&)>& work) {
    const auto strategy = job.worker(index);
    const auto scope = strategy->scope();
    Model model = line_model(optim::Adam(0.05));
    work(model);
  };
  double loss = 0;
  std::vector<float> predicted, kernel;
  as_worker(0, [&](Model& model) {
    const double before = model.evaluate(line(8)).at("loss");
    model.fit(line(8), {.epochs = 60, .verbose = Verbose::kSilent});
    loss = model.evaluate(line(8)).at("loss");
    ASSERT_LT(loss, before / 2);
    predicted = values_of(model.predict(x));
    kernel = values_of(model.variables()[0]->value());
  });
  as_worker(1, [&](Model& model) {
    EXPECT_DOUBLE_EQ(model.evaluate(line(8)).at("loss"), loss);
    EXPECT_EQ(values_of(model.variables()[0]->value()), kernel);
  });
  as_worker(1, [&](Model& model) { EXPECT_EQ(values_of(model.predict(x)), predicted); });
  as_worker(0, [&](Model& model) { model.save_weights(path); });
  Model saved = line_model(optim::Adam(0.05));
  saved.load_weights(path);
  EXPECT_EQ(values_of(saved.variables()[0]->value()), kernel);
  saved.evaluate(line(8));
  EXPECT_EQ(saved.optimizer().variables().size(), 2u) << "no slots where nobody else trains";
}

TEST(Workers, EvaluateWithoutTakingVariablesOverFromAnOptimizer) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  Model model = line_model(optim::Adam(0.05));
  const optim::Optimizer other = optim::SGD(0.1);
  other.build(model.trainable_variables());
  model.evaluate(line(8));
  for (const auto& variable : model.variables()) EXPECT_EQ(on_servers(variable).num_rules(), 1);
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

// What it adds would be a gradient, and of the learning rate 0.
TEST(Workers, GoOnAddingToAVariableThatAnOptimizerHasTakenOver) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = create_variable({.name = "v",
                                  .spec = {DType::kFloat32, {}},
                                  .initial_value = [] { return Tensor::scalar(0.0f); },
                                  .aggregation = Aggregation::kOnlyFirstReplica});
  const auto add = strategy->function([&] { v->assign_add(ops::constant(2, DType::kFloat32)); });
  strategy->run(add);
  EXPECT_EQ(v->value().item(), 2);
  optim::SGD(1.0).build({v});
  strategy->run(add);
  EXPECT_EQ(v->value().item(), 4);
}

// Where a branch is not taken, other workers would wait for a push, or be overwritten.
TEST(Branch, WritesNothing) {
  const Job job(2, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {}),
             own = create_variable({.name = "own",
                                    .spec = {DType::kFloat32, {}},
                                    .initial_value = [] { return Tensor::scalar(0.0f); },
                                    .synchronization = Synchronization::kOnRead,
                                    .aggregation = Aggregation::kSum});
  const auto optimizer = optim::SGD(1.0);
  const std::vector<std::function<void(Value)>> writes = {
      [&](Value x) { v->assign(x); }, [&](Value x) { v->assign_add(x); },
      [&](Value x) { own->assign_add(x); },
      [&](Value x) { optimizer.minimize(v->read() * x, {v}); }};
  for (const auto& write : writes) {
    const auto step = strategy->function([&](Value x) {
      ops::only_if(ops::greater(x, ops::constant(0, DType::kFloat32)), [&] { write(x); });
    });
    EXPECT_ERROR(strategy->run(step, 1.0f), Code::kUnimplemented, "in a branch");
  }
}

// --- Training

TEST(Training, SynchronousWorkersTakeTheMeanOfTheirGradients) {
  // Each of two workers has half of the elements: one with batches twice as large sees the same.
  Model alone = line_model(optim::Adam(0.01));
  alone.fit(line(8), {.epochs = 2, .verbose = Verbose::kSilent});
  const Job job(2, 2, {.max_staleness = 0, .partitioner = FixedShardsPartitioner(2)});
  expect_trained_as(alone, job, [](ParameterServerStrategy&) {
    Model model = line_model(optim::Adam(0.01));
    const History history = model.fit(line(4), {.epochs = 2, .verbose = Verbose::kSilent});
    EXPECT_EQ(history["late_updates"].back(), 0);
    EXPECT_EQ(model.optimizer().iterations()->value().item(), 2 * kRows / 8);
    return model;
  });
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

TEST(Training, TensorBoardShowsHowStaleGradientsWere) {
  const TemporaryFolder folder("ps");
  const Job job(1, 2);
  job.on_workers([&](ParameterServerStrategy& strategy) {
    Model model = line_model(optim::SGD(0.1));
    const History history = model.fit(
        line(4),
        {.epochs = 2,
         .callbacks = {callbacks::TensorBoard(str(folder.path(), "/", strategy.workers().rank()))},
         .verbose = Verbose::kSilent});
  });
  const std::filesystem::directory_iterator files(folder.path() + "/0/train");
  const auto counts = event_fields::histogram_counts(read_file(files->path()), "epoch_staleness");
  // Of four weights and the count of updates.
  const int updates = 5 * kRows / 2 / 4;
  EXPECT_EQ(counts, std::vector<double>(2, updates));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/1")) << "the chief alone writes";
}

TEST(Training, PullsAndPushesAreCommunication) {
  struct Shares final : Callback {
    StepShares last;
    void on_epoch_end(Training& training, Logs&) override { last = training.step_shares(); }
  };
  const Job job(1, 1);
  job.on_workers([](ParameterServerStrategy&) {
    const auto found = std::make_shared<Shares>();
    line_model(optim::SGD(0.1))
        .fit(line(8), {.epochs = 2, .callbacks = {found}, .verbose = Verbose::kSilent});
    const StepShares& shares = found->last;
    EXPECT_GT(shares.communication.value(), 0);
    EXPECT_GT(shares.compute, 0);
    EXPECT_TRUE(shares.for_worker.empty());
    EXPECT_NEAR(shares.compute + shares.input + *shares.communication, 1, 1e-9);
  });
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

TEST(Training, AWorkerWithoutRowsSendsNothing) {
  constexpr int64_t kEpochs = 5;
  const auto train = [](Model& model) {
    const auto row = data::from_tensor_slices({{"x", Tensor::full(DType::kFloat32, {1, 3}, 0.5)},
                                               {"label", Tensor::full(DType::kFloat32, {1, 1}, 1)}})
                         .batch(1);
    const auto watch = callbacks::EarlyStopping({.monitor = "loss", .patience = kEpochs});
    return model.fit(row, {.epochs = kEpochs, .callbacks = {watch}, .verbose = Verbose::kSilent});
  };
  const auto sgd = [] { return optim::SGD(0.1, {.momentum = 0.9}); };
  Model alone = line_model(sgd());
  train(alone);
  for (const std::optional<int64_t> max_staleness :
       {std::optional<int64_t>(), std::optional<int64_t>(2)}) {
    const Job job(1, 2, {.max_staleness = max_staleness});
    ::testing::internal::CaptureStderr();
    job.on_workers([&](ParameterServerStrategy& strategy) {
      Model model = line_model(sgd());
      const History history = train(model);
      EXPECT_EQ(history.epochs.size(), static_cast<size_t>(kEpochs));
      EXPECT_EQ(history.results.contains("loss"), strategy.is_chief())
          << "of no rows there is none";
      if (strategy.is_chief()) {
        EXPECT_EQ(history["staleness_max"].back(), 0);
      }
    });
    const std::string said = ::testing::internal::GetCapturedStderr();
    const std::string told = "worker:1 had no rows in epoch 1, so it has no loss and no metrics";
    EXPECT_NE(said.find(told), std::string::npos) << said;
    EXPECT_EQ(said.find("had no rows"), said.rfind("had no rows")) << "told once: " << said;
    const auto strategy = job.worker(0);
    const auto scope = strategy->scope();
    Model model = line_model(sgd());
    model.optimizer().build(model.trainable_variables());
    EXPECT_EQ(model.optimizer().iterations()->value().item(), kEpochs);
    for (size_t i = 0; i < model.variables().size(); ++i)
      expect_near(model.variables()[i]->value(), alone.variables()[i]->value(), 1e-5);
  }
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

// It is one rate, and the others would set it once more.
TEST(Training, TheChiefAloneSetsTheLearningRate) {
  constexpr double kNoImprovement = 1e9;
  for (const auto& callback :
       {callbacks::LearningRateScheduler([](int64_t, double rate) { return rate / 2; }),
        callbacks::ReduceLROnPlateau(
            {.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = kNoImprovement})}) {
    const Job job(1, 2);
    const auto run = [&](int worker) {
      const auto strategy = job.worker(worker);
      const auto scope = strategy->scope();
      Model model = line_model(optim::SGD(0.1));
      const History history =
          model.fit(line(8), {.epochs = 2, .callbacks = {callback}, .verbose = Verbose::kSilent});
      return std::pair(history["learning_rate"], model.optimizer().learning_rate());
    };
    const double set = run(0).second;
    EXPECT_LT(set, 0.1);
    EXPECT_EQ(run(1), std::pair(std::vector<double>(2, set), set));
  }
}

// Which would undo what the others have trained since.
TEST(Training, AWorkerThatIsNotTheChiefPutsNoBestWeightsBack) {
  const auto weights_after = [](std::vector<CallbackPtr> callbacks) {
    const Job job(1, 2);
    const auto strategy = job.worker(1);
    const auto scope = strategy->scope();
    Model model = line_model(optim::SGD(0.1));
    model.fit(line(8),
              {.epochs = 2, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent});
    std::vector<std::vector<float>> weights;
    for (const auto& variable : model.variables()) weights.push_back(values_of(variable->value()));
    return weights;
  };
  EXPECT_EQ(
      weights_after({callbacks::EarlyStopping(
          {.monitor = "loss", .min_delta = 1e9, .patience = 5, .restore_best_weights = true})}),
      weights_after({}));
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

// Each worker has a scale of its own, and sends nothing that is not finite.
TEST(Training, AWorkerSkipsItsOwnUpdateWhereItsGradientIsNotFinite) {
  const Job job(1, 2);
  job.on_workers([](ParameterServerStrategy& strategy) {
    const bool overflows = !strategy.is_chief();
    const auto v = counting("v", {2});
    const optim::Optimizer optimizer =
        optim::SGD(1.0, {.gradients = {.loss_scale = optim::LossScale{}}});
    const auto step = strategy.function(
        [&](Value x) { optimizer.minimize(ops::reduce_sum(v->read() * x), {v}); });
    for (int i = 0; i < 3; ++i) strategy.run(step, overflows ? HUGE_VALF : 1.0f);
    EXPECT_EQ(optimizer.loss_scale(), overflows ? 0x1p12 : 0x1p15);
  });
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {2});
  const optim::Optimizer optimizer =
      optim::SGD(1.0, {.gradients = {.loss_scale = optim::LossScale{}}});
  optimizer.build({v});
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{-3, -2}));
  EXPECT_EQ(optimizer.iterations()->value().item(), 6);
  EXPECT_EQ(optimizer.variables().back()->name(), "optimizer/skipped_updates");
  EXPECT_EQ(optimizer.variables().back()->value().item(), 3);
}

// The same without a scale. Of such a gradient as an error the others learn nothing.
TEST(Training, WhatIsNotFiniteIsNotSentWhereItIsSkippedOrAnError) {
  for (const auto policy : {optim::NonFinite::kSkip, optim::NonFinite::kError}) {
    const Job job(1, 2);
    const auto make = [&] { return optim::SGD(1.0, {.gradients = {.non_finite = policy}}); };
    job.on_workers([&](ParameterServerStrategy& strategy) {
      const auto v = counting("v", {2});
      const optim::Optimizer optimizer = make();
      const auto step = strategy.function(
          [&](Value x) { optimizer.minimize(ops::reduce_sum(v->read() * x), {v}); });
      const bool overflows = !strategy.is_chief();
      for (int i = 0; i < 3; ++i) {
        const auto run = [&] { strategy.run(step, overflows ? HUGE_VALF : 1.0f); };
        if (overflows && policy == optim::NonFinite::kError) {
          EXPECT_ERROR(run(), Code::kOutOfRange, "the gradient of variable \"v\" is not finite");
        } else {
          run();
        }
      }
    });
    const auto strategy = job.worker(0);
    const auto scope = strategy->scope();
    const auto v = counting("v", {2});
    const optim::Optimizer optimizer = make();
    optimizer.build({v});
    EXPECT_EQ(values_of(v->value()), (std::vector<float>{-3, -2}));
    if (policy != optim::NonFinite::kSkip) continue;
    EXPECT_EQ(optimizer.iterations()->value().item(), 6);
    EXPECT_EQ(optimizer.variables().back()->name(), "optimizer/skipped_updates");
    EXPECT_EQ(optimizer.variables().back()->value().item(), 3);
  }
}

TEST(Training, UpdatesThatWaitForAllWorkersAreNotSkipped) {
  const Job job(1, 2, {.max_staleness = 0});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto build = [&](optim::NonFinite policy) {
    optim::SGD(0.1, {.gradients = {.non_finite = policy}}).build({counting("v", {2})});
  };
  EXPECT_ERROR(build(optim::NonFinite::kSkip), Code::kUnimplemented,
               "non_finite = kSkip under ParameterServerStrategy");
  build(optim::NonFinite::kError);
  build(optim::NonFinite::kZero);
}

TEST(Training, UpdatesThatWaitForAllWorkersHaveNoLossScale) {
  const Job job(1, 2, {.max_staleness = 0});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  Model model = line_model(optim::SGD(0.1));
  model.optimizer().use_loss_scale();
  EXPECT_ERROR(model.fit(line(8), {.epochs = 1, .verbose = Verbose::kSilent}), Code::kUnimplemented,
               "loss scaling under ParameterServerStrategy");
}

TEST(Training, HasNoAveragesOfVariables) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const optim::Optimizer averaging = optim::SGD(1.0, {.ema = optim::EmaOptions{}});
  EXPECT_ERROR(line_model(averaging), Code::kUnimplemented, "ema under ParameterServerStrategy");
  EXPECT_ERROR(averaging.build({counting("v", {2})}), Code::kUnimplemented,
               "ema under ParameterServerStrategy");
}

TEST(Training, TakesNoGradientsForSummedAlready) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {2});
  const auto optimizer = optim::SGD(1.0);
  const auto step = strategy->function([&](Value x) {
    const auto found = optim::gradients(ops::reduce_sum(v->read() * x), {v});
    optimizer.apply_gradients(found, {v}, {.skip_gradients_aggregation = true});
  });
  EXPECT_ERROR(strategy->run(step, 1.0f), Code::kUnimplemented,
               "skip_gradients_aggregation under ParameterServerStrategy");
}

TEST(Training, AServersRestartIsWaitedForAndCounted) {
  const TemporaryFolder folder("ps");
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
  ::testing::internal::CaptureStderr();
  strategy->run(step);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(" pushes of this worker, each to one shard"), std::string::npos) << said;
  EXPECT_EQ(values_of(v->value())[0], -2) << "three updates are gone";
  EXPECT_EQ(strategy->take_report().numbers.at("lost_updates"), 6) << "of v and of iterations";
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
  const ClusterSpec::Jobs no_worker = {{"chief", {"127.0.0.1:1"}}, {"ps", {"127.0.0.1:2"}}};
  EXPECT_ERROR(strategy_of(no_worker, "chief"), Code::kInvalidArgument, "needs a worker");
  EXPECT_ERROR(run_parameter_server({.resolver = std::make_shared<LiteralResolver>(
                                         ClusterSpec(no_worker),
                                         LiteralResolverOptions{.task_type = "ps", .task_id = 0})}),
               Code::kInvalidArgument, "needs a worker");
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
