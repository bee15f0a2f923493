// Batches divided over the replicas of a strategy, with one input pipeline and with several.

#include "core/data/distributed_dataset.h"

#include <algorithm>
#include <numeric>

#include "core/base/random.h"
#include "core/data/distributed_sampler.h"
#include "core/data/files.h"
#include "core/ops/math_ops.h"
#include "tests/data/testing.h"
#include "tests/distribute/testing.h"

namespace cohort::data {
namespace {

using Values = std::vector<int64_t>;
// The values of each replica at a step, and of each step.
using Step = std::vector<Values>;
using Steps = std::vector<Step>;

// The replicas of one of several workers, as far as input goes.
class Worker final : public Strategy {
 public:
  explicit Worker(int replicas, int workers = 1, int index = 0)
      : devices_(replicas), workers_(workers), index_(index) {}
  std::string name() const override { return "Worker"; }
  const std::vector<Device>& devices() const override { return devices_; }
  int num_replicas_in_sync() const override { return workers_ * local(); }
  int first_replica() const override { return index_ * local(); }
  std::shared_ptr<Variable> create_variable(const VariableOptions& options) override {
    return make_local_variable(options);
  }
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                         const Value&) override {
    return gradients;
  }

 private:
  int local() const { return static_cast<int>(devices_.size()); }
  PerReplica<std::vector<Tensor>> run_replicas(const Function&,
                                               const PerReplica<std::vector<Tensor>>&,
                                               const ReplicaGroup&, const RunOptions&) override {
    fail(Code::kUnimplemented, "a Worker only reads input");
  }

  std::vector<Device> devices_;
  int workers_, index_;
};

Step step_of(const DistributedBatch& batch) {
  Step step;
  for (const Batch& part : batch) {
    const auto here = part["value"].values<int64_t>();
    step.emplace_back(here.begin(), here.end());
  }
  return step;
}

Steps rest(DistributedIterator& iterator) {
  Steps steps;
  while (const auto batch = iterator.next()) steps.push_back(step_of(*batch));
  return steps;
}

Steps steps(const DistributedDataset& dataset, uint64_t epoch = 0) {
  DistributedIterator iterator = dataset.iterate({.epoch = epoch});
  return rest(iterator);
}

Steps split(const Dataset& dataset, int replicas, uint64_t epoch = 0) {
  return steps(Worker(replicas).distribute_dataset(dataset), epoch);
}

Dataset batches_from_a_generator(const std::vector<int64_t>& sizes) {
  return generator([sizes] {
    return [sizes, next = size_t{0}, row = int64_t{0}]() mutable -> std::optional<Element> {
      if (next == sizes.size()) return std::nullopt;
      Tensor value(DType::kInt64, {sizes[next]});
      for (int64_t i = 0; i < sizes[next]; ++i) value.data<int64_t>()[i] = row++;
      ++next;
      return Element{{"value", value}};
    };
  });
}

TEST(DistributeDataset, SplitsEachBatchEvenly) {
  EXPECT_EQ(split(range(7).batch(7), 3), (Steps{{{0, 1, 2}, {3, 4}, {5, 6}}}));
  EXPECT_EQ(split(range(8).batch(4), 2), (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}}));
  EXPECT_EQ(split(range(4).batch(4), 5), (Steps{{{0}, {1}, {2}, {3}, {}}}));
  EXPECT_EQ(split(range(3).batch(2), 1), (Steps{{{0, 1}}, {{2}}}));
}

TEST(DistributeDataset, SplitsAPartialBatchEvenlyToo) {
  EXPECT_EQ(split(range(9).batch(4), 2), (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {}}}));
  EXPECT_EQ(split(range(14).batch(8), 2).back(), (Step{{8, 9, 10}, {11, 12, 13}}));
  EXPECT_EQ(split(range(9).batch(4, {.drop_remainder = true}), 2).size(), 2u);
}

TEST(DistributeDataset, SplitsBatchesOfAnySizeThatAFunctionMakes) {
  EXPECT_EQ(split(batches_from_a_generator({4, 4}), 3),
            (Steps{{{0, 1}, {2}, {3}}, {{4, 5}, {6}, {7}}}));
  EXPECT_EQ(split(batches_from_a_generator({1, 5}), 2), (Steps{{{0}, {}}, {{1, 2, 3}, {4, 5}}}));
}

TEST(DistributeDataset, WhatHasNoRowIsNoStep) {
  const std::vector<int64_t> sizes = {0, 0, 3, 0, 0, 0, 1, 2, 0, 0};
  EXPECT_EQ(split(batches_from_a_generator(sizes), 2),
            (Steps{{{0, 1}, {2}}, {{3}, {}}, {{4}, {5}}}));
  const auto dealt = Worker(2).distribute_datasets_from_function(
      [&](const InputContext&) { return batches_from_a_generator(sizes); });
  EXPECT_EQ(steps(dealt), (Steps{{{0, 1, 2}, {}}, {{3}, {4, 5}}}));
}

TEST(DistributeDataset, EmptyPartsHaveTheSpecOfTheOthers) {
  const Dataset dataset = from_tensor_slices({{"x", Tensor::zeros(DType::kFloat64, {1, 3, 2})},
                                              {"label", Tensor::zeros(DType::kInt32, {1})}})
                              .batch(4);
  const auto batch = Worker(3).distribute_dataset(dataset).iterate().next();
  EXPECT_EQ(str((*batch)[2]), "{x: float64[0,3,2], label: int32[0]}");
  EXPECT_EQ(batch->rows(), 1);
}

TEST(DistributeDataset, SharesMemoryWithTheBatch) {
  const Tensor x = Tensor::zeros(DType::kFloat32, {5, 2});
  const Dataset dataset = generator([x] {
    return [x, done = false]() mutable -> std::optional<Element> {
      if (std::exchange(done, true)) return std::nullopt;
      return Element{{"x", x}};
    };
  });
  const auto batch = Worker(2).distribute_dataset(dataset).iterate().next();
  EXPECT_EQ((*batch)[0]["x"].data<float>(), x.data<float>());
  EXPECT_EQ((*batch)[1]["x"].data<float>(), x.data<float>() + 6);
}

TEST(DistributeDataset, TakesInfiniteUnknownAndEmptyDatasets) {
  Worker worker(2);
  const auto endless = worker.distribute_dataset(range(3).repeat().batch(2));
  EXPECT_EQ(endless.cardinality(), kInfinite);
  DistributedIterator iterator = endless.iterate();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(iterator.next());

  const auto odd = [](const Element& e) { return e["value"].values<int64_t>()[0] % 2 == 1; };
  const auto unknown = worker.distribute_dataset(range(9).filter(odd).batch(3));
  EXPECT_EQ(unknown.cardinality(), kUnknown);
  EXPECT_EQ(steps(unknown), (Steps{{{1, 3}, {5}}, {{7}, {}}}));

  const auto empty = worker.distribute_dataset(range(0).batch(3));
  EXPECT_EQ(empty.cardinality(), 0);
  EXPECT_EQ(steps(empty), Steps());
  EXPECT_EQ(worker.distribute_dataset(range(9).batch(4)).cardinality(), 3);
}

TEST(DistributeDataset, PassesAreEpochsOfTheDataset) {
  const Dataset dataset = range(20).shuffle(20).batch(4);
  const auto distributed = Worker(2).distribute_dataset(dataset);
  const auto flat = [](const Steps& all) {
    Values values;
    for (const Step& step : all)
      for (const Values& part : step) values.insert(values.end(), part.begin(), part.end());
    return values;
  };
  EXPECT_EQ(flat(steps(distributed, 3)), values(dataset, 3));
  Steps first, second;
  for (auto& batch : distributed) first.push_back(step_of(batch));
  for (auto& batch : distributed) second.push_back(step_of(batch));
  EXPECT_EQ(flat(first), values(dataset, 0));
  EXPECT_EQ(flat(second), values(dataset, 1));
  EXPECT_EQ(distributed.iterate().epoch(), 2u);
}

TEST(DistributeDataset, AsksForBatches) {
  Worker worker(2);
  for (const Dataset& dataset : {range(8), range(8).shuffle(3).repeat(), zip(range(3), range(4))})
    expect_error([&] { worker.distribute_dataset(dataset); }, Code::kInvalidArgument,
                 {"add batch(n), with the rows of all replicas together"});
  const auto same = [](const Element& e) { return e; };
  DistributedIterator scalars = worker.distribute_dataset(range(8).map(same)).iterate();
  expect_error([&] { scalars.next(); }, Code::kInvalidArgument, {"{value: int64[]}", "batch(n)"});
  expect_error([&] { worker.distribute_datasets_from_function([](auto&) { return range(8); }); },
               Code::kInvalidArgument, {"add batch(n), with the rows of one replica"});
  expect_error([&] { worker.distribute_dataset(range(8).batch(2), {.prefetch = -1}); },
               Code::kInvalidArgument, {"prefetch is -1"});
}

TEST(DistributeDataset, ThrowsWhatTheDatasetThrows) {
  const auto fail_at_6 = [](const Element& e) {
    if (e["value"].item() == 6) fail(Code::kDataLoss, "element 6 is broken");
    return e;
  };
  for (const int64_t prefetch : {0, 1, 2}) {
    DistributedIterator iterator =
        Worker(2)
            .distribute_dataset(range(9).map(fail_at_6).batch(3), {.prefetch = prefetch})
            .iterate();
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(iterator.next());
    expect_error([&] { iterator.next(); }, Code::kDataLoss, {"element 6"});
  }
}

TEST(DistributeDataset, PreparesStepsInTheBackground) {
  Level made;
  const auto count = [&](const Element& e) { return made.raise(), e; };
  const Dataset dataset = range(9).batch(1).map(count);
  DistributedIterator ahead = Worker(1).distribute_dataset(dataset, {.prefetch = 2}).iterate();
  ahead.next();
  EXPECT_TRUE(made.reaches(3)) << "the next two steps were not prepared";
}

TEST(DistributeDataset, WithoutPrefetchMakesAStepWhenAsked) {
  int made = 0;
  const Dataset dataset = range(9).batch(1).map([&](const Element& e) { return ++made, e; });
  DistributedIterator iterator = Worker(1).distribute_dataset(dataset, {.prefetch = 0}).iterate();
  EXPECT_EQ(made, 0);
  iterator.next();
  EXPECT_EQ(made, 1);
}

// --- Several input pipelines

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

TEST(SeveralPipelines, CacheTheirSharesInTheFirstPassOverEachDistribution) {
  for (const bool drop_remainder : {false, true}) {
    SCOPED_TRACE(drop_remainder);
    int calls = 0;
    const auto count = [&](const Element& e) { return ++calls, e; };
    const Dataset elements = range(41).map(count).cache();
    const Dataset batches = elements.batch(8, {.drop_remainder = drop_remainder});
    const auto pass_over = [&](const Dataset& dataset, int workers, int index) {
      return steps(Worker(1, workers, index).distribute_dataset(dataset));
    };
    const Steps first = pass_over(batches, 2, 0);
    EXPECT_EQ(calls, 21);
    EXPECT_EQ(pass_over(batches, 2, 0), first);
    EXPECT_EQ(pass_over(elements.shuffle(9).batch(8), 2, 0).size(), 6u);
    EXPECT_EQ(calls, 21) << "of a dataset that is distributed again, or made of the same cache";
    EXPECT_NE(pass_over(batches, 2, 1), first);
    EXPECT_EQ(calls, 41);
    EXPECT_NE(pass_over(batches, 3, 0), first);
    EXPECT_EQ(calls, 41 + 14) << "the first of three shares is another than the first of two";
  }
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

// The rows 0, 1, ... that a sampler names.
Dataset sampled(const DistributedSampler& sampler) {
  Tensor value(DType::kInt64, {sampler.rows()});
  for (int64_t i = 0; i < sampler.rows(); ++i) value.data<int64_t>()[i] = i;
  return from_sampler({{"value", value}}, sampler);
}

TEST(SeveralPipelines, ReadTheRowsOfTheirRankOfASampler) {
  const auto same = [](const Element& e) { return e; };
  const auto on_rank = [&](int rank) {
    const DistributedSampler sampler(10, {.num_replicas = 2, .rank = rank, .shuffle = false});
    const Dataset dataset = sampled(sampler).map(same).batch(4).prefetch(1);
    return steps(Worker(1, 2, rank).distribute_dataset(dataset));
  };
  EXPECT_EQ(on_rank(0), (Steps{{{0, 2}}, {{4, 6}}, {{8}}}));
  EXPECT_EQ(on_rank(1), (Steps{{{1, 3}}, {{5, 7}}, {{9}}}));
}

TEST(SeveralPipelines, ReadEveryRowOfASamplerOnceInAnotherOrderEachEpoch) {
  constexpr int kWorkers = 3;
  const auto read = [](uint64_t epoch) {
    Values all;
    for (int rank = 0; rank < kWorkers; ++rank) {
      const DistributedSampler sampler(24, {.num_replicas = kWorkers, .rank = rank, .seed = 3});
      const auto distributed =
          Worker(2, kWorkers, rank).distribute_dataset(sampled(sampler).batch(5));
      EXPECT_EQ(distributed.cardinality(), 5);
      Values own;
      for (const Step& step : steps(distributed, epoch))
        for (const Values& part : step) own.insert(own.end(), part.begin(), part.end());
      EXPECT_EQ(own, sampler.indices(epoch));
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  };
  Values first = read(0);
  EXPECT_NE(first, read(1));
  std::sort(first.begin(), first.end());
  EXPECT_EQ(first, count_up(0, 24));
}

TEST(SeveralPipelines, RefuseTheRowsOfAnotherRank) {
  const auto refused = [](const Dataset& dataset, const InputOptions& options,
                          const std::vector<std::string>& texts) {
    expect_error([&] { Worker(1, 2, 1).distribute_dataset(dataset, options); },
                 Code::kInvalidArgument, texts);
  };
  const Dataset own = sampled({10, {.num_replicas = 2, .rank = 1}});
  refused(sampled({10, {.num_replicas = 2, .rank = 0}}).batch(2), {},
          {"rank 0 of 2", "pipeline 1 of 2"});
  refused(sampled({10, {.num_replicas = 4, .rank = 1}}).batch(2), {},
          {"rank 1 of 4", "num_replicas = 2"});
  refused(own.batch(2), {.keep_order = true}, {"DistributedSampler", "in their order"});
  refused(own.map([](const Element& e) { return e; }), {}, {"DistributedSampler", "batch(n)"});
}

TEST(SeveralPipelines, DivideTheRowsOfASamplerWhereThatIsAskedForOrItHasGivenAllToEach) {
  const auto read = [](const DistributedSampler& sampler, AutoShardPolicy policy) {
    return steps(
        Worker(1, 2, 1).distribute_dataset(sampled(sampler).batch(4), {.auto_shard = policy}));
  };
  const DistributedSampler fourth(16, {.num_replicas = 4, .rank = 1, .shuffle = false});
  EXPECT_EQ(read(fourth, AutoShardPolicy::kData), (Steps{{{5, 13}}}));
  EXPECT_EQ(read({4, {.shuffle = false}}, AutoShardPolicy::kAuto), (Steps{{{1, 3}}}));
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

// --- Datasets from a function

TEST(DistributeDatasetsFromFunction, CallsTheFunctionOnceForThisPipeline) {
  std::vector<InputContext> calls;
  Worker(2, 3, 1).distribute_datasets_from_function([&](const InputContext& context) {
    calls.push_back(context);
    return range(8).batch(context.get_per_replica_batch_size(12));
  });
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].num_input_pipelines, 3);
  EXPECT_EQ(calls[0].input_pipeline_id, 1);
  EXPECT_EQ(calls[0].num_replicas_in_sync, 6);
  expect_error([] { Worker(2).distribute_datasets_from_function(nullptr); }, Code::kInvalidArgument,
               {"empty"});
}

TEST(DistributeDatasetsFromFunction, DealsOutItsBatchesInTurn) {
  const auto dealt = [](int64_t count, int replicas) {
    const auto dataset = Worker(replicas).distribute_datasets_from_function(
        [=](const InputContext&) { return range(count).batch(2); });
    const Steps all = steps(dataset);
    EXPECT_EQ(dataset.cardinality(), static_cast<int64_t>(all.size()));
    return all;
  };
  EXPECT_EQ(dealt(8, 2), (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}}));
  EXPECT_EQ(dealt(9, 2), (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {}}}));
  EXPECT_EQ(dealt(9, 3), (Steps{{{0, 1}, {2, 3}, {4, 5}}, {{6, 7}, {8}, {}}}));
  EXPECT_EQ(dealt(2, 3), (Steps{{{0, 1}, {}, {}}}));
  EXPECT_EQ(dealt(0, 2), Steps());
}

// --- Positions

struct Restarted {
  std::string name;
  std::function<DistributedDataset(int64_t prefetch)> make;
};

std::vector<Restarted> restarted() {
  const Dataset dataset = range(40).shuffle(9, {.seed = 2}).batch(6).repeat(2);
  return {
      {"one pipeline",
       [=](int64_t p) { return Worker(4).distribute_dataset(dataset, {.prefetch = p}); }},
      {"the second of three",
       [=](int64_t p) { return Worker(2, 3, 1).distribute_dataset(dataset, {.prefetch = p}); }},
      {"rows of generated batches",
       [=](int64_t p) {
         return Worker(2, 2, 1).distribute_dataset(batches_from_a_generator({5, 7, 6, 3}),
                                                   {.prefetch = p});
       }},
      {"rows of padded batches",
       [=](int64_t p) {
         return Worker(2, 2, 1).distribute_dataset(
             lists(23).shuffle(5, {.seed = 2}).padded_batch(4), {.prefetch = p});
       }},
      {"concatenated batches",
       [=](int64_t p) {
         return Worker(2, 3, 1).distribute_dataset(dataset.concatenate(range(13).batch(6)),
                                                   {.prefetch = p});
       }},
      {"from a function",
       [=](int64_t p) {
         return Worker(3).distribute_datasets_from_function(
             [&](const InputContext&) { return dataset; }, {.prefetch = p});
       }},
  };
}

TEST(DistributedIterator, ContinuesWhereItWasSaved) {
  for (const auto& [name, make] : restarted()) {
    for (const int64_t prefetch : {0, 1, 3}) {
      SCOPED_TRACE(str(name, ", prefetch ", prefetch));
      const Steps expected = steps(make(0), 5);
      ASSERT_GE(expected.size(), 4u);
      DistributedIterator saved = make(prefetch).iterate({.epoch = 5});
      for (size_t at = 0; at <= expected.size(); ++at) {
        const std::string position = saved.save();
        DistributedIterator restored = make(prefetch).iterate();
        restored.restore(position);
        EXPECT_EQ(restored.epoch(), 5u);
        EXPECT_EQ(restored.save(), position);
        EXPECT_EQ(rest(restored), Steps(expected.begin() + at, expected.end()))
            << "restored at step " << at << " from " << position;
        saved.next();
      }
    }
  }
}

TEST(DistributedIterator, ContinuesWithAnotherNumberOfReplicas) {
  const Dataset dataset = range(12).shuffle(12).batch(4);
  DistributedIterator two = Worker(2).distribute_dataset(dataset).iterate({.epoch = 1});
  two.next();
  Iterator plain = dataset.iterate();
  plain.restore(two.save());
  const Values all = values(dataset, 1);
  EXPECT_EQ(remaining(plain), Values(all.begin() + 4, all.end()));
  DistributedIterator three = Worker(3).distribute_dataset(dataset).iterate();
  three.restore(two.save());
  EXPECT_EQ(rest(three).size(), 2u);
}

TEST(DistributedIterator, RefusesThePositionOfAnotherSizeOfBatches) {
  const auto iterate = [](int64_t batch) {
    return Worker(1, 2, 1).distribute_dataset(range(24).batch(batch)).iterate();
  };
  DistributedIterator six = iterate(6);
  six.next();
  const std::string position = six.save();
  DistributedIterator same = iterate(6);
  same.restore(position);
  EXPECT_EQ(rest(same), rest(six));
  expect_error([&] { iterate(4).restore(position); }, Code::kFailedPrecondition,
               {"saved with batch(6)", "has batch(4)"});
}

TEST(DistributedIterator, RefusesWhatIsNoPositionOfIt) {
  DistributedIterator iterator = Worker(2).distribute_dataset(range(9).batch(2)).iterate();
  expect_error([&] { iterator.restore("nonsense"); }, Code::kDataLoss, {"position"});
  const std::string other = range(9).shuffle(2).batch(2).iterate().save();
  expect_error([&] { iterator.restore(other); }, Code::kFailedPrecondition, {"shuffle"});
  EXPECT_EQ(rest(iterator).size(), 5u) << "it is as it was";
}

// --- Steps that take the batches

class InSteps : public testing::ReplicasTest {};
COHORT_FOR_ALL_REPLICAS(InSteps);

TEST_P(InSteps, EveryRowCountsOnce) {
  auto step =
      strategy.function([](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); });
  double total = 0;
  for (auto& batch : strategy.distribute_dataset(range(23).shuffle(9).batch(5)))
    total += strategy.reduce(ReduceOp::kSum, strategy.run(step, batch)).item();
  EXPECT_EQ(total, 23 * 22 / 2);
}

TEST_P(InSteps, ReadingInputInsideAReplicaIsRefused) {
  const Dataset dataset = range(8).batch(4);
  const auto distributed = strategy.distribute_dataset(dataset);
  DistributedIterator iterator = distributed.iterate();
  const std::vector<std::function<void()>> calls = {
      [&] { iterator.next(); },
      [&] { distributed.iterate(); },
      [&] { distributed.begin(); },
      [&] { strategy.distribute_dataset(dataset); },
      [&] { strategy.distribute_datasets_from_function([&](auto&) { return dataset; }); },
  };
  for (const auto& call : calls) {
    auto step = strategy.function([&](Value x) { return call(), x; });
    expect_error([&] { strategy.run(step, Tensor::scalar(1.0f)); }, Code::kFailedPrecondition,
                 {"cannot be called inside a replica"});
    const auto scope = strategy.scope();
    const auto plain = function([&](Value x) { return call(), x; });
    expect_error([&] { plain({Tensor::scalar(1.0f)}); }, Code::kFailedPrecondition,
                 {"cannot be called inside a function that is being traced"});
  }
  EXPECT_EQ(rest(iterator).size(), 2u);
}

}  // namespace
}  // namespace cohort::data
