// Which part of a dataset each of several input pipelines reads.

#include "core/data/auto_shard.h"

#include <algorithm>

#include "core/base/random.h"
#include "core/data/distributed_sampler.h"
#include "core/data/files.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

using Values = std::vector<int64_t>;
using Policy = AutoShardPolicy;

Element with_value(int64_t value) { return Element{{"value", Tensor::scalar(value)}}; }
int64_t value_of(const Element& element) { return element["value"].values<int64_t>()[0]; }

// Files named by numbers: file "40" has the values 40, 41, 42.
Dataset three_from(const std::string& path) {
  return range(3).map([first = int64_t{std::stoll(path)}](const Element& e) {
    return with_value(first + value_of(e));
  });
}

std::vector<std::string> numbers(int64_t count, int64_t step) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i * step));
  return names;
}

Dataset ten_files() { return from_files(numbers(10, 10), three_from); }

Values shard_of(const Dataset& dataset, Policy policy, int64_t num, int64_t index) {
  return values(auto_shard(dataset, policy, num, index), /*epoch=*/3);
}

Values sorted(Values values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST(FromFiles, ReadsOneFileAfterTheOther) {
  EXPECT_EQ(values(from_files({"20", "0"}, three_from)), (Values{20, 21, 22, 0, 1, 2}));
  EXPECT_EQ(values(from_files({}, three_from)), Values());
  EXPECT_EQ(from_files({}, three_from).cardinality(), 0);
  EXPECT_EQ(from_files({"20"}, three_from).cardinality(), kUnknown);
}

TEST(FromFiles, OpensAFileWhenItsTurnComes) {
  std::vector<std::string> opened;
  const Dataset dataset = from_files({"0", "10", "20"}, [&](const std::string& path) {
    opened.push_back(path);
    return three_from(path);
  });
  EXPECT_TRUE(opened.empty());
  Iterator iterator = dataset.iterate();
  for (int i = 0; i < 4; ++i) iterator.next();
  EXPECT_EQ(opened, (std::vector<std::string>{"0", "10"}));
}

TEST(FromFiles, RefusesAnEmptyFunctionAndOddTurns) {
  expect_error([] { from_files({"0"}, nullptr); }, Code::kInvalidArgument, {"from_files()"});
  expect_error([] { from_files({"0"}, three_from, {.cycle_length = 0}); }, Code::kInvalidArgument,
               {"cycle_length 0"});
}

TEST(AutoShard, SharesOutFilesInTurn) {
  for (const Policy policy : {Policy::kFile, Policy::kAuto}) {
    EXPECT_EQ(shard_of(ten_files(), policy, 5, 3), (Values{30, 31, 32, 80, 81, 82}));
    EXPECT_EQ(shard_of(ten_files(), policy, 5, 0), (Values{0, 1, 2, 50, 51, 52}));
    EXPECT_EQ(shard_of(ten_files(), policy, 4, 1), (Values{10, 11, 12, 50, 51, 52, 90, 91, 92}));
  }
}

TEST(AutoShard, GivesNothingToPipelinesBeyondTheFiles) {
  EXPECT_EQ(shard_of(ten_files(), Policy::kFile, 500, 499), Values());
  EXPECT_EQ(shard_of(ten_files().shuffle(9).batch(4), Policy::kFile, 11, 10), Values());
  EXPECT_EQ(shard_of(ten_files(), Policy::kFile, 500, 9), (Values{90, 91, 92}));
}

TEST(AutoShard, GoesByElementWhereThereAreFewerFilesThanPipelines) {
  EXPECT_EQ(shard_of(ten_files(), Policy::kAuto, 10, 9), (Values{90, 91, 92}));
  EXPECT_EQ(shard_of(ten_files(), Policy::kAuto, 11, 0), (Values{0, 32, 71}));
  EXPECT_EQ(shard_of(ten_files().batch(4), Policy::kAuto, 500, 29), Values{92});
}

TEST(AutoShard, KeepsTheFilesOfAShardTakingTurns) {
  const Dataset files = from_files({"1", "4", "7"}, three_from, {.cycle_length = 3});
  EXPECT_EQ(shard_of(files, Policy::kAuto, 2, 0), (Values{1, 7, 2, 8, 3, 9}));
  EXPECT_EQ(shard_of(files, Policy::kAuto, 2, 1), (Values{4, 5, 6}));
}

TEST(FromFiles, RefusesThePositionOfOtherFiles) {
  using Names = std::vector<std::string>;
  const auto share = [](const Names& files, int64_t num, int64_t index) {
    const auto read = [](const std::string& path) {
      return three_from(path.substr(path.rfind('/') + 1));
    };
    return auto_shard(from_files(files, read).batch(2), Policy::kFile, num, index);
  };
  const auto restored = [](const Dataset& saved, const Dataset& other) {
    Iterator iterator = saved.iterate();
    iterator.next();
    Iterator continued = other.iterate();
    continued.restore(iterator.save());
    return remaining(continued);
  };
  const auto refused = [&](const Dataset& saved, const Dataset& other) {
    expect_error([&] { restored(saved, other); }, Code::kFailedPrecondition, {"files"});
  };
  const Names files = {"in/10", "in/20", "in/30", "in/40"};
  refused(share(files, 2, 0), share(files, 2, 1));
  refused(share(files, 2, 0), share(files, 4, 0));
  refused(share(files, 1, 0), share({"in/40", "in/30", "in/20", "in/10"}, 1, 0));
  refused(share(files, 1, 0), share({"in/10", "in/20", "in/30"}, 1, 0));
  refused(share({"a/10", "b/10"}, 2, 0), share({"a/10", "b/10"}, 2, 1));
  const Values rest = {12, 30, 31, 32};
  EXPECT_EQ(restored(share(files, 2, 0), share(files, 2, 0)), rest);
  const Names elsewhere = {"/mnt/in/10", "/mnt/in/20", "/mnt/in/30", "/mnt/in/40"};
  EXPECT_EQ(restored(share(files, 2, 0), share(elsewhere, 2, 0)), rest);
}

TEST(AutoShard, SharesOutElementsInTurn) {
  EXPECT_EQ(shard_of(range(4), Policy::kData, 2, 0), (Values{0, 2}));
  EXPECT_EQ(shard_of(range(4), Policy::kAuto, 2, 1), (Values{1, 3}));
  EXPECT_EQ(shard_of(from_files({"0", "10"}, three_from), Policy::kData, 2, 1),
            (Values{1, 10, 12}));
}

TEST(AutoShard, AllowsMorePipelinesThanElements) {
  for (int64_t index = 0; index < 10; ++index)
    EXPECT_EQ(shard_of(range(5), Policy::kAuto, 10, index), index < 5 ? Values{index} : Values());
}

TEST(AutoShard, LeavesADatasetWholeWhenOffOrAlone) {
  EXPECT_EQ(shard_of(range(4), Policy::kOff, 2, 1), count_up(0, 4));
  EXPECT_EQ(shard_of(range(4), Policy::kFile, 1, 0), count_up(0, 4));
}

TEST(AutoShard, LeavesWhatASamplerHasSharedOut) {
  const Tensor value = Tensor::from(std::vector<int64_t>{0, 1, 2, 3}, {4});
  const Dataset own =
      from_sampler({{"value", value}}, {4, {.num_replicas = 2, .rank = 1, .shuffle = false}});
  EXPECT_EQ(shard_of(own.batch(2), Policy::kAuto, 2, 1), (Values{1, 3}));
  EXPECT_EQ(shard_of(own, Policy::kData, 2, 1), (Values{3}));
  EXPECT_EQ(describe_sharding(own.batch(2), Policy::kAuto, 2),
            "not at all: each pipeline reads the rows that a DistributedSampler gives its rank");
  expect_error([&] { auto_shard(own, Policy::kAuto, 2, 0); }, Code::kInvalidArgument,
               {"rank 1 of 2", "pipeline 0 of 2"});
}

TEST(AutoShard, RefusesToShareFilesWhereThereAreNone) {
  expect_error([] { auto_shard(range(9).shuffle(3).batch(2), Policy::kFile, 3, 0); },
               Code::kNotFound, {"from_files()", "kData"});
  expect_error([] { auto_shard(range(9), Policy::kAuto, 3, 3); }, Code::kInvalidArgument,
               {"pipeline 3 among 3"});
  expect_error([] { auto_shard(range(9), Policy::kAuto, 0, 0); }, Code::kInvalidArgument, {"0"});
}

TEST(AutoShard, RefusesToShareFilesWhereThePartsWouldNotBeTheWhole) {
  const auto as_label = [](const Element& e) { return Element{{"label", e["value"]}}; };
  const Dataset files = ten_files(), one_file = from_files({"0"}, three_from).map(as_label);
  for (const Dataset& dataset :
       {zip(files, range(30).map(as_label)), zip(files, one_file), files.take(4),
        files.skip(1).batch(2), files.shard(2, 1).shuffle(9), files.batch(2).take(1)})
    expect_error([&] { auto_shard(dataset, Policy::kFile, 2, 1); }, Code::kInvalidArgument,
                 {"by file", "kData"});
  const Dataset pairs = zip(files, ten_files().map(as_label)).repeat(1);
  EXPECT_EQ(shard_of(pairs, Policy::kFile, 5, 3), (Values{30, 31, 32, 80, 81, 82}));
}

// A dataset that is divided, and the elements that its shards have together.
struct Case {
  std::string name;
  Dataset dataset;
  Values whole;
};

std::vector<Case> cases() {
  const auto even = [](const Element& e) { return value_of(e) % 2 == 0; };
  const auto plus_one = [](const Element& e) { return with_value(value_of(e) + 1); };
  const auto even_or_odd = [](const Element& e) { return value_of(e) >= 0; };
  const auto listed = [](const Element& e) { return Element{{"value", e["value"].reshape({1})}}; };
  const Dataset files = from_files(numbers(7, 3), three_from, {.cycle_length = 2});
  Values twice = count_up(0, 30);
  for (const int64_t value : count_up(0, 30)) twice.push_back(value);
  Values evens;
  for (int64_t value = 0; value < 30; value += 2) evens.push_back(value);
  return {
      {"shuffle", range(100).shuffle(30), count_up(0, 100)},
      {"seeded shuffle", range(100).shuffle(200, {.seed = 4}).batch(7), count_up(0, 100)},
      {"repeat", range(30).shuffle(9).repeat(2).batch(4), twice},
      {"map", range(50).map(plus_one, {.num_parallel = 2, .deterministic = false}),
       count_up(1, 51)},
      {"filter", range(30).filter(even).shuffle(5), evens},
      {"take", range(100).shuffle(100, {.seed = 4}).take(100).batch(3), count_up(0, 100)},
      {"shuffle below take", range(100).shuffle(100).take(100).shuffle(9), count_up(0, 100)},
      {"cached below take", range(40).shuffle(9).cache().take(40).shuffle(9), count_up(0, 40)},
      {"skip", range(40).skip(7).cache().prefetch(2), count_up(7, 40)},
      {"interleave", range(7).interleave([](const Element& e) {
         return three_from(std::to_string(3 * value_of(e)));
       }),
       count_up(0, 21)},
      {"take_while", range(40).shuffle(9, {.seed = 4}).take_while(even_or_odd).batch(3),
       count_up(0, 40)},
      {"unbatch", range(40).batch(7).unbatch().shuffle(9).batch(4), count_up(0, 40)},
      {"padded batches", range(40).map(listed).padded_batch(3).shuffle(3), count_up(0, 40)},
      {"padded to one length",
       range(40).map(listed).padded_batch(3, {.shapes = {{"value", {1}}}}).shuffle(3),
       count_up(0, 40)},
      {"windows", range(40).shuffle(9, {.seed = 4}).window(3).batch(1), count_up(0, 40)},
      {"concatenate", range(17).shuffle(5).concatenate(range(40).skip(17)).shuffle(9).batch(4),
       count_up(0, 40)},
      {"sample_from", sample_from({range(9), range(40).skip(9).shuffle(5)}).batch(2),
       count_up(0, 40)},
      {"concatenated files", files.concatenate(range(30).skip(21)).batch(2), count_up(0, 30)},
      {"unbatched files", files.batch(4).unbatch(), count_up(0, 21)},
      {"batches of batches", range(24).batch(2).shuffle(4).batch(3), count_up(0, 24)},
      {"files", files.shuffle(8).batch(2), count_up(0, 21)},
      {"part of files", files.take(20).batch(2), sorted(values(files.take(20)))},
      {"filtered files", files.filter([](const Element&) { return true; }), count_up(0, 21)},
  };
}

TEST(AutoShard, MakesDisjointPartsOfTheWhole) {
  for (const Case& c : cases()) {
    for (const int64_t num : {1, 2, 3, 5, 8}) {
      SCOPED_TRACE(str(c.name, " over ", num));
      Values all;
      for (int64_t index = 0; index < num; ++index)
        for (const int64_t value : shard_of(c.dataset, Policy::kAuto, num, index))
          all.push_back(value);
      EXPECT_EQ(sorted(all), sorted(c.whole));
    }
  }
}

// In the order of completion, which is another on each pipeline, elements would be lost.
TEST(AutoShard, ChoosesElementsInTheirOrderWhateverMapMayDo) {
  const auto all = [](const Element&) { return true; };
  for (const int64_t index : {0, 1}) {
    SCOPED_TRACE(index);
    const Values own = values(range(20).shard(2, index));
    EXPECT_EQ(values(in_order_of_completion(20).shard(2, index)), own);
    EXPECT_EQ(shard_of(in_order_of_completion(20).filter(all).batch(4), Policy::kAuto, 2, index),
              own);
    const auto inner = [](const Element&) { return in_order_of_completion(20); };
    EXPECT_EQ(shard_of(range(1).interleave(inner).prefetch(1), Policy::kAuto, 2, index), own);
  }
}

// Else the rows 2k and 2k + 1 would be in one global batch of two workers, in every epoch.
TEST(AutoShard, ShufflesEachShareInAnotherOrder) {
  const auto neighbours = [](const Dataset& dataset, Policy policy, int64_t apart) {
    const Values a = shard_of(dataset, policy, 2, 0), b = shard_of(dataset, policy, 2, 1);
    int64_t count = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += a[i] + apart == b[i];
    return count;
  };
  EXPECT_LT(neighbours(range(64).shuffle(64).batch(8), Policy::kAuto, 1), 16);
  EXPECT_LT(neighbours(range(64).shuffle(64).cache(), Policy::kAuto, 1), 16);
  EXPECT_LT(neighbours(range(32).shuffle(32), Policy::kOff, 0), 16);
  EXPECT_LT(neighbours(ten_files().shuffle(30), Policy::kFile, 10), 8);
  EXPECT_EQ(neighbours(range(64).shuffle(64, {.seed = 3}), Policy::kAuto, 1), 32);
  const Dataset drawn = sample_from({range(32), range(64).skip(32)});
  EXPECT_NE(shard_of(drawn, Policy::kOff, 2, 0), shard_of(drawn, Policy::kOff, 2, 1));
}

TEST(AutoShard, BalancesElements) {
  RandomStream random(11);
  for (int trial = 0; trial < 50; ++trial) {
    const auto count = static_cast<int64_t>(random.below(40));
    const auto num = static_cast<int64_t>(1 + random.below(9));
    SCOPED_TRACE(str(count, " elements over ", num));
    const auto even_and_odd = [](const Element& e) { return value_of(e) >= 0; };
    for (int64_t index = 0; index < num; ++index) {
      const auto size =
          shard_of(range(count).filter(even_and_odd).shuffle(7), Policy::kData, num, index).size();
      EXPECT_EQ(static_cast<int64_t>(size), count / num + (index < count % num ? 1 : 0));
    }
  }
}

TEST(AutoShard, MakesOnlyTheElementsOfTheShard) {
  int calls = 0;
  const Dataset dataset =
      range(100).map([&](const Element& e) { return ++calls, e; }).shuffle(50).batch(8);
  EXPECT_EQ(shard_of(dataset, Policy::kAuto, 4, 1).size(), 25u);
  EXPECT_EQ(calls, 25);
}

TEST(AutoShard, KeepsWhatASharesCacheHasSeenForTheNextTime) {
  int calls = 0;
  const auto count = [&](const Element& e) { return ++calls, e; };
  for (const Policy policy : {Policy::kFile, Policy::kData}) {
    calls = 0;
    const Dataset dataset = ten_files().map(count).cache();
    const Values first = shard_of(dataset, policy, 2, 0);
    const int once = calls;
    EXPECT_EQ(shard_of(dataset.batch(4), policy, 2, 0), first);
    EXPECT_EQ(calls, once);
    EXPECT_NE(shard_of(dataset, policy, 2, 1), first);
    EXPECT_GT(calls, once);
  }
}

TEST(DescribeSharding, SaysWhoReadsWhat) {
  const Dataset files = from_files({"a", "b", "c"}, three_from).batch(2);
  EXPECT_EQ(describe_sharding(files, Policy::kAuto, 2),
            "by file:\n  pipeline 0 of 2 reads a, c\n  pipeline 1 of 2 reads b");
  EXPECT_EQ(describe_sharding(files.shuffle(3), Policy::kFile, 4),
            "by file:\n  pipeline 0 of 4 reads a\n  pipeline 1 of 4 reads b\n"
            "  pipeline 2 of 4 reads c\n  pipeline 3 of 4 reads nothing");
  EXPECT_EQ(describe_sharding(files, Policy::kAuto, 4),
            "by element: pipeline i of 4 reads elements i, i + 4, i + 8, ...");
  EXPECT_EQ(describe_sharding(range(12).shuffle(4).batch(5), Policy::kAuto, 3),
            "by element: pipeline i of 3 reads elements i, i + 3, i + 6, ... of 12");
  EXPECT_EQ(describe_sharding(range(5).batch(2), Policy::kData, 10),
            "by element: pipeline i of 10 reads elements i, i + 10, i + 20, ... of 5; pipelines "
            "from 5 on read nothing");
  EXPECT_EQ(describe_sharding(files, Policy::kOff, 2),
            "not at all: each of 2 pipelines reads everything");
  EXPECT_EQ(describe_sharding(files, Policy::kAuto, 1),
            "not at all: the only pipeline reads everything");
  expect_error([&] { describe_sharding(range(3), Policy::kFile, 2); }, Code::kNotFound, {});
}

}  // namespace
}  // namespace cohort::data
