// What a cache() keeps of a dataset that is divided over input pipelines.

#include "tests/data/worker.h"

namespace cohort::data {
namespace {

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

TEST(SeveralPipelines, CacheOtherBatchesUnderAnotherPolicy) {
  const Dataset batches = range(8).batch(4).cache();
  const auto read = [&](AutoShardPolicy policy) {
    return steps(Worker(1, 2, 1).distribute_dataset(batches, {.auto_shard = policy}));
  };
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(read(AutoShardPolicy::kData), (Steps{{{1, 3}}, {{5, 7}}}));
    EXPECT_EQ(read(AutoShardPolicy::kOff), (Steps{{{0, 1}}, {{2, 3}}, {{4, 5}}, {{6, 7}}}));
  }
}

}  // namespace
}  // namespace cohort::data
