// Batches divided over the replicas of a strategy, with one input pipeline.

#include "core/ops/math_ops.h"
#include "tests/data/worker.h"
#include "tests/distribute/testing.h"

namespace cohort::data {
namespace {

Steps split(const Dataset& dataset, int replicas, uint64_t epoch = 0) {
  return steps(Worker(replicas).distribute_dataset(dataset), epoch);
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

TEST(DistributeDatasetsFromFunction, RefusesToDivideWhatItsFunctionMakes) {
  const auto distribute = [](const InputOptions& options) {
    Worker(2).distribute_datasets_from_function([](auto&) { return range(8).batch(2); }, options);
  };
  expect_error([&] { distribute({.keep_order = true}); }, Code::kInvalidArgument, {"keep_order"});
  for (const auto policy : {AutoShardPolicy::kFile, AutoShardPolicy::kData})
    expect_error([&] { distribute({.auto_shard = policy}); }, Code::kInvalidArgument,
                 {"auto_shard", "InputContext"});
  distribute({.auto_shard = AutoShardPolicy::kOff});
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
