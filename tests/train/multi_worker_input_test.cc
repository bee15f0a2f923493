// What each of several workers reads, and what an error of one means for all.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/train/multi_worker_testing.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using Worker = MultiWorkerMirroredStrategy;

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
    EXPECT_EQ(dataset.cardinality(), data::kUnknown) << "another number than its own";
    found.set(worker, read_all(dataset));
  });
  EXPECT_EQ(found.values().at(0), (Numbers{{}, {}})) << "without a batch of its own";
  EXPECT_EQ(found.values().at(1), (Numbers{{0, 1}, {}}));
  EXPECT_EQ(found.values().at(2), (Numbers{{0, 1}, {2, 3}}));
}

TEST(MultiWorkerInput, FitAndEvaluateShareOutTheDataAsTheyAreTold) {
  on_good_workers(2, [](Worker& worker) {
    const auto scope = worker.scope();
    auto model = classifier();
    std::atomic<int> read = 0;
    const auto rows = points(8).map([&](const data::Element& e) { return ++read, e; }).batch(4);
    const auto read_by = [&](const std::function<void()>& call) {
      read = 0;
      call();
      return read.load();
    };
    for (const auto policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kOff}) {
      const int own = policy == AutoShardPolicy::kAuto ? 4 : 8;
      FitOptions training = quietly({}, 1), validation = quietly({}, 1);
      training.auto_shard = policy;
      validation.validation_data = rows;
      validation.validation_auto_shard = policy;
      EXPECT_EQ(read_by([&] { model.fit(rows, training); }), own);
      EXPECT_EQ(read_by([&] { model.fit(points(4).batch(4), validation); }), own);
      EXPECT_EQ(read_by([&] { model.evaluate(rows, {.auto_shard = policy}); }), own);
    }
  });
}

// What errors for datasets that differ tell to do, and what that needs.
TEST(MultiWorkerInput, SharesOfAProgramsOwnHaveToBeEqual) {
  for (const int64_t rows : {8, 9}) {
    const auto errors = on_workers(2, [&](Worker& worker) {
      const auto scope = worker.scope();
      FitOptions options = quietly({}, 1);
      options.auto_shard = AutoShardPolicy::kOff;
      classifier().fit(points(rows).shard(2, worker.workers().rank()).batch(4), options);
    });
    if (rows == 8)
      EXPECT_THAT(errors, Each(""));
    else
      EXPECT_THAT(errors,
                  Each(AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("batch(4) of 5 elements"),
                             HasSubstr("each worker needs as many of its own: by take(n)"),
                             HasSubstr("distribute_datasets_from_function"))));
  }
}

TEST(MultiWorkerInput, APolicyThatDoesNotFitTheDataOfFitIsRefused) {
  const auto errors = on_workers(2, [](Worker& worker) {
    const auto scope = worker.scope();
    FitOptions options = quietly({}, 1);
    options.auto_shard = AutoShardPolicy::kFile;
    classifier().fit(points(8).batch(4), options);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("NOT_FOUND"), HasSubstr("by file"))));
}

// The steps are the same with weights of 1 for rows that have none.
TEST(MultiWorkerInput, BatchesOfOtherThingsAreAnErrorThatNamesBoth) {
  const std::vector<std::function<void(Model&, const data::Dataset&)>> calls = {
      [](Model& model, const data::Dataset& batches) { model.fit(batches, quietly({}, 1)); },
      [](Model& model, const data::Dataset& batches) { model.evaluate(batches); },
      [](Model& model, const data::Dataset& batches) { model.predict(batches); }};
  for (const auto& call : calls) {
    const auto errors = on_workers(2, [&](Worker& worker) {
      const auto scope = worker.scope();
      auto model = classifier();
      const auto weighted = points(8).map([](data::Element e) {
        e.set("weight", Tensor::scalar(0.0f));
        return e;
      });
      call(model, (worker.is_chief() ? points(8) : weighted).batch(4));
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("worker:0 is at "),
                                   HasSubstr(" with x, label and worker:1 with x, label, weight"),
                                   HasSubstr("(peer worker:1)"))));
  }
}

TEST(MultiWorkerInput, OtherArgumentsOfFitAreAnErrorThatNamesBoth) {
  const std::vector<std::pair<std::function<void(FitOptions&)>, std::string>> cases = {
      {[](FitOptions& options) {
         options.class_weight = {{1, 0.5}};
       },
       R"("class_weight":[[1,0.5]])"},
      {[](FitOptions& options) { options.epochs = 3; }, R"("epochs":3)"},
      {[](FitOptions& options) { options.steps_per_epoch = 7; }, R"("steps_per_epoch":7)"}};
  for (const auto& [change, text] : cases) {
    const auto errors = on_workers(2, [&, &change = change](Worker& worker) {
      const auto scope = worker.scope();
      auto model = classifier();
      FitOptions options = quietly();
      if (!worker.is_chief()) change(options);
      model.fit(points(8).batch(4), options);
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("FAILED_PRECONDITION"),
                                   HasSubstr("worker:0 is at training with {\"epochs\":2"),
                                   HasSubstr("worker:1 at training with {"), HasSubstr(text))));
  }
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

// No layer is to blame for what another worker has read, also where this one is in the middle of
// it.
TEST(MultiWorkerInput, ItsErrorWhileTheOthersBuildTheModelNamesNoLayer) {
  const auto errors = on_workers(2, [](Worker& worker) {
    const bool broken = !worker.is_chief();
    const auto rows = points(40).map([broken](const data::Element& e) {
      if (broken) fail(Code::kDataLoss, "no row is right");
      return e;
    });
    const auto scope = worker.scope();
    Model model = nn::Sequential({nn::Dense(4)});
    model.compile({.optimizer = optim::SGD(0.1),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
    model.fit(rows.batch(8), quietly());
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("no row is right (peer worker:1)"), Not(HasSubstr("layer")))));
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

}  // namespace
}  // namespace cohort::testing
