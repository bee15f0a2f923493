// Training by several workers, each a thread with a strategy of its own.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <gmock/gmock.h>

#include "core/base/program.h"
#include "tests/testing/file_size_limit.h"
#include "tests/train/multi_worker_testing.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Worker = MultiWorkerMirroredStrategy;

int lines_in(const std::string& path) {
  std::ifstream file(path);
  return static_cast<int>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
}

int files_in(const std::string& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    count += entry.is_regular_file();
  return count;
}

// --- fit, evaluate, predict

TEST(MultiWorkerTraining, HistoriesAndResultsAreThoseOfAllRowsOnEveryWorker) {
  auto alone = classifier();
  const auto train = points(43).batch(12), test = points(21, 9).batch(6);
  const History expected = alone.fit(train, {.epochs = 3, .verbose = Verbose::kSilent});
  const Logs tested = alone.evaluate(test);
  for (const int workers : {2, 3}) {
    Found<std::vector<double>> losses, accuracies;
    Found<Logs> logs;
    Found<std::string> weights;
    Found<std::vector<float>> predicted;
    on_good_workers(workers, [&](Worker& worker) {
      const auto scope = worker.scope();
      auto model = classifier();
      const History history = model.fit(train, quietly({}, 3));
      losses.set(worker, history["loss"]);
      accuracies.set(worker, history["accuracy"]);
      logs.set(worker, model.evaluate(test));
      weights.set(worker, bits(model));
      const Tensor outputs = model.predict(test);
      predicted.set(worker, {outputs.data<float>(), outputs.data<float>() + 42});
    });
    weights.common();
    EXPECT_EQ(accuracies.common(), expected["accuracy"]) << "the rows are other ones";
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses.common()[i], expected["loss"][i], 1e-3);
    EXPECT_NEAR(logs.common().at("loss"), tested.at("loss"), 1e-3);
    const Tensor outputs = alone.predict(test);
    for (size_t i = 0; i < 42; ++i)
      EXPECT_NEAR(predicted.common()[i], outputs.data<float>()[i], 1e-2) << i;
  }
}

TEST(MultiWorkerTraining, AveragesOfWeightsAreTheSameOnEveryWorker) {
  const auto train = points(43).batch(12), test = points(21, 9).batch(6);
  const auto fit = [&] {
    auto model = classifier();
    model.compile({.optimizer = optim::SGD(0.1, {.ema = optim::EmaOptions{.momentum = 0.9}}),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
    FitOptions options = quietly({callbacks::SwapEMAWeights()}, 3);
    options.validation_data = test;
    const History history = model.fit(train, options);
    return std::pair(history["val_loss"], bits(model));
  };
  const auto expected = fit().first;
  Found<std::vector<double>> losses;
  Found<std::string> weights;
  on_good_workers(2, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto [val_loss, trained] = fit();
    losses.set(worker, std::move(val_loss));
    weights.set(worker, std::move(trained));
  });
  weights.common();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses.common()[i], expected[i], 1e-3);
}

TEST(MultiWorkerTraining, MetricsOfALoopOfOnesOwnAreThoseOfAllRowsOnEveryWorker) {
  auto alone = classifier();
  const auto rows = points(53);
  Found<metrics::State> found;
  const auto metric = metrics::SparseCategoricalAccuracy();
  on_good_workers(3, [&](Worker& worker) {
    const auto scope = worker.scope();
    const auto model = classifier();
    const auto step = worker.function([&](const BatchValues& batch) {
      return metric.increments(batch["label"], model(batch["x"]));
    });
    metrics::State state;
    for (const auto& batch : worker.distribute_dataset(rows.batch(10)))
      metrics::accumulate(state, worker, worker.run(step, batch));
    found.set(worker, state);
  });
  EXPECT_EQ(found.common().back(), 53) << "rows";
  EXPECT_NEAR(metric.result(found.common()), alone.evaluate(rows.batch(53)).at("accuracy"), 1e-6);
}

TEST(MultiWorkerTraining, CallbacksDecideAlikeAndTheChiefAloneWrites) {
  const std::string folder = make_folder();
  Found<size_t> epochs;
  Found<int> saves;
  on_good_workers(2, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier(1e-9);  // learns nothing
    const std::string own = folder + (worker.is_chief() ? "/chief" : "/other");
    std::filesystem::create_directory(own);
    const History history = model.fit(
        points(32).batch(8),
        quietly({callbacks::EarlyStopping({.monitor = "accuracy", .patience = 2}),
                 callbacks::CSVLogger(own + "/log.csv"), callbacks::TensorBoard(own + "/events"),
                 callbacks::ModelCheckpoint(own + "/model-{epoch}.safetensors", {.keep = 1}),
                 callbacks::ProgressBar()},
                20));
    epochs.set(worker, history.epochs.size());
    saves.set(worker, files_in(own));
  });
  EXPECT_EQ(epochs.common(), 3u);
  EXPECT_EQ(saves.values().at(0), 3) << "a log, events and the newest model";
  EXPECT_EQ(saves.values().at(1), 0);
  EXPECT_EQ(lines_in(folder + "/chief/log.csv"), 4);
}

TEST(MultiWorkerTraining, TheTimeIsThatOfTheChiefOnEveryWorker) {
  Found<std::vector<double>> found;
  on_good_workers(3, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    std::vector<double> times;
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_end = [&](Training& training) {
      std::this_thread::sleep_for(std::chrono::milliseconds(worker.workers().rank()));
      times.push_back(training.elapsed().count());
    };
    model.fit(points(64).batch(8), quietly({hooks}));
    found.set(worker, std::move(times));
  });
  const std::vector<double> times = found.common();
  ASSERT_EQ(times.size(), 16u);
  EXPECT_GT(times.front(), 0);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_GE(times.back() - times.front(), 14 * 0.002) << "all wait for the last worker";
}

TEST(MultiWorkerTraining, ATimeLimitEndsAllAfterTheSameStep) {
  Found<int64_t> steps;
  on_good_workers(3, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_end = [&](Training& training) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * worker.workers().rank()));
      steps.set(worker, training.total_steps());
    };
    model.fit(points(64).batch(8),
              quietly({hooks, callbacks::TimeLimit(std::chrono::milliseconds(60))}, 100));
  });
  EXPECT_LT(steps.common(), 800);
}

TEST(MultiWorkerTraining, AllSaveAfterTheSameSteps) {
  const std::string folder = make_folder();
  on_good_workers(3, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_end = [&](Training&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(worker.workers().rank()));
    };
    constexpr std::chrono::milliseconds kInterval(3);
    model.fit(
        points(64).batch(8),
        quietly({hooks,
                 callbacks::BackupAndRestore(folder + "/backup", {.save_interval = kInterval}),
                 callbacks::ModelCheckpoint(folder + "/{epoch}-{batch}",
                                            {.save_interval = kInterval})}));
  });
  EXPECT_GT(files_in(folder), 1);
}

TEST(MultiWorkerTraining, StepsTellForWhichWorkerTheyHaveWaited) {
  Found<StepShares> found;
  on_good_workers(2, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_begin = [&](Training&) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
      while (!worker.is_chief() && std::chrono::steady_clock::now() < end) {
      }
    };
    hooks->epoch_end = [&](Training& training, Logs&) {
      found.set(worker, training.step_shares());
    };
    model.fit(points(64).batch(8), quietly({hooks}));
  });
  const StepShares& chief = found.values().at(0);
  EXPECT_EQ(chief.for_worker.at(0), 0) << "itself";
  EXPECT_EQ(chief.steps, 8);
  EXPECT_GT(8 * chief.seconds * chief.for_worker.at(1), 0.005) << "of 0.04 s";
  for (const auto& [rank, shares] : found.values())
    EXPECT_NEAR(shares.compute + shares.input + shares.communication.value() + shares.for_workers(),
                1, 1e-9);
}

// Whose names for the files may be others than the chief's.
TEST(MultiWorkerTraining, TheChiefDecidesWhichFilesAreTheBest) {
  const std::string folder = make_folder();
  on_good_workers(2, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    const std::string path = folder + (worker.is_chief() ? "/best" : "/other-{epoch}");
    model.fit(points(32).batch(8),
              quietly({script("val_loss", {2, 3, 1, 4}),
                       callbacks::ModelCheckpoint(path, {.save_best_only = true, .keep = 2})},
                      4));
  });
  EXPECT_EQ(files_in(folder), 1);
}

TEST(MultiWorkerTraining, AnErrorOfOneCallbackIsThrownByAll) {
  const auto errors = on_workers(2, [](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    auto hooks = std::make_shared<Hooks>();
    const bool breaks = !worker.is_chief();
    hooks->batch_end = [breaks](Training& training) {
      if (breaks && training.step() == 2) fail(Code::kResourceExhausted, "the pen is empty");
    };
    model.fit(points(40).batch(8), quietly({hooks}));
  });
  EXPECT_THAT(errors, Each("RESOURCE_EXHAUSTED: fit: epoch 1, step 3: the pen is empty (peer "
                           "worker:1)"));
}

TEST(MultiWorkerTraining, WhatACallbackThrowsThatIsNoErrorIsToldToAll) {
  const auto train = [](const std::function<void()>& mistake) {
    return on_workers(2, [&](Worker& worker) {
      const auto scope = worker.scope();
      auto model = classifier();
      auto hooks = std::make_shared<Hooks>();
      hooks->batch_end = [&](Training& training) {
        if (worker.is_chief() && training.step() == 2) mistake();
      };
      model.fit(points(40).batch(8), quietly({hooks}));
    });
  };
  const auto others = train([] { throw std::runtime_error("the pen is empty"); });
  EXPECT_EQ(others[0], "the pen is empty") << "as it was thrown";
  EXPECT_THAT(others[1], AllOf(HasSubstr("ABORTED: "), HasSubstr("the pen is empty"),
                               HasSubstr("(peer worker:0)")));
  EXPECT_THAT(train([] { throw std::bad_alloc(); }),
              Each(AllOf(HasSubstr("RESOURCE_EXHAUSTED: "), HasSubstr("std::bad_alloc"),
                         HasSubstr("(peer worker:0)"))));
}

// Of which the second worker reads some that are no numbers.
data::Dataset broken_points(const Worker& worker) {
  const bool breaks = !worker.is_chief();
  return points(40).map([breaks, n = 0](data::Element e) mutable {
    if (breaks && ++n >= 10) e.set("x", Tensor::full(DType::kFloat32, {2}, std::nan("")));
    return e;
  });
}

// The loss is that of all rows, so all see it in the same epoch, whoever has the row at fault.
TEST(MultiWorkerTraining, ALossThatIsNoNumberIsTheSameErrorOnAll) {
  const auto errors = on_workers(2, [](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    model.fit(broken_points(worker).batch(8), quietly());
  });
  EXPECT_THAT(errors, Each(HasSubstr("OUT_OF_RANGE: fit: epoch 1: the loss is")));
}

Model classifier_with(optim::NonFinite policy) {
  auto model = classifier();
  model.compile({.optimizer = optim::SGD(0.1, {.gradients = {.non_finite = policy}}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  return model;
}

TEST(MultiWorkerTraining, AGradientThatIsNotFiniteIsAnErrorOfItsStepOnAll) {
  const auto errors = on_workers(2, [](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier_with(optim::NonFinite::kError);
    model.fit(broken_points(worker).batch(8), quietly());
  });
  EXPECT_THAT(
      errors,
      Each(AllOf(HasSubstr("OUT_OF_RANGE: fit: epoch 1, step "), HasSubstr("on replica 1 in step "),
                 HasSubstr("the gradient of variable \"dense"), HasSubstr("(peer worker:1)"))));
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(MultiWorkerTraining, AllGoOnWithTheSameBitsWithoutWhatIsNotFinite) {
  for (const auto policy : {optim::NonFinite::kSkip, optim::NonFinite::kZero}) {
    Found<std::string> weights;
    on_good_workers(2, [&](Worker& worker) {
      const auto scope = worker.scope();
      auto model = classifier_with(policy);
      const std::string before = bits(model);
      FitOptions options = quietly();
      options.allow_nan_loss = true;
      model.fit(broken_points(worker).batch(8), options);
      const std::string after = bits(model);
      EXPECT_NE(after, before);
      weights.set(worker, after);
      for (const auto& variable : model.variables()) {
        const Tensor values = variable->value();
        for (const float value : values.values<float>())
          ASSERT_TRUE(std::isfinite(value)) << variable->name();
      }
    });
    weights.common();
  }
}

// --- Saving

TEST(MultiWorkerSaving, TheChiefWritesAndReadsForAll) {
  const std::string folder = make_folder();
  Found<std::string> before, after;
  on_good_workers(3, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    model.fit(points(24).batch(8), quietly());
    before.set(worker, bits(model));
    // The others' paths lead nowhere.
    const std::string path = worker.is_chief() ? folder + "/model" : "/nowhere/model";
    model.save_checkpoint(path);
    model.fit(points(24).batch(8), quietly());
    model.load_checkpoint(path);
    after.set(worker, bits(model));
  });
  EXPECT_EQ(before.common(), after.common());
  EXPECT_EQ(files_in(folder), 1);
}

TEST(MultiWorkerSaving, AWriteThatFailsIsAnErrorOnAll) {
  const auto errors = on_workers(2, [](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    model.save_weights("/proc/model.safetensors");
  });
  EXPECT_THAT(errors, Each(HasSubstr("/proc")));
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(MultiWorkerSaving, ByTheChiefAloneIsAnErrorAndNoHang) {
  const std::string folder = make_folder();
  const auto errors = on_workers(2, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    if (worker.is_chief()) model.save_weights(folder + "/model");
    model.fit(points(24).batch(8), quietly());
  });
  EXPECT_THAT(errors, Each(HasSubstr("worker:0 is at the saving of 4 variables and worker:1 at")));
}

TEST(MultiWorkerSaving, OfOtherThingsIsAnError) {
  const std::string folder = make_folder();
  const auto saves = on_workers(2, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    model.fit(points(24).batch(8), quietly());  // makes the optimizer's variables
    if (worker.is_chief())
      model.save_weights(folder + "/model");
    else
      model.save_checkpoint(folder + "/model");
  });
  EXPECT_THAT(saves, Each(HasSubstr("worker:0 is at the saving of 4 variables and worker:1 at the "
                                    "saving of ")));
  const auto savers = on_workers(2, [&](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    std::vector<CallbackPtr> all = {callbacks::BackupAndRestore(folder)};
    if (worker.is_chief()) all.push_back(callbacks::ModelCheckpoint(folder + "/best"));
    model.fit(points(24).batch(8), quietly(all));
  });
  EXPECT_THAT(savers, Each(HasSubstr("worker:0 is at a folder for ModelCheckpoint "
                                     "and worker:1 at a folder for BackupAndRestore")));
  EXPECT_FALSE(std::filesystem::exists(folder + "/best"));
}

// The chief alone finds out; what becomes of it is the same on all.
TEST(MultiWorkerSaving, WhatTheChiefCannotWriteWhileTrainingGoesOnEndsItOnNobody) {
  const std::string folder = make_folder();
  const auto train = [&](int64_t full_until, Found<std::string>& weights,
                         Found<std::vector<double>>& failed) {
    return on_workers(3, [&](Worker& worker) {
      const auto scope = worker.scope();
      auto model = wide_classifier();
      std::optional<FileSizeLimit> full;
      auto hooks = std::make_shared<Hooks>();
      hooks->epoch_begin = [&](Training& training) {
        if (!worker.is_chief()) return;
        if (training.epoch() == 1) full.emplace(32 << 10);
        if (training.epoch() == full_until) full.reset();
      };
      std::vector<CallbackPtr> callbacks = {hooks, callbacks::ModelCheckpoint(folder + "/model"),
                                            callbacks::BackupAndRestore(folder + "/backup")};
      History history = model.fit(points(24).batch(8), quietly(callbacks, 4));
      weights.set(worker, bits(model));
      failed.set(worker, history.results["failed_saves"]);
    });
  };
  Found<std::string> expected, found, unused;
  Found<std::vector<double>> none, failed, no_history;
  EXPECT_THAT(train(1, expected, none), Each(""));
  EXPECT_THAT(train(3, found, failed), Each(""));
  EXPECT_EQ(found.common(), expected.common());
  EXPECT_EQ(none.common(), std::vector<double>());
  EXPECT_EQ(failed.common(), (std::vector<double>{2, 4, 4}));
  const auto errors = train(-1, unused, no_history);
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("RESOURCE_EXHAUSTED: fit: training is complete, and its "
                                           "files are not: ModelCheckpoint could not write "),
                                 HasSubstr("(peer worker:0)"))));
  EXPECT_THAT(errors, Each(errors[0]));
}

// The others do not write, and so have no error of their own.
TEST(MultiWorkerSaving, ALogThatTheChiefCannotWriteIsAnErrorOnAll) {
  const auto errors = on_workers(3, [](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    model.fit(points(24).batch(8), quietly({callbacks::CSVLogger("/dev/full")}));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("RESOURCE_EXHAUSTED: fit: training is complete, and its "
                                           "files are not: CSVLogger could not write "),
                                 HasSubstr("(peer worker:0)"))));
  EXPECT_THAT(errors, Each(errors[0]));
}

// --- Stopping and going on

class MultiWorkerBackup : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, MultiWorkerBackup, ::testing::Values(1, 2, 3));

TEST_P(MultiWorkerBackup, ARequestToOneStopsAllAtOneStepAndTheyGoOnWithTheSameBits) {
  const std::string folder = make_folder();
  const auto train = points(50).shuffle(50, {.seed = 4}).batch(8);
  const auto fit = [&](Worker& worker, const std::string& backup, int64_t stop_at,
                       Found<std::string>& weights, Found<std::vector<double>>& losses) {
    const auto scope = worker.scope();
    auto model = classifier();
    auto hooks = std::make_shared<Hooks>();
    const bool asks = worker.workers().rank() == worker.workers().size() - 1;
    hooks->batch_end = [asks, stop_at](Training& training) {
      if (asks && training.total_steps() == stop_at) request_stop(StopRequest::kTermination);
    };
    const auto history =
        model.fit(train, quietly({hooks, callbacks::BackupAndRestore(folder + backup)}, 3));
    weights.set(worker, bits(model));
    losses.set(worker, history["loss"]);
  };
  init();
  Found<std::string> expected, found, unused;
  Found<std::vector<double>> expected_losses, losses, no_losses;
  on_good_workers(GetParam(), [&](Worker& w) { fit(w, "/whole", -1, expected, expected_losses); });
  const auto errors =
      on_workers(GetParam(), [&](Worker& w) { fit(w, "/broken", 9, unused, no_losses); });
  EXPECT_THAT(errors, Each(HasSubstr("CANCELLED: fit: interrupted in epoch 2 after step")));
  EXPECT_THAT(errors, Each(errors[0])) << "all at one step";
  init();
  on_good_workers(GetParam(), [&](Worker& w) { fit(w, "/broken", -1, found, losses); });
  EXPECT_EQ(found.common(), expected.common());
  std::vector<double> rest = expected_losses.common();
  rest.erase(rest.begin());
  EXPECT_EQ(losses.common(), rest);
  EXPECT_EQ(files_in(folder), 0) << "a backup is removed in the end";
}

// The chief's file gives all what it says; with what the others keep they would stop elsewhere.
TEST_P(MultiWorkerBackup, HoldsWhatCallbacksKeepForAllWorkers) {
  const std::string folder = make_folder();
  const auto fit = [&](Worker& worker, const std::string& name, int64_t die,
                       Found<std::string>& weights, Found<std::vector<int64_t>>& epochs) {
    const auto scope = worker.scope();
    auto model = classifier();
    const std::string own = folder + name + (worker.is_chief() ? "/chief" : "/other");
    const auto history =
        model.fit(points(40).shuffle(40, {.seed = 4}).batch(8),
                  quietly({callbacks::BackupAndRestore(own, {.save_freq = 2}), die_after(die),
                           script("val_loss", {5, 1, 3, 3, 3, 3, 3, 3}),
                           callbacks::ModelCheckpoint(own + "/best", {.save_best_only = true}),
                           callbacks::ReduceLROnPlateau({.factor = 0.5, .patience = 2}),
                           callbacks::EarlyStopping({.patience = 4, .restore_best_weights = true})},
                          8));
    weights.set(worker, bits(model));
    epochs.set(worker, history.epochs);
  };
  Found<std::string> expected, found, none;
  Found<std::vector<int64_t>> all, rest, no_epochs;
  on_good_workers(GetParam(), [&](Worker& w) { fit(w, "/whole", -1, expected, all); });
  const auto errors =
      on_workers(GetParam(), [&](Worker& w) { fit(w, "/broken", 18, none, no_epochs); });
  EXPECT_THAT(errors, Each(HasSubstr("the power is gone")));
  on_good_workers(GetParam(), [&](Worker& w) { fit(w, "/broken", -1, found, rest); });
  EXPECT_EQ(all.common(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(rest.common(), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(found.common(), expected.common());
  EXPECT_EQ(read_file(folder + "/broken/chief/best"), read_file(folder + "/whole/chief/best"));
}

TEST_P(MultiWorkerBackup, StaysUntilTrainingHasEndedWellOnAllWorkers) {
  const std::string folder = make_folder();
  const auto fit = [&](Worker& worker, bool fails) {
    const auto scope = worker.scope();
    auto model = classifier();
    auto hooks = std::make_shared<Hooks>();
    const bool is_last = worker.workers().rank() == worker.workers().size() - 1;
    hooks->train_end = [is_last, fails](Training&) {
      if (is_last && fails) fail(Code::kAborted, "the pen is empty");
    };
    model.fit(points(16).batch(8), quietly({hooks, callbacks::BackupAndRestore(folder)}));
  };
  EXPECT_THAT(on_workers(GetParam(), [&](Worker& w) { fit(w, true); }),
              Each(HasSubstr("the pen is empty")));
  EXPECT_TRUE(std::filesystem::exists(folder + "/backup.safetensors"));
  on_good_workers(GetParam(), [&](Worker& w) { fit(w, false); });
  EXPECT_EQ(files_in(folder), 0);
}

// Where training stands, and with what weights and learning rate.
struct Standing {
  int64_t epoch = 0, step = 0, steps = 0;
  std::string weights;
  bool operator==(const Standing&) const = default;
};

// Backups of three workers, with which two go on. The rate of an epoch depends on that of the one
// before.
class MultiWorkerBackupOfOthers
    : public ::testing::TestWithParam<std::optional<int64_t> /*steps_per_epoch*/> {
 protected:
  // Three epochs of six steps, where nothing ends training.
  void fit(Worker& worker, const std::function<void(const Training&)>& batch_end,
           Found<Standing>& begun, Found<Standing>& ended) const {
    const auto scope = worker.scope();
    auto model = classifier();
    const auto standing = [](Training& training) {
      return Standing{training.epoch(), training.step(), training.total_steps(),
                      bits(training.model())};
    };
    bool is_begun = false;
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_begin = [&](Training& training) {
      if (!std::exchange(is_begun, true)) begun.set(worker, standing(training));
    };
    hooks->batch_end = [&](Training& training) { batch_end(training); };
    hooks->train_end = [&](Training& training) { ended.set(worker, standing(training)); };
    const auto halve = [](int64_t, double rate) { return rate / 2; };
    FitOptions options = quietly(
        {callbacks::LearningRateScheduler(halve), hooks, callbacks::BackupAndRestore(folder_)}, 3);
    options.steps_per_epoch = GetParam();
    model.fit(points(48).shuffle(48, {.seed = 4}).batch(8), options);
  }
  std::vector<std::string> fit_by_three(const std::function<void(const Training&)>& batch_end) {
    return on_workers(3, [&](Worker& w) { fit(w, batch_end, unused_, stopped_); });
  }
  void go_on_by_two() {
    on_good_workers(2, [&](Worker& w) {
      fit(
          w, [](const Training&) {}, begun_, ended_);
    });
  }

  const std::string folder_ = make_folder();
  Found<Standing> unused_, stopped_, begun_, ended_;
};
INSTANTIATE_TEST_SUITE_P(StepsPerEpoch, MultiWorkerBackupOfOthers,
                         ::testing::Values(std::optional<int64_t>(), std::optional<int64_t>(6)));

TEST_P(MultiWorkerBackupOfOthers, InTheMiddleOfAnEpochGoesOnWithItsWeights) {
  init();
  const auto errors = fit_by_three([](const Training& training) {
    if (training.total_steps() == 8) request_stop(StopRequest::kTermination);
  });
  EXPECT_THAT(errors, Each(HasSubstr("CANCELLED: fit: interrupted in epoch 2 after step")));
  init();
  ::testing::internal::CaptureStderr();
  go_on_by_two();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("has the places in the data of 3 workers"),
                    HasSubstr("goes on with 2 workers"),
                    HasSubstr(GetParam() ? "a new pass over the data begins"
                                         : "epoch 2, of which they had done ")));
  Standing expected = stopped_.common();
  if (!GetParam()) expected.step = 0;
  EXPECT_EQ(begun_.common(), expected);
  EXPECT_EQ(ended_.common().epoch, 3);
  EXPECT_EQ(ended_.common().steps, GetParam() ? 18 : expected.steps + 12);
}

TEST_P(MultiWorkerBackupOfOthers, BetweenEpochsGoesOnWithTheNextOne) {
  const auto errors = fit_by_three([](const Training& training) {
    if (training.total_steps() == 13) fail(Code::kAborted, "the power is gone");
  });
  EXPECT_THAT(errors, Each(HasSubstr("the power is gone")));
  go_on_by_two();
  const Standing begun = begun_.common();
  EXPECT_EQ(begun.epoch, 2);
  EXPECT_EQ(begun.step, 0);
  EXPECT_EQ(begun.steps, 12);
  EXPECT_EQ(ended_.common().steps, 18);
}

}  // namespace
}  // namespace cohort::testing
