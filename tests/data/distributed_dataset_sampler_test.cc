// Rows that a DistributedSampler has shared out, on several input pipelines.

#include <algorithm>

#include "core/data/distributed_sampler.h"
#include "tests/data/worker.h"

namespace cohort::data {
namespace {

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

TEST(SeveralPipelines, ReadRowsBesideThoseOfASamplerOnlyWhereTheyAreSharedOutToo) {
  const Dataset own = sampled({4, {.num_replicas = 2, .rank = 1, .shuffle = false}});
  const auto read = [](const Dataset& dataset) {
    return steps(Worker(1, 2, 1).distribute_dataset(dataset.batch(4)));
  };
  const auto refused = [&](const Dataset& dataset, const std::string& text) {
    expect_error([&] { read(dataset); }, Code::kInvalidArgument, {"DistributedSampler", text});
  };
  refused(own.concatenate(range(9)), "shard(2, 1)");
  refused(range(9).concatenate(own), "every one of 2 pipelines would read all others");
  refused(sample_from({own, range(9)}), "shard(2, 1)");
  refused(own.concatenate(sampled({4, {.num_replicas = 2, .rank = 0}})), "rank 0 of 2");
  EXPECT_EQ(read(own.concatenate(range(4).shard(2, 1))), (Steps{{{1, 3}}, {{1, 3}}}));
  const auto second = [](const Element& pair) { return Element{{"value", pair["b"]}}; };
  const auto named = [](const Element& e) { return Element{{"b", e["value"]}}; };
  EXPECT_EQ(read(zip(own, range(2).map(named)).map(second)), (Steps{{{0, 1}}}));
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

}  // namespace
}  // namespace cohort::data
