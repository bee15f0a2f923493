// Synchronous training whose workers have not all the same to do.
#include <atomic>
#include <cmath>
#include <thread>

#include "core/ops/math_ops.h"
#include "tests/strategies/parameter_server/job.h"

namespace cohort::testing {
namespace {

// Steps of a worker's own loop, each with a gradient of `gradient` for every element of "v".
void take_steps(ParameterServerStrategy& strategy, int steps, double gradient,
                const std::function<void(int)>& before = {}) {
  const auto scope = strategy.scope();
  const auto v = counting("v", {4});
  const optim::Optimizer optimizer = optim::SGD(1.0);
  const auto step =
      strategy.function([&] { optimizer.minimize(ops::reduce_sum(v->read()) * gradient, {v}); });
  for (int i = 0; i < steps; ++i) {
    if (before) before(i);
    strategy.run(step);
  }
}

// How far "v" has come from where it began.
float moved(const Job& job) {
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {4});
  optim::SGD(1.0).build({v});
  const auto values = values_of(v->value());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i] - static_cast<float>(i), values[0]) << "element " << i;
  return values[0];
}

TEST(SynchronousTraining, GoesOnWithoutWorkersThatHaveEnded) {
  const Job job(2, 3, {.max_staleness = 0, .partitioner = FixedShardsPartitioner(2)});
  job.on_workers([](ParameterServerStrategy& strategy) {
    const int rank = strategy.workers().rank();
    take_steps(strategy, 2 + 2 * rank, 1 + rank);
  });
  // Of 1, 2 and 3; then of 2 and 3; then 3.
  EXPECT_EQ(moved(job), -(2 * 2 + 2 * 2.5f + 2 * 3));
  EXPECT_EQ(job.sum(&ServerStatistics::pushes_late), 0u);
}

TEST(SynchronousTraining, OfWorkersWithDifferentNumbersOfBatchesEnds) {
  const Job job(2, 2, {.max_staleness = 0});
  std::atomic<int> ended = 0;
  job.on_workers([&](ParameterServerStrategy& strategy) {
    Model model = line_model(optim::SGD(0.1));
    const int64_t own = strategy.workers().rank() + 1;
    for (int training = 0; training < 2; ++training) {
      const History history = model.fit(
          line(4), {.epochs = own, .steps_per_epoch = 3 * own, .verbose = Verbose::kSilent});
      ended += static_cast<int>(history.epochs.size());
    }
  });
  EXPECT_EQ(ended, 2 * (1 + 2));
}

// As of sample weights that add up to less than nothing.
TEST(SynchronousTraining, TellsTheWorkerOfAWeightThatIsNone) {
  const Job job(1, 1, {.max_staleness = 0});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {4});
  const optim::Optimizer optimizer = optim::SGD(1.0);
  for (const double weight : {-3.0, std::nan("")}) {
    const auto step = strategy->function([&] {
      optimizer.minimize(ops::reduce_sum(v->read()), {v}, ops::constant(weight, DType::kFloat64));
    });
    EXPECT_ERROR(strategy->run(step), Code::kInvalidArgument, str("\"v\" weighs ", weight));
  }
}

TEST(SynchronousTraining, MayHaveTheLongestTimeLimit) {
  const Job job(1, 1, {.max_staleness = 0});
  const Options options{.max_staleness = 0, .timeout = milliseconds::max()};
  const auto strategy = job.worker(0, &options);
  const auto scope = strategy->scope();
  Model model = line_model(optim::SGD(0.1));
  model.fit(line(8), {.verbose = Verbose::kSilent});
  EXPECT_EQ(model.optimizer().iterations()->value().item(), kRows / 8);
}

TEST(SynchronousTraining, AgainAndAgainIsAsOneWorkersWithLargerBatches) {
  Model alone = line_model(optim::SGD(0.1, {.momentum = 0.5}));
  for (int training = 0; training < 3; ++training)
    alone.fit(line(8), {.epochs = 2, .verbose = Verbose::kSilent});
  const Job job(2, 2, {.max_staleness = 0, .partitioner = FixedShardsPartitioner(2)});
  expect_trained_as(alone, job, [](ParameterServerStrategy& strategy) {
    Model model = line_model(optim::SGD(0.1, {.momentum = 0.5}));
    for (int training = 0; training < 3; ++training) {
      const History history = model.fit(line(4), {.epochs = 2, .verbose = Verbose::kSilent});
      EXPECT_EQ(history["late_updates"].back(), 0);
      if (strategy.is_chief()) model.evaluate(line(4));  // while the other begins
    }
    return model;
  });
}

// So many rows that the workers' last batches differ, or that one has none.
TEST(SynchronousTraining, OfUnevenBatchesIsAsOneWorkersWithLargerBatches) {
  struct Case {
    int64_t rows, batch;
    losses::Reduction reduction;
  };
  for (const Case& each : {Case{1, 1, losses::Reduction::kSumOverBatchSize},
                           Case{3, 1, losses::Reduction::kMeanWithSampleWeight},
                           Case{7, 2, losses::Reduction::kSumOverBatchSize}}) {
    const auto train = [&](int64_t batch) {
      Model model = line_model(optim::SGD(0.1));
      model.compile({.optimizer = optim::SGD(0.1, {.momentum = 0.5}),
                     .loss = losses::MeanSquaredError({.reduction = each.reduction})});
      model.fit(line(batch, each.rows), {.epochs = 3, .verbose = Verbose::kSilent});
      return model;
    };
    const Model alone = train(2 * each.batch);
    const Job job(2, 2, {.max_staleness = 0, .partitioner = FixedShardsPartitioner(2)});
    expect_trained_as(alone, job, [&](ParameterServerStrategy&) { return train(each.batch); });
  }
}

TEST(SynchronousTraining, AddsUpWhatEachStepOfEachWorkerAdds) {
  const Job job(2, 2, {.max_staleness = 0});
  constexpr int kSteps = 10;
  const auto make_sum = [] {
    return create_variable({.name = "n",
                            .spec = {DType::kFloat32, {}},
                            .initial_value = [] { return Tensor::scalar(0.0f); },
                            .aggregation = Aggregation::kOnlyFirstReplica});
  };
  job.on_workers([&](ParameterServerStrategy& strategy) {
    const auto v = counting("v", {4}), sum = make_sum();
    const optim::Optimizer optimizer = optim::SGD(1.0);
    const auto step = strategy.function([&] {
      optimizer.minimize(ops::reduce_sum(v->read()), {v});
      sum->assign_add(ops::constant(1, DType::kFloat32));
    });
    for (int i = 0; i < kSteps; ++i) strategy.run(step);
  });
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {4}), sum = make_sum();  // in the same order, so on the same servers
  EXPECT_EQ(sum->value().item(), 2 * kSteps);
}

// Each worker writes the number of the update for itself.
TEST(SynchronousTraining, CountsItsUpdatesWhoeverIsSlow) {
  const Job job(2, 2, {.max_staleness = 0});
  job.on_workers([](ParameterServerStrategy& strategy) {
    const auto v = counting("v", {4});
    const optim::Optimizer optimizer = optim::SGD(1.0);
    const auto step =
        strategy.function([&] { optimizer.minimize(ops::reduce_sum(v->read()), {v}); });
    for (int i = 1; i <= 60; ++i) {
      strategy.run(step);
      const double count = optimizer.iterations()->value().item();
      EXPECT_GE(count, i);
      EXPECT_LE(count, i + 1);
    }
  });
}

TEST(SynchronousTraining, GoesOnWithoutAWorkerThatFails) {
  const Job job(2, 2, {.max_staleness = 0});
  job.on_workers([](ParameterServerStrategy& strategy) {
    const bool fails = strategy.workers().rank() == 1;
    try {
      take_steps(strategy, 6, fails ? 3 : 1, [&](int step) {
        if (fails && step == 2) invalid("no more data");
      });
    } catch (const Error& error) {
      EXPECT_TRUE(fails) << error.what();
    }
  });
  EXPECT_EQ(moved(job), -(2 * 2 + 4 * 1));
}

// It has no part in training: here nobody runs it.
TEST(SynchronousTraining, DoesNotWaitForAnEvaluator) {
  const Job job(1, 2, {.max_staleness = 0}, {{"evaluator", {"127.0.0.1:9"}}});
  job.on_workers([](ParameterServerStrategy& strategy) {
    EXPECT_EQ(strategy.num_workers(), 2);
    take_steps(strategy, 3, 1);
  });
  EXPECT_EQ(moved(job), -3);
}

TEST(SynchronousTraining, WithBackupWorkersEndsWhenTheyEnd) {
  const Job job(1, 3, {.max_staleness = 0, .backup_workers = 1});
  job.on_workers([](ParameterServerStrategy& strategy) {
    take_steps(strategy, strategy.workers().rank() == 0 ? 12 : 3, 1);
  });
  // Every update is the mean of equal gradients, and counted by the optimizer; a worker that was
  // late may have made fewer.
  EXPECT_EQ(-2 * moved(job), static_cast<float>(job.sum(&ServerStatistics::pushes_applied)));
}

}  // namespace
}  // namespace cohort::testing
