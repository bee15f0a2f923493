#include "core/data/distributed_sampler.h"

#include <algorithm>

#include "core/base/random.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

using Values = std::vector<int64_t>;
using Options = DistributedSampler::Options;

std::vector<Values> lists(int64_t rows, int64_t replicas, bool drop_last) {
  std::vector<Values> all;
  for (int64_t rank = 0; rank < replicas; ++rank) {
    const DistributedSampler sampler(
        rows, {.num_replicas = replicas, .rank = rank, .shuffle = false, .drop_last = drop_last});
    all.push_back(sampler.indices());
    EXPECT_EQ(sampler.size(), static_cast<int64_t>(all.back().size()));
  }
  return all;
}

struct Row {
  int64_t rows, replicas;
  bool drop_last;
  std::vector<Values> expected;
};

TEST(DistributedSampler, DealsOutRowsInOrder) {
  const std::vector<Values> empty_pair(2), empty_eight(8);
  const std::vector<Row> table = {
      {10, 4, false, {{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}}},
      {10, 4, true, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
      {11, 4, false, {{0, 4, 8}, {1, 5, 9}, {2, 6, 10}, {3, 7, 0}}},
      {11, 4, true, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
      {7, 3, false, {{0, 3, 6}, {1, 4, 0}, {2, 5, 1}}},
      {7, 3, true, {{0, 3}, {1, 4}, {2, 5}}},
      {5, 2, false, {{0, 2, 4}, {1, 3, 0}}},
      {8, 4, true, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
      {3, 8, false, {{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}}},
      {3, 8, true, empty_eight},
      {1, 4, false, {{0}, {0}, {0}, {0}}},
      {0, 2, false, empty_pair},
      {0, 2, true, empty_pair},
  };
  for (const auto& [rows, replicas, drop_last, expected] : table)
    EXPECT_EQ(lists(rows, replicas, drop_last), expected)
        << rows << " rows over " << replicas << (drop_last ? ", dropping the last" : "");
}

TEST(DistributedSampler, FillsUpOrCutsTheEndOfALongList) {
  const auto tail = [](const Values& list) { return Values(list.end() - 3, list.end()); };
  const auto filled = lists(100, 3, false), cut = lists(100, 3, true);
  EXPECT_EQ(filled[0].size(), 34u);
  EXPECT_EQ(cut[0].size(), 33u);
  EXPECT_EQ(tail(filled[0]), (Values{93, 96, 99}));
  EXPECT_EQ(tail(filled[1]), (Values{94, 97, 0}));
  EXPECT_EQ(tail(filled[2]), (Values{95, 98, 1}));
  EXPECT_EQ(tail(cut[0]), (Values{90, 93, 96}));
  EXPECT_EQ(tail(cut[1]), (Values{91, 94, 97}));
  EXPECT_EQ(tail(cut[2]), (Values{92, 95, 98}));
}

// What all ranks read together, in the order of the list that they share.
Values dealt_back(int64_t rows, Options options, uint64_t epoch) {
  std::vector<Values> ranks;
  for (options.rank = 0; options.rank < options.num_replicas; ++options.rank)
    ranks.push_back(DistributedSampler(rows, options).indices(epoch));
  Values list;
  for (size_t i = 0; i < ranks[0].size(); ++i)
    for (const Values& rank : ranks) list.push_back(rank.at(i));
  return list;
}

TEST(DistributedSampler, ReadsEachRowOnceButForTheRemainder) {
  RandomStream random(21);
  for (int trial = 0; trial < 300; ++trial) {
    const auto rows = static_cast<int64_t>(random.below(60));
    const auto epoch = random.below(5);
    const Options options{.num_replicas = static_cast<int64_t>(1 + random.below(9)),
                          .shuffle = random.below(2) == 0,
                          .seed = random.below(100),
                          .drop_last = random.below(2) == 0};
    SCOPED_TRACE(str("trial ", trial, ": ", rows, " rows over ", options.num_replicas));
    Values list = dealt_back(rows, options, epoch);
    const auto total = static_cast<int64_t>(list.size());
    EXPECT_EQ(total % options.num_replicas, 0);
    if (options.drop_last) {
      EXPECT_LE(total, rows);
      EXPECT_LT(rows - total, options.num_replicas);
    } else {
      EXPECT_GE(total, rows);
      EXPECT_LT(total - rows, options.num_replicas);
    }
    // What is filled up repeats the list from its beginning.
    for (int64_t i = rows; i < total; ++i) EXPECT_EQ(list[i], list[i - rows]);
    list.resize(std::min(rows, total));
    if (!options.shuffle) {
      EXPECT_EQ(list, count_up(0, std::min(rows, total)));
    }
    std::sort(list.begin(), list.end());
    EXPECT_EQ(std::unique(list.begin(), list.end()), list.end());
    EXPECT_TRUE(list.empty() || list.back() < rows);
  }
}

TEST(DistributedSampler, ShufflesBySeedAndEpochTogether) {
  const DistributedSampler a(50, {.num_replicas = 2}), b(50, {.num_replicas = 2, .seed = 5});
  EXPECT_EQ(a.indices(5), b.indices(0));
  EXPECT_NE(a.indices(5), a.indices(6));
  EXPECT_EQ(a.indices(3), a.indices(3));
  EXPECT_NE(a.indices(0), DistributedSampler(50, {.num_replicas = 2, .shuffle = false}).indices());
}

TEST(DistributedSampler, RepeatsItsOrderUntilAnEpochIsSet) {
  DistributedSampler sampler(50, {.num_replicas = 2});
  DistributedSampler copy = sampler;
  EXPECT_EQ(sampler.indices(), sampler.indices(0));
  copy.set_epoch(4);
  EXPECT_EQ(sampler.epoch(), 4u);
  EXPECT_EQ(sampler.indices(), sampler.indices(4));
}

TEST(DistributedSampler, RefusesWhatMakesNoSense) {
  const auto make = [](int64_t rows, Options options) {
    return [=] { DistributedSampler(rows, options); };
  };
  expect_error(make(5, {.num_replicas = 2, .rank = 2}), Code::kInvalidArgument,
               {"rank is 2", "0 to 1"});
  expect_error(make(5, {.num_replicas = 2, .rank = -1}), Code::kInvalidArgument, {"rank is -1"});
  expect_error(make(5, {.num_replicas = 0}), Code::kInvalidArgument, {"num_replicas is 0"});
  expect_error(make(-1, {}), Code::kInvalidArgument, {"-1 rows"});
}

Element squares(int64_t rows) {
  Tensor value(DType::kInt64, {rows}), square(DType::kInt64, {rows});
  for (int64_t i = 0; i < rows; ++i) {
    value.data<int64_t>()[i] = i;
    square.data<int64_t>()[i] = i * i;
  }
  return {{"value", value}, {"square", square}};
}

TEST(FromSampler, YieldsTheRowsThatTheSamplerNames) {
  const DistributedSampler sampler(20, {.num_replicas = 3, .rank = 1});
  const Dataset dataset = from_sampler(squares(20), sampler);
  EXPECT_EQ(dataset.cardinality(), 7);
  EXPECT_EQ(values(dataset, /*epoch=*/2), sampler.indices(2));
  EXPECT_EQ(values(dataset.batch(3), 2), sampler.indices(2));
  for (auto& element : dataset)
    EXPECT_EQ(element["square"].item(), element["value"].item() * element["value"].item());
}

TEST(FromSampler, RefusesThePositionOfAnotherSampler) {
  const auto dataset = [](uint64_t seed, int64_t rank) {
    return from_sampler(squares(20),
                        DistributedSampler(20, {.num_replicas = 2, .rank = rank, .seed = seed}));
  };
  Iterator iterator = dataset(1, 0).iterate({.epoch = 3});
  iterator.next();
  const std::string position = iterator.save();
  Iterator same = dataset(1, 0).iterate({.epoch = 0});
  same.restore(position);
  EXPECT_EQ(remaining(same), remaining(iterator));
  const auto restore = [&](uint64_t seed, int64_t rank) {
    return [=] { dataset(seed, rank).iterate({.epoch = 3}).restore(position); };
  };
  for (const auto& other : {restore(2, 0), restore(1, 1)})
    expect_error(other, Code::kFailedPrecondition, {"another DistributedSampler"});
}

TEST(FromSampler, FollowsTheEpochThatIsSet) {
  DistributedSampler sampler(20, {.num_replicas = 2});
  const Dataset dataset = from_sampler(squares(20), sampler).batch(4);
  sampler.set_epoch(9);
  EXPECT_EQ(values(dataset, /*epoch=*/0), sampler.indices(9));
  Iterator begun = dataset.iterate();
  begun.next();
  const std::string position = begun.save();
  const Values rest = remaining(begun);
  sampler.set_epoch(10);
  EXPECT_EQ(values(dataset, /*epoch=*/0), sampler.indices(10));
  begun.restore(position);
  EXPECT_EQ(remaining(begun), rest) << "a pass keeps the epoch it began with";
}

TEST(FromSampler, RefusesTensorsOfAnotherLength) {
  expect_error([] { from_sampler(squares(20), DistributedSampler(21, {})); },
               Code::kInvalidArgument, {"21 rows", "20"});
}

}  // namespace
}  // namespace cohort::data
