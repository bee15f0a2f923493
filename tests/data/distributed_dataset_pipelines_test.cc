// Batches divided over several input pipelines.

#include <algorithm>

#include "core/base/random.h"
#include "core/data/files.h"
#include "tests/data/worker.h"

namespace cohort::data {
namespace {

// What each of `workers` workers gets.
std::vector<Steps> on_workers(const Dataset& dataset, int workers, int replicas,
                              const InputOptions& options = {}) {
  std::vector<Steps> all;
  for (int w = 0; w < workers; ++w) {
    const auto distributed = Worker(replicas, workers, w).distribute_dataset(dataset, options);
    all.push_back(steps(distributed, /*epoch=*/4));
    const int64_t announced = distributed.cardinality();
    EXPECT_TRUE(announced == kUnknown || announced == static_cast<int64_t>(all.back().size()));
  }
  return all;
}

TEST(SeveralPipelines, HaveEqualNumbersOfSteps) {
  EXPECT_EQ(on_workers(range(9).batch(2), 2, 1),
            (std::vector<Steps>{{{{0}}, {{2}}, {{4}}, {{6}}, {{8}}},
                                {{{1}}, {{3}}, {{5}}, {{7}}, {{}}}}));
  EXPECT_EQ(on_workers(range(9).batch(2, {.drop_remainder = true}), 2, 1),
            (std::vector<Steps>{{{{0}}, {{2}}, {{4}}, {{6}}}, {{{1}}, {{3}}, {{5}}, {{7}}}}));
  EXPECT_EQ(on_workers(range(15).batch(4), 2, 2),
            (std::vector<Steps>{{{{0}, {2}}, {{4}, {6}}, {{8}, {10}}, {{12}, {14}}},
                                {{{1}, {3}}, {{5}, {7}}, {{9}, {11}}, {{13}, {}}}}));
}

// As for (epoch ...) for (auto& batch : strategy.distribute_dataset(train)) does.
TEST(SeveralPipelines, CountThePassesOfTheDatasetHoweverOftenItIsDistributed) {
  const Dataset dataset = range(64).shuffle(64).batch(8);
  Worker worker(1, 2, 1);
  for (uint64_t epoch = 0; epoch < 3; ++epoch)
    EXPECT_EQ(worker.distribute_dataset(dataset).iterate().epoch(), epoch);
  EXPECT_EQ(dataset.iterate().epoch(), 3u);
  const auto once = worker.distribute_dataset(dataset);
  DistributedIterator fourth = once.iterate(), fifth = once.iterate();
  EXPECT_NE(rest(fourth), rest(fifth));
  EXPECT_EQ(once.iterate().epoch(), 6u);
}

TEST(DistributeDataset, KeepsTheOrderOfItsElementsWhateverMapMayDo) {
  for (const int workers : {1, 2}) {
    Values all;
    std::vector<Steps> each;
    for (int w = 0; w < workers; ++w) {
      Worker worker(1, workers, w);
      each.push_back(steps(
          worker.distribute_dataset(in_order_of_completion(12).batch(4), {.keep_order = true})));
    }
    for (size_t s = 0; s < each[0].size(); ++s)
      for (const Steps& mine : each) all.insert(all.end(), mine[s][0].begin(), mine[s][0].end());
    EXPECT_EQ(all, count_up(0, 12)) << workers << " workers";
  }
}

TEST(SeveralPipelines, ShuffleTwoInputsOfOneShuffleAlike) {
  const Dataset shuffled = range(24).shuffle(24);
  const auto renamed = [](const Element& e) { return Element{{"other", e["value"]}}; };
  const Dataset dataset = zip(shuffled.batch(4), shuffled.map(renamed).batch(4));
  Worker worker(1, 2, 1);
  for (auto& batch : worker.distribute_dataset(dataset)) {
    const auto values = batch[0]["value"].values<int64_t>();
    const auto others = batch[0]["other"].values<int64_t>();
    EXPECT_TRUE(std::equal(values.begin(), values.end(), others.begin(), others.end()));
  }
}

TEST(SeveralPipelines, RotateTheirSizes) {
  EXPECT_EQ(on_workers(range(10).batch(5), 2, 1),
            (std::vector<Steps>{{{{0, 2, 4}}, {{6, 8}}}, {{{1, 3}}, {{5, 7, 9}}}}));
}

TEST(SeveralPipelines, TakeTheLastRowsInAsFewStepsAsItTakes) {
  // The second pipeline's sizes are 4 and 6, which would leave it one of its 5 elements.
  EXPECT_EQ(on_workers(range(10).batch(10), 2, 2),
            (std::vector<Steps>{{{{0, 2, 4}, {6, 8}}}, {{{1, 3, 5}, {7, 9}}}}));
  EXPECT_EQ(on_workers(range(2).batch(1), 3, 1),
            (std::vector<Steps>{{{{0}}, {{}}}, {{{}}, {{1}}}, {{{}}, {{}}}}));
  EXPECT_EQ(
      on_workers(range(10).batch(3, {.drop_remainder = true}), 3, 1),
      (std::vector<Steps>{{{{0}}, {{3}}, {{6}}}, {{{1}}, {{4}}, {{7}}}, {{{2}}, {{5}}, {{8}}}}));
}

TEST(SeveralPipelines, DropTheRemainderOfTheWholeDataset) {
  for (const int64_t count : {0, 9, 10, 29, 30, 31, 55}) {
    SCOPED_TRACE(str(count, " elements"));
    const auto each = on_workers(range(count).batch(10, {.drop_remainder = true}), 2, 2);
    for (const Steps& mine : each) ASSERT_EQ(static_cast<int64_t>(mine.size()), count / 10);
    for (int64_t s = 0; s < count / 10; ++s) {
      size_t rows = 0;
      for (const Steps& mine : each)
        for (const Values& part : mine[s]) rows += part.size();
      EXPECT_EQ(rows, 10u) << "step " << s;
    }
  }
}

TEST(SeveralPipelines, WithoutElementsStillStep) {
  const auto on_third = Worker(2, 3, 2).distribute_dataset(range(2).shuffle(5).batch(6));
  EXPECT_EQ(steps(on_third), (Steps{{{}, {}}}));
  EXPECT_EQ(str((*on_third.iterate().next())[1]), "{value: int64[0]}");
}

TEST(SeveralPipelines, AlignThePassesOfARepeat) {
  const auto each = on_workers(range(3).batch(2).repeat(2), 2, 1);
  EXPECT_EQ(each, (std::vector<Steps>{{{{0}}, {{2}}, {{0}}, {{2}}}, {{{1}}, {{}}, {{1}}, {{}}}}));
}

TEST(SeveralPipelines, CountStepsOfGlobalBatches) {
  EXPECT_EQ(on_workers(range(100).batch(4).skip(1).take(2), 2, 2),
            (std::vector<Steps>{{{{4}, {6}}, {{8}, {10}}}, {{{5}, {7}}, {{9}, {11}}}}));
}

TEST(SeveralPipelines, FindAGeneratorThatHasMoreElementsThanItSays) {
  const auto ten = [] {
    return [next = int64_t{0}]() mutable -> std::optional<Element> {
      if (next == 10) return std::nullopt;
      return Element{{"value", Tensor::scalar(next++)}};
    };
  };
  for (const int index : {0, 1})
    expect_error(
        [&] {
          steps(
              Worker(1, 2, index).distribute_dataset(generator(ten, {.cardinality = 6}).batch(2)));
        },
        Code::kInvalidArgument, {"says 6 elements"});
}

TEST(SeveralPipelines, FollowThePolicy) {
  const auto ten = [](const std::string& path) {
    return range(4).map([first = int64_t{std::stoll(path)}](const Element& e) {
      return Element{{"value", Tensor::scalar(first + e["value"].values<int64_t>()[0])}};
    });
  };
  const Dataset files = from_files({"0", "10", "20", "30"}, ten).batch(4);
  EXPECT_EQ(on_workers(files, 2, 1)[1], (Steps{{{10, 11}}, {{12, 13}}, {{30, 31}}, {{32, 33}}}));
  EXPECT_EQ(on_workers(files, 2, 1, {.auto_shard = AutoShardPolicy::kData})[1],
            (Steps{{{1, 3}}, {{11, 13}}, {{21, 23}}, {{31, 33}}}));
  EXPECT_EQ(on_workers(files.skip(1).take(2), 2, 1, {.auto_shard = AutoShardPolicy::kFile})[1],
            (Steps{{{12, 13}}, {{30, 31}}}));
  const auto as_label = [](const Element& e) { return Element{{"label", e["value"]}}; };
  const Dataset labelled = zip(files, range(16).map(as_label).batch(4));
  expect_error([&] { on_workers(labelled, 2, 1, {.auto_shard = AutoShardPolicy::kFile}); },
               Code::kInvalidArgument, {"by file", "zip()"});
  const Dataset one_file = from_files({"0"}, ten).batch(4);
  EXPECT_EQ(on_workers(one_file, 2, 1), (std::vector<Steps>{{{{0, 2}}}, {{{1, 3}}}}));
  EXPECT_EQ(on_workers(one_file, 2, 1, {.auto_shard = AutoShardPolicy::kFile}),
            (std::vector<Steps>{{{{0, 1}}, {{2, 3}}}, {}}));
  EXPECT_EQ(on_workers(range(4).batch(2), 2, 1, {.auto_shard = AutoShardPolicy::kOff})[1],
            (Steps{{{0}}, {{1}}, {{2}}, {{3}}}));
  expect_error([] { on_workers(range(4).batch(2), 2, 1, {.auto_shard = AutoShardPolicy::kFile}); },
               Code::kNotFound, {"by file"});
}

TEST(SeveralPipelines, ShareTheRowsOfBatchesThatAFunctionMakes) {
  const Dataset made = batches_from_a_generator({5, 3});
  EXPECT_EQ(on_workers(made, 2, 2),
            (std::vector<Steps>{{{{0, 1}, {2}}, {{5}, {6}}}, {{{3}, {4}}, {{7}, {}}}}));
  expect_error([&] { on_workers(made, 2, 2, {.auto_shard = AutoShardPolicy::kOff}); },
               Code::kInvalidArgument, {"made by a function", "batch(n)"});
}

TEST(SeveralPipelines, AskForBatchesWhereAFunctionHasMadeNone) {
  const auto same = [](const Element& e) { return e; };
  for (const bool keep_order : {false, true}) {
    DistributedIterator scalars =
        Worker(1, 2, 1)
            .distribute_dataset(range(8).map(same), {.keep_order = keep_order})
            .iterate();
    try {
      scalars.next();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      const std::string& said = error.message();
      EXPECT_TRUE(said.starts_with("the elements {value: int64[]}, ")) << said;
      EXPECT_NE(said.find("are no batches: add batch(n)"), std::string::npos) << said;
    }
  }
}

TEST(SeveralPipelines, NeedEquallyManyReplicas) {
  class Uneven : public Strategy {
   public:
    std::string name() const override { return "Uneven"; }
    const std::vector<Device>& devices() const override { return devices_; }
    int num_replicas_in_sync() const override { return 5; }
    std::shared_ptr<Variable> create_variable(const VariableOptions&) override { return nullptr; }
    std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                           const Value&) override {
      return gradients;
    }

   private:
    PerReplica<std::vector<Tensor>> run_replicas(const Function&,
                                                 const PerReplica<std::vector<Tensor>>&,
                                                 const ReplicaGroup&, const RunOptions&) override {
      return {};
    }
    std::vector<Device> devices_ = std::vector<Device>(2);
  } uneven;
  expect_error([&] { uneven.distribute_dataset(range(9).batch(2)); }, Code::kInvalidArgument,
               {"Uneven", "5 replicas", "2 are here"});
}

TEST(SeveralPipelines, ReadEveryElementOnceInBalancedSteps) {
  constexpr uint64_t kSeed = 31;
  RandomStream random(kSeed);
  for (int trial = 0; trial < 150; ++trial) {
    const auto count = static_cast<int64_t>(random.below(70));
    const auto batch = static_cast<int64_t>(1 + random.below(12));
    const int workers = static_cast<int>(1 + random.below(4));
    const int replicas = static_cast<int>(1 + random.below(4));
    const bool shuffled = random.below(2) == 0;
    SCOPED_TRACE(str("seed ", kSeed, ", trial ", trial, ": ", count, " elements, batch ", batch,
                     ", ", workers, " x ", replicas));
    const Dataset elements = shuffled ? range(count).shuffle(1 + count / 2) : range(count);
    const auto each = on_workers(elements.batch(batch), workers, replicas, {.prefetch = 0});

    const auto number = static_cast<size_t>((count + batch - 1) / batch);
    for (const Steps& mine : each) ASSERT_EQ(mine.size(), number);
    Values all;
    for (size_t s = 0; s < number; ++s) {
      bool full = true;  // every pipeline could fill its part of the step
      int64_t total = 0;
      for (int w = 0; w < workers; ++w) {
        const auto parts = rebatch_sizes(batch, workers, replicas, w);
        for (int r = 0; r < replicas; ++r) {
          const Values& part = each[w][s][r];
          all.insert(all.end(), part.begin(), part.end());
          total += static_cast<int64_t>(part.size());
          full &= static_cast<int64_t>(part.size()) == parts[(s % workers) * replicas + r];
          EXPECT_GE(each[w][s][0].size(), part.size());
          EXPECT_LE(each[w][s][0].size() - part.size(), 1u);
        }
      }
      EXPECT_TRUE(full ? total == batch : 0 < total && total <= batch) << "step " << s;
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, count_up(0, count));
  }
}

// The rows of a step on all workers, one behind the other.
Values rows_of_step(const std::vector<Steps>& each, size_t step) {
  Values rows;
  for (const Steps& mine : each)
    for (const Values& part : mine.at(step)) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

// Element i: a list of 1 to 4 elements, all i.
Dataset lists(int64_t count) {
  return range(count).map([](const Element& e) {
    const int64_t i = e["value"].values<int64_t>()[0];
    return Element{{"value", Tensor::full(DType::kInt64, {1 + i % 4}, static_cast<double>(i))}};
  });
}

// Where what is in a batch follows from all of it, a step has on several workers what it has on
// one.
TEST(SeveralPipelines, CutWholeBatchesWhereThatMatters) {
  const auto starts_below_20 = [](const Element& e) {
    return e["value"].values<int64_t>()[0] < 20;
  };
  const std::vector<Dataset> datasets = {lists(23).shuffle(9).padded_batch(4),
                                         lists(23).padded_batch(5, {.shapes = {{"value", {-1}}}}),
                                         range(40).batch(6).take_while(starts_below_20),
                                         range(23).shuffle(9).window(4, {.shift = 2}),
                                         range(9).batch(2).concatenate(range(9).batch(3))};
  for (size_t d = 0; d < datasets.size(); ++d) {
    const auto expected = on_workers(datasets[d], 1, 1);
    for (const int workers : {2, 3}) {
      SCOPED_TRACE(str("dataset ", d, " on ", workers, " workers"));
      const auto each = on_workers(datasets[d], workers, 2);
      for (const Steps& mine : each) ASSERT_EQ(mine.size(), expected[0].size());
      for (size_t step = 0; step < expected[0].size(); ++step)
        EXPECT_EQ(rows_of_step(each, step), rows_of_step(expected, step)) << "step " << step;
    }
  }
}

// Elsewhere each worker reads its elements, and together they read those of one worker.
TEST(SeveralPipelines, ReadEveryElementOnceBelowEveryTransformation) {
  const auto below_20 = [](const Element& e) { return e["value"].values<int64_t>()[0] < 20; };
  const Dataset pair = sample_from({range(9).batch(4), range(30).skip(9).shuffle(5).batch(4)});
  const std::vector<Dataset> datasets = {
      lists(23).shuffle(9).padded_batch(4, {.shapes = {{"value", {5}}}}),
      range(40).take_while(below_20).batch(6),
      range(40).batch(7).unbatch().shuffle(5).batch(6),
      range(9).concatenate(range(30).skip(9).shuffle(5)).batch(4),
      range(9).batch(4).concatenate(range(30).skip(9).shuffle(5).batch(4)),
      sample_from({range(9), range(30).skip(9)}, {0.2, 0.8}).shuffle(5).batch(4),
      pair,
      pair.unbatch().batch(3)};
  for (size_t d = 0; d < datasets.size(); ++d) {
    Values expected = values(datasets[d], /*epoch=*/4);
    std::sort(expected.begin(), expected.end());
    for (const int workers : {2, 3}) {
      SCOPED_TRACE(str("dataset ", d, " on ", workers, " workers"));
      Values all;
      for (const Steps& mine : on_workers(datasets[d], workers, 2))
        for (const Step& step : mine)
          for (const Values& part : step) all.insert(all.end(), part.begin(), part.end());
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all, expected);
    }
  }
}

// The draws of all workers are the same, so that each step is of one of the datasets.
TEST(SeveralPipelines, DrawTheSameDatasetForAStep) {
  const Dataset small = range(24).batch(4), large = range(124).skip(100).batch(4);
  const auto each = on_workers(sample_from({small, large}), 3, 1);
  ASSERT_EQ(each[0].size(), 12u);
  for (size_t step = 0; step < 12; ++step) {
    const Values rows = rows_of_step(each, step);
    ASSERT_EQ(rows.size(), 4u);
    for (const int64_t value : rows) EXPECT_EQ(value < 100, rows[0] < 100) << "step " << step;
  }
}

}  // namespace
}  // namespace cohort::data
