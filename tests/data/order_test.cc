// Transformations that only choose and order elements.

#include <algorithm>
#include <map>

#include "core/base/random.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

using Values = std::vector<int64_t>;

Values sorted(Values values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST(Take, EndsAfterThatManyElements) {
  EXPECT_EQ(values(range(5).take(3)), count_up(0, 3));
  EXPECT_EQ(values(range(5).take(9)), count_up(0, 5));
  EXPECT_EQ(values(range(5).take(0)), Values());
  EXPECT_EQ(values(range(5).take(-1)), count_up(0, 5));
  EXPECT_EQ(values(range(5).repeat().take(7)), (Values{0, 1, 2, 3, 4, 0, 1}));
  expect_error([] { range(5).take(-2); }, Code::kInvalidArgument, {"take(-2)"});
}

TEST(TakeWhile, EndsBeforeTheFirstElementThatDoesNotFit) {
  const auto below = [](int64_t limit) {
    return [limit](const Element& e) { return e["value"].values<int64_t>()[0] < limit; };
  };
  EXPECT_EQ(values(range(9).take_while(below(4))), count_up(0, 4));
  EXPECT_EQ(values(range(9).take_while(below(0))), Values());
  EXPECT_EQ(values(range(3).take_while(below(9))), count_up(0, 3));
  EXPECT_EQ(values(range(4).repeat().take_while(below(3))), count_up(0, 3));
  EXPECT_EQ(values(range(6).take_while(below(4)).repeat(2)), (Values{0, 1, 2, 3, 0, 1, 2, 3}));
  Iterator ended = range(4).repeat().take_while(below(2)).iterate();
  EXPECT_EQ(remaining(ended), count_up(0, 2));
  EXPECT_FALSE(ended.next()) << "although the next element would fit";
}

TEST(Skip, LeavesOutTheFirstElements) {
  EXPECT_EQ(values(range(5).skip(3)), count_up(3, 5));
  EXPECT_EQ(values(range(5).skip(0)), count_up(0, 5));
  EXPECT_EQ(values(range(5).skip(9)), Values());
  EXPECT_EQ(values(range(9).skip(1).skip(2).take(4).skip(1)), count_up(4, 7));
  EXPECT_EQ(values(range(3).repeat(4).skip(7)), (Values{1, 2, 0, 1, 2}));
  expect_error([] { range(5).skip(-1); }, Code::kInvalidArgument, {"skip(-1)"});
}

TEST(Skip, DoesNotMakeWhatItSkips) {
  int calls = 0;
  const Dataset dataset = range(5).map([&](const Element& e) { return ++calls, e; }).skip(3);
  EXPECT_EQ(values(dataset), count_up(3, 5));
  EXPECT_EQ(calls, 2);
}

TEST(Shard, TakesEachNumthElement) {
  EXPECT_EQ(values(range(10).shard(3, 0)), (Values{0, 3, 6, 9}));
  EXPECT_EQ(values(range(10).shard(3, 2)), (Values{2, 5, 8}));
  EXPECT_EQ(values(range(2).shard(5, 4)), Values());
}

TEST(Shard, SplitsAShuffledEpochWithoutLossOrOverlap) {
  const Dataset shuffled = range(100).shuffle(30);
  Values all;
  for (int64_t worker = 0; worker < 4; ++worker)
    for (const int64_t value : values(shuffled.shard(4, worker), 5)) all.push_back(value);
  EXPECT_EQ(sorted(all), count_up(0, 100));
}

TEST(Shard, RefusesAnIndexOutOfRange) {
  expect_error([] { range(5).shard(0, 0); }, Code::kInvalidArgument, {"at least 1 shard"});
  expect_error([] { range(5).shard(3, 3); }, Code::kInvalidArgument, {"shard(3, 3)", "0 to 2"});
}

TEST(Repeat, GoesThroughItsInputAgain) {
  EXPECT_EQ(values(range(2).repeat(3)), (Values{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(values(range(2).repeat(0)), Values());
  EXPECT_EQ(values(range(2).repeat().take(5)), (Values{0, 1, 0, 1, 0}));
  expect_error([] { range(5).repeat(-2); }, Code::kInvalidArgument, {"repeat(-2)"});
}

TEST(Repeat, OfAnEmptyDatasetEnds) {
  EXPECT_EQ(values(range(0).repeat()), Values());
  EXPECT_EQ(values(range(3).filter([](const Element&) { return false; }).repeat()), Values());
}

TEST(Repeat, NumbersItsPassesAsEpochs) {
  const Dataset shuffled = range(20).shuffle(20);
  Values expected;
  for (uint64_t epoch = 6; epoch < 9; ++epoch)
    for (const int64_t value : values(shuffled, epoch)) expected.push_back(value);
  EXPECT_EQ(values(shuffled.repeat(3), 2), expected);
}

TEST(Shuffle, YieldsEachElementOnceInAnotherOrder) {
  const Values order = values(range(1000).shuffle(1000));
  EXPECT_NE(order, count_up(0, 1000));
  EXPECT_EQ(sorted(order), count_up(0, 1000));
}

TEST(Shuffle, MovesNoElementForwardByMoreThanTheBuffer) {
  const Values order = values(range(1000).shuffle(10));
  EXPECT_EQ(sorted(order), count_up(0, 1000));
  for (int64_t at = 0; at < 1000; ++at) EXPECT_LT(order[at], at + 10);
  EXPECT_EQ(values(range(100).shuffle(1)), count_up(0, 100));
}

TEST(Shuffle, WithAFullBufferIsUniform) {
  constexpr int64_t kElements = 4, kEpochs = 24'000;
  std::map<Values, int> orders;
  const Dataset dataset = range(kElements).shuffle(kElements, {.seed = 5});
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) ++orders[values(dataset, epoch)];
  EXPECT_EQ(orders.size(), 24u);
  // Each of the 24 orders is expected 1000 times, with a standard deviation of 31.
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1000, 160);
}

TEST(Shuffle, HasAnotherOrderInEachEpochAndTheSameInEachRun) {
  const Dataset dataset = range(50).shuffle(50, {.seed = 3});
  EXPECT_NE(values(dataset, 0), values(dataset, 1));
  EXPECT_EQ(values(dataset, 1), values(range(50).shuffle(50, {.seed = 3}), 1));
  EXPECT_NE(values(dataset, 0), values(range(50).shuffle(50, {.seed = 4}), 0));
}

TEST(Shuffle, CanKeepItsOrder) {
  const Dataset dataset = range(50).shuffle(50, {.reshuffle_each_iteration = false});
  EXPECT_EQ(values(dataset, 0), values(dataset, 7));
}

// As docs/coming-from-pytorch.md has it for random_split.
TEST(Shuffle, ThatKeepsItsOrderSplitsADatasetAtRandom) {
  const Dataset all = range(100).shuffle(100, {.seed = 7, .reshuffle_each_iteration = false});
  const Dataset train = all.take(80).shuffle(80), held_out = all.skip(80);
  const Values held = values(held_out, 0);
  EXPECT_EQ(held.size(), 20u);
  EXPECT_NE(sorted(held), count_up(80, 100));
  EXPECT_NE(values(train, 0), values(train, 1));
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(values(held_out, epoch), held);
    EXPECT_EQ(sorted(values(train.concatenate(held_out), epoch)), count_up(0, 100));
  }
}

TEST(Shuffle, TakesItsSeedFromTheGlobalOne) {
  const Values with_0 = values(range(50).shuffle(50));
  set_global_seed(1);
  const Dataset dataset = range(50).shuffle(50);
  set_global_seed(0);
  EXPECT_NE(values(dataset), with_0);
  EXPECT_EQ(values(range(50).shuffle(50)), with_0);
}

Dataset renamed(const Dataset& dataset, const std::string& name = "other") {
  return dataset.map([name](const Element& e) { return Element{{name, e["value"]}}; });
}

// In how many elements of a pass both tensors are the same.
int64_t pairs(const Dataset& dataset, const std::string& a = "value",
              const std::string& b = "other") {
  int64_t together = 0;
  for (auto& element : dataset) together += element[a].item() == element[b].item();
  return together;
}

TEST(Shuffle, WithoutASeedDiffersFromOthersInThePipeline) {
  const auto shuffled = [] { return range(50).shuffle(50); };
  EXPECT_LT(pairs(zip(shuffled(), renamed(shuffled()))), 10);
  const Dataset three =
      zip(zip(shuffled(), renamed(shuffled())), renamed(shuffled().prefetch(1), "third"));
  EXPECT_LT(pairs(three), 10);
  EXPECT_LT(pairs(three, "value", "third"), 10);
  EXPECT_LT(pairs(three, "other", "third"), 10);
  // The second has the numbers of what the first has drawn: it would draw these in turn.
  const Values once = values(shuffled()), twice = values(shuffled().shuffle(50));
  Values again;
  for (const int64_t value : once) again.push_back(once[static_cast<size_t>(value)]);
  EXPECT_NE(twice, again);
}

TEST(Shuffle, OfADatasetIsOneWhateverIsAboveIt) {
  const Dataset shuffled = range(100).shuffle(100, {.reshuffle_each_iteration = false});
  Values all = values(shuffled.take(20));
  for (const int64_t value : values(shuffled.skip(20).shuffle(80).batch(8).prefetch(1), 7))
    all.push_back(value);
  EXPECT_EQ(sorted(all), count_up(0, 100));
  EXPECT_EQ(pairs(zip(shuffled, renamed(shuffled))), 100);
  EXPECT_EQ(pairs(zip(zip(shuffled, renamed(range(100).shuffle(100), "third")),
                      renamed(shuffled).prefetch(2))),
            100);
  // In another process, too: what is made in the same way has the same order.
  EXPECT_EQ(values(range(100).shuffle(100)), values(shuffled));
}

TEST(Shuffle, BelowACacheIsOneWhicheverPassFillsIt) {
  const Dataset cached = range(50).shuffle(50).cache();
  const Dataset dataset =
      zip(renamed(range(50).shuffle(50), "third"), zip(cached, renamed(cached)));
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(pairs(dataset), 50) << "pass " << pass;
  EXPECT_EQ(values(cached), values(range(50).shuffle(50)));
}

TEST(Shuffle, WithTheSameSeedKeepsPairsTogether) {
  const Dataset a = range(50).shuffle(20, {.seed = 9});
  const Dataset b = range(50)
                        .map([](const Element& e) {
                          return Element{{"other", e["value"]}};
                        })
                        .shuffle(20, {.seed = 9});
  for (auto& element : zip(a, b)) EXPECT_EQ(element["value"].item(), element["other"].item());
}

TEST(Shuffle, DoesNotBelieveInHugeBuffers) {
  EXPECT_EQ(sorted(values(range(10).shuffle(INT64_MAX))), count_up(0, 10));
  expect_error([] { range(5).shuffle(0); }, Code::kInvalidArgument, {"shuffle(0)"});
}

Dataset numbered(const Element& outer) {
  const int64_t value = outer["value"].values<int64_t>()[0];
  return range(6).map([value](const Element&) {
    return Element{{"value", Tensor::scalar(value)}};
  });
}

TEST(Interleave, ReadsItsInputsInTurn) {
  const Dataset dataset =
      range(6).skip(1).interleave(numbered, {.cycle_length = 2, .block_length = 4});
  EXPECT_EQ(values(dataset), (Values{1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3,
                                     3, 4, 4, 4, 4, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5}));
}

TEST(Interleave, OfOneAtATimeChainsItsInputs) {
  EXPECT_EQ(values(range(4).interleave(
                [](const Element& e) { return range(static_cast<int64_t>(e["value"].item())); })),
            (Values{0, 0, 1, 0, 1, 2}));
}

TEST(Interleave, TakesAnyCycleLength) {
  const Dataset dataset = range(3).interleave(numbered, {.cycle_length = INT64_MAX});
  EXPECT_EQ(values(dataset), (Values{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
  expect_error([] { range(3).interleave(numbered, {.cycle_length = 0}); }, Code::kInvalidArgument,
               {"cycle_length 0"});
}

TEST(Interleave, ShufflesEachInputDifferently) {
  const Dataset dataset = range(2).interleave([](const Element&) { return range(30).shuffle(30); });
  const Values all = values(dataset);
  ASSERT_EQ(all.size(), 60u);
  EXPECT_NE(Values(all.begin(), all.begin() + 30), Values(all.begin() + 30, all.end()));
}

TEST(Zip, MergesUntilTheShorterEnds) {
  const Dataset letters =
      from_tensor_slices({{"letter", Tensor::from<uint8_t>({'a', 'b', 'c'}, {3})}});
  Iterator iterator = zip(letters, range(2)).iterate();
  const auto first = iterator.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->names(), (std::vector<std::string>{"letter", "value"}));
  EXPECT_TRUE(iterator.next());
  EXPECT_FALSE(iterator.next());
  EXPECT_FALSE(iterator.next());
}

TEST(Zip, RefusesANameThatBothHave) {
  expect_error([] { zip(range(2), range(2)).iterate().next(); }, Code::kInvalidArgument,
               {"zip()", "\"value\""});
}

}  // namespace
}  // namespace cohort::data
