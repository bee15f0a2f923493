// Training by several workers, each a thread with a strategy of its own.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>

#include <gmock/gmock.h>

#include "core/base/program.h"
#include "tests/strategies/on_workers.h"
#include "tests/testing/file_size_limit.h"
#include "tests/train/testing.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Worker = MultiWorkerMirroredStrategy;

// What each worker has found, by rank.
template <typename T>
class Found {
 public:
  void set(const Strategy& strategy, T value) {
    const std::lock_guard lock(mutex_);
    values_[strategy.workers().rank()] = std::move(value);
  }
  const std::map<int, T>& values() const { return values_; }
  // The value that all have.
  T common() const {
    for (const auto& [rank, value] : values_) EXPECT_EQ(value, values_.at(0)) << "worker " << rank;
    return values_.at(0);
  }

 private:
  std::mutex mutex_;
  std::map<int, T> values_;
};

FitOptions quietly(std::vector<CallbackPtr> callbacks = {}, int64_t epochs = 2) {
  return {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent};
}

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

// --- Input

std::vector<int64_t> numbers_in(const data::Batch& batch) {
  const Tensor wide = batch["x"].cast(DType::kInt64);
  return {wide.data<int64_t>(), wide.data<int64_t>() + wide.num_elements()};
}

data::Dataset range(int64_t count) {
  Tensor x(DType::kInt64, {count});
  for (int64_t i = 0; i < count; ++i) x.data<int64_t>()[i] = i;
  return data::from_tensor_slices({{"x", x}});
}

using Numbers = std::vector<std::vector<int64_t>>;  // by step

Numbers read_all(const data::DistributedDataset& dataset, size_t most = SIZE_MAX) {
  Numbers steps;
  for (const auto& batch : dataset) {
    if (steps.size() == most) break;
    steps.emplace_back();
    for (const auto& part : batch) {
      const auto numbers = numbers_in(part);
      steps.back().insert(steps.back().end(), numbers.begin(), numbers.end());
    }
  }
  return steps;
}

TEST(MultiWorkerInput, WorkersTakeElementsInTurn) {
  Found<Numbers> whole, dropped;
  on_good_workers(2, [&](Worker& worker) {
    whole.set(worker, read_all(worker.distribute_dataset(range(9).batch(2))));
    dropped.set(worker,
                read_all(worker.distribute_dataset(range(9).batch(2, {.drop_remainder = true}))));
  });
  EXPECT_EQ(whole.values().at(0), (Numbers{{0}, {2}, {4}, {6}, {8}}));
  EXPECT_EQ(whole.values().at(1), (Numbers{{1}, {3}, {5}, {7}, {}}));
  for (const int worker : {0, 1}) EXPECT_EQ(dropped.values().at(worker).size(), 4);
}

TEST(MultiWorkerInput, IsOfOnePassOnAllWorkersAlsoWhereOneHasLookedIntoTheDataset) {
  Found<std::vector<uint64_t>> epochs;
  on_good_workers(2, [&](Worker& worker) {
    const auto batches = range(8).batch(2);
    std::vector<uint64_t> own;
    for (int i = 0; i < 2; ++i) {
      if (!worker.is_chief()) batches.iterate().next();
      own.push_back(worker.distribute_dataset(batches).iterate().epoch());
    }
    epochs.set(worker, own);
  });
  EXPECT_EQ(epochs.common(), (std::vector<uint64_t>{1, 3}));
}

// Where nobody knows how many elements there are, workers agree at each step.
TEST(MultiWorkerInput, AllStepAsLongAsAnyHasData) {
  Found<Numbers> found;
  on_good_workers(3, [&](Worker& worker) {
    const auto small = range(12).filter(
        [](const data::Element& e) { return e["x"].item() < 4 || int(e["x"].item()) % 3 == 1; });
    found.set(worker, read_all(worker.distribute_dataset(small.batch(3))));
  });
  std::vector<int64_t> all;
  for (const auto& [rank, steps] : found.values()) {
    EXPECT_EQ(steps.size(), found.values().at(0).size());
    for (const auto& step : steps) all.insert(all.end(), step.begin(), step.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<int64_t>{0, 1, 2, 3, 4, 7, 10}));
}

// A batch is smaller than the number of replicas, so that some have no row at a step, and go on to
// the next one when those that were to have some are at their end.
TEST(MultiWorkerInput, WhatHasRowsOnNoWorkerIsNoStep) {
  using Counts = std::vector<int64_t>;  // of the rows of each worker's file
  for (const Counts& counts : {Counts{1, 0}, Counts{0, 5}, Counts{2, 7}, Counts{7, 2},
                               Counts{0, 0, 3}, Counts{4, 1, 0}, Counts{0, 0, 0}}) {
    SCOPED_TRACE(::testing::PrintToString(counts));
    std::vector<std::string> files;
    for (size_t i = 0; i < counts.size(); ++i) files.push_back(str(i));
    const auto rows = data::from_files(
        files, [&](const std::string& file) { return range(counts.at(std::stoul(file))); });
    for (const int64_t batch : {1, 2}) {
      Found<Numbers> found;
      on_good_workers(static_cast<int>(counts.size()), [&](Worker& worker) {
        const auto batches = worker.distribute_dataset(rows.batch(batch).repeat(2));
        EXPECT_EQ(batches.cardinality(), data::kUnknown);
        found.set(worker, read_all(batches));
      });
      const size_t steps = found.values().at(0).size();
      std::vector<size_t> rows_of_step(steps);
      for (const auto& [rank, of_worker] : found.values()) {
        ASSERT_EQ(of_worker.size(), steps);
        std::vector<int64_t> seen, expected;
        for (size_t s = 0; s < steps; ++s) {
          seen.insert(seen.end(), of_worker[s].begin(), of_worker[s].end());
          rows_of_step[s] += of_worker[s].size();
        }
        for (int64_t i = 0; i < 2 * counts[static_cast<size_t>(rank)]; ++i)
          expected.push_back(i % counts[static_cast<size_t>(rank)]);
        EXPECT_EQ(seen, expected) << "worker " << rank << ", batches of " << batch;
      }
      EXPECT_THAT(rows_of_step, Each(::testing::Gt(0u))) << "batches of " << batch;
    }
  }
}

TEST(MultiWorkerInput, WhatRepeatsWithoutEndStepsOnWhileAnyWorkerHasRows) {
  const auto rows =
      data::from_files({"3", "0"}, [](const std::string& file) { return range(std::stoll(file)); });
  for (const auto& batches : {rows.batch(2).repeat(), rows.batch(2).repeat().take(5)}) {
    EXPECT_NE(batches.cardinality(), data::kUnknown);
    Found<Numbers> found;
    on_good_workers(2, [&](Worker& worker) {
      const InputOptions by_file{.auto_shard = AutoShardPolicy::kFile};
      found.set(worker, read_all(worker.distribute_dataset(batches, by_file), 5));
    });
    EXPECT_EQ(found.values().at(0), (Numbers{{0}, {1}, {2}, {0}, {1}}));
    EXPECT_EQ(found.values().at(1), (Numbers{{}, {}, {}, {}, {}}));
  }
}

TEST(MultiWorkerInput, AFunctionMakesEachWorkersDataset) {
  Found<Numbers> found;
  on_good_workers(3, [&](Worker& worker) {
    const auto dataset = worker.distribute_datasets_from_function([](const InputContext& context) {
      EXPECT_EQ(context.num_input_pipelines, 3);
      EXPECT_EQ(context.num_replicas_in_sync, 3);
      return range(2 * context.input_pipeline_id).batch(2);
    });
    found.set(worker, read_all(dataset));
  });
  EXPECT_EQ(found.values().at(0), (Numbers{{}, {}})) << "without a batch of its own";
  EXPECT_EQ(found.values().at(1), (Numbers{{0, 1}, {}}));
  EXPECT_EQ(found.values().at(2), (Numbers{{0, 1}, {2, 3}}));
}

TEST(MultiWorkerInput, ItsErrorIsThrownByAll) {
  const auto errors = on_workers(2, [](Worker& worker) {
    const bool broken = !worker.is_chief();
    const auto rows = points(40).map([broken, n = 0](const data::Element& e) mutable {
      if (broken && ++n > 10) fail(Code::kDataLoss, "row 10 is garbled");
      return e;
    });
    const auto scope = worker.scope();
    auto model = classifier();
    model.fit(rows.batch(8), quietly());
  });
  EXPECT_THAT(errors, Each(HasSubstr("DATA_LOSS")));
  EXPECT_THAT(errors, Each(HasSubstr("row 10 is garbled")));
}

// Where each knows how many steps there are, the others are in a step when one cannot read its
// rows.
TEST(MultiWorkerInput, ItsErrorInALoopOfOnesOwnIsThrownByAll) {
  const auto errors = on_workers(2, [](Worker& worker) {
    const auto ones = data::from_tensor_slices({{"x", Tensor::full(DType::kFloat32, {40}, 1)}});
    const auto rows = ones.map([broken = !worker.is_chief(), n = 0](data::Element e) mutable {
      if (broken && ++n > 10) fail(Code::kDataLoss, "row 10 is garbled");
      return e;
    });
    const auto step = worker.function([](const BatchValues& batch) {
      return get_replica_context()->all_reduce(ReduceOp::kSum, ops::reduce_sum(batch["x"]));
    });
    const auto batches = worker.distribute_dataset(rows.batch(8));
    EXPECT_EQ(batches.cardinality(), 5);
    for (const auto& batch : batches) EXPECT_EQ(worker.run(step, batch)[0].item(), 8);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("DATA_LOSS"), HasSubstr("row 10 is garbled"),
                                 HasSubstr("(peer worker:1)"))));
}

// Others wait in their next call, and not in the one that has thrown.
TEST(MultiWorkerInput, TheErrorOfAFunctionThatMakesItIsThrownByAll) {
  const auto one_fails = [](const Worker& worker) {
    if (!worker.is_chief()) fail(Code::kNotFound, "the list of rows is lost");
  };
  const auto batches = range(8).batch(2);
  const std::vector<std::function<void(Worker&)>> calls = {
      [&](Worker& worker) {
        worker.distribute_datasets_from_function([&](const InputContext&) {
          one_fails(worker);
          return batches;
        });
      },
      [&](Worker& worker) {
        worker.distribute_values_from_function([&](const ValueContext&) {
          one_fails(worker);
          return Tensor::scalar(1.0f);
        });
      },
      [&](Worker& worker) {
        const auto rows = data::generator([&]() -> data::NextFunction {
          one_fails(worker);
          return [] { return std::optional<data::Element>(); };
        });
        worker.distribute_datasets_from_function([&](auto&) { return rows; }).iterate();
      },
      [&](Worker& worker) {
        auto iterator = worker.distribute_dataset(batches).iterate();
        iterator.restore(worker.is_chief() ? iterator.save() : "lost");
      },
      [&](Worker& worker) {
        worker.distribute_datasets_from_function(
            [&](auto&) { return worker.is_chief() ? batches : range(8); });
      }};
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto errors = on_workers(2, [&](Worker& worker) {
      calls[i](worker);
      worker.workers().exchange("what follows", "");
    });
    EXPECT_THAT(errors, Each(HasSubstr("(peer worker:1)"))) << "call " << i;
    EXPECT_EQ(errors[0], errors[1]) << "call " << i;
  }
}

// Each is told once, on its way out of next() and of what is around it, as fit is: the next call
// meets none of them.
TEST(MultiWorkerInput, OtherExceptionsOnSeveralWorkersLeaveThemInOrder) {
  on_good_workers(2, [](Worker& worker) {
    const std::string own = str("the pen of worker ", worker.workers().rank(), " is empty");
    const auto rows = range(40).map([own, n = 0](const data::Element& e) mutable {
      if (++n > 10) throw std::runtime_error(own);
      return e;
    });
    try {
      together(worker.workers(), [&] { read_all(worker.distribute_dataset(rows.batch(8))); });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), own) << "as it was thrown";
    }
    EXPECT_EQ(worker.workers().exchange("what is left", own).size(), 2u);
  });
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

// The loss is that of all rows, so all see it in the same epoch, whoever has the row at fault.
TEST(MultiWorkerTraining, ALossThatIsNoNumberIsTheSameErrorOnAll) {
  const auto errors = on_workers(2, [](Worker& worker) {
    const bool breaks = !worker.is_chief();
    const auto rows = points(40).map([breaks, n = 0](data::Element e) mutable {
      if (breaks && ++n >= 10) e.set("x", Tensor::full(DType::kFloat32, {2}, std::nan("")));
      return e;
    });
    const auto scope = worker.scope();
    auto model = classifier();
    model.fit(rows.batch(8), quietly());
  });
  EXPECT_THAT(errors, Each(HasSubstr("OUT_OF_RANGE: fit: epoch 1: the loss is")));
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

TEST(MultiWorkerBackupOfOthers, InTheMiddleOfAnEpochIsRejected) {
  const std::string folder = make_folder();
  const auto fit = [&](Worker& worker, int64_t stop_at) {
    const auto scope = worker.scope();
    auto model = classifier();
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_end = [stop_at](Training& training) {
      if (training.total_steps() == stop_at) request_stop(StopRequest::kInterrupt);
    };
    model.fit(points(50).batch(8), quietly({hooks, callbacks::BackupAndRestore(folder)}));
  };
  init();
  EXPECT_THAT(on_workers(2, [&](Worker& w) { fit(w, 3); }), Each(HasSubstr("CANCELLED")));
  init();
  EXPECT_THAT(on_workers(3, [&](Worker& w) { fit(w, -1); }),
              Each(HasSubstr("in the middle of the data of 2 workers")));
}

}  // namespace
}  // namespace cohort::testing
