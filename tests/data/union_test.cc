// Transformations whose elements are those of several datasets: concatenate and sample_from.

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/data/testing.h"

namespace cohort::data {
namespace {

using Values = std::vector<int64_t>;

int64_t value_of(const Element& element) { return element["value"].values<int64_t>()[0]; }

// begin, begin + 1, ..., end - 1.
Dataset from_to(int64_t begin, int64_t end) {
  return range(end - begin).map([begin](const Element& e) {
    return Element{{"value", Tensor::scalar(begin + value_of(e))}};
  });
}

Dataset renamed(const Dataset& dataset) {
  return dataset.map([](const Element& e) { return Element{{"other", e["value"]}}; });
}

Dataset as_floats(const Dataset& dataset) {
  return dataset.map([](const Element& e) {
    return Element{{"value", e["value"].cast(DType::kFloat32)}};
  });
}

TEST(Concatenate, YieldsTheElementsOfOneThenThoseOfTheOther) {
  EXPECT_EQ(values(from_to(5, 8).concatenate(range(2))), (Values{5, 6, 7, 0, 1}));
  EXPECT_EQ(values(range(0).concatenate(range(2))), count_up(0, 2));
  EXPECT_EQ(values(range(2).concatenate(range(0))), count_up(0, 2));
  EXPECT_EQ(values(range(2).concatenate(from_to(2, 4)).concatenate(from_to(4, 5))), count_up(0, 5));
  EXPECT_EQ(values(range(2).concatenate(from_to(2, 4)).repeat(2)),
            (Values{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(Concatenate, SkipsOverItsSeam) {
  const Dataset dataset = range(4).concatenate(from_to(4, 9));
  for (int64_t skipped = 0; skipped < 11; ++skipped)
    EXPECT_EQ(values(dataset.skip(skipped)), count_up(std::min<int64_t>(skipped, 9), 9));
  EXPECT_EQ(values(dataset.shard(3, 1)), (Values{1, 4, 7}));
}

TEST(Concatenate, OpensTheSecondWhenTheFirstHasEnded) {
  int started = 0;
  const Dataset second = generator([&started] {
    ++started;
    return [] { return std::optional<Element>(); };
  });
  Iterator iterator = range(2).concatenate(second).iterate();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(iterator.next());
  EXPECT_EQ(started, 0);
  EXPECT_FALSE(iterator.next());
  EXPECT_EQ(started, 1);
  EXPECT_FALSE(iterator.next());
  EXPECT_EQ(started, 1);
}

bool has_one_order_twice(const Dataset& dataset) {
  const Values all = values(dataset);
  const auto half = all.begin() + static_cast<int64_t>(all.size() / 2);
  return Values(all.begin(), half) == Values(half, all.end());
}

TEST(Concatenate, ShufflesOfItsInputsDrawOrdersOfTheirOwn) {
  const Dataset shuffled = range(50).shuffle(50);
  EXPECT_FALSE(has_one_order_twice(shuffled.concatenate(range(50).shuffle(50))));
  EXPECT_TRUE(has_one_order_twice(shuffled.concatenate(shuffled))) << "an order is a dataset's";
}

TEST(Concatenate, AsksForTheSameNamesAndDtypes) {
  for (const Dataset& other :
       {renamed(range(2)), as_floats(range(2)), zip(range(2), renamed(range(2)))}) {
    Iterator iterator = range(2).concatenate(other).iterate();
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(iterator.next());
    expect_error([&] { iterator.next(); }, Code::kInvalidArgument,
                 {"concatenate()", "dataset 1", "dataset 0", "{value: int64[]}"});
  }
  EXPECT_EQ(values(range(3).batch(3).concatenate(range(2).batch(2))), (Values{0, 1, 2, 0, 1}))
      << "shapes may differ";
}

TEST(SampleFrom, YieldsEveryElementOnceInTheOrderOfItsDataset) {
  const Dataset dataset = sample_from({range(20), from_to(100, 130), from_to(200, 205)});
  const Values all = values(dataset);
  EXPECT_EQ(all.size(), 55u);
  EXPECT_FALSE(std::is_sorted(all.begin(), all.end()));
  for (const auto& [begin, end] : {std::pair(0, 20), std::pair(100, 130), std::pair(200, 205)}) {
    Values own;
    for (const int64_t value : all)
      if (begin <= value && value < begin + 100) own.push_back(value);
    EXPECT_EQ(own, count_up(begin, end));
  }
}

TEST(SampleFrom, DrawsByTheWeights) {
  constexpr int64_t kDraws = 10'000;
  const auto endless = [](int64_t value) { return from_to(value, value + 1).repeat(); };
  const auto share_of = [](const Values& all, int64_t value) {
    return static_cast<double>(std::count(all.begin(), all.end(), value)) / kDraws;
  };
  const Values weighted = values(
      sample_from({endless(0), endless(1), endless(2)}, {6, 1, 3}, {.seed = 5}).take(kDraws));
  // The standard deviation of a share is 0.005 at most.
  EXPECT_NEAR(share_of(weighted, 0), 0.6, 0.025);
  EXPECT_NEAR(share_of(weighted, 1), 0.1, 0.025);
  EXPECT_NEAR(share_of(weighted, 2), 0.3, 0.025);
  const Values even = values(sample_from({endless(0), endless(1)}, {}, {.seed = 5}).take(kDraws));
  EXPECT_NEAR(share_of(even, 0), 0.5, 0.025);
}

TEST(SampleFrom, LeavesOutWhatHasNoWeight) {
  EXPECT_EQ(values(sample_from({range(3), renamed(range(9)), range(0)}, {1, 0, 0})),
            count_up(0, 3));
}

TEST(SampleFrom, DrawsOtherwiseInEachEpochAndAlikeInEachRun) {
  const auto make = [](uint64_t seed) {
    return sample_from({range(30), from_to(30, 60)}, {}, {.seed = seed});
  };
  EXPECT_EQ(values(make(1), 2), values(make(1), 2));
  EXPECT_NE(values(make(1), 2), values(make(1), 3));
  EXPECT_NE(values(make(1), 2), values(make(2), 2));
  const Dataset unseeded = sample_from({range(30), from_to(30, 60)});
  EXPECT_EQ(values(unseeded), values(sample_from({range(30), from_to(30, 60)})));
}

TEST(SampleFrom, WithoutASeedDrawsOtherwiseThanOthersInThePipeline) {
  const auto sampled = [] { return sample_from({range(30), from_to(30, 60)}); };
  const Dataset first = sampled();
  EXPECT_FALSE(has_one_order_twice(first.concatenate(sampled())));
  EXPECT_FALSE(has_one_order_twice(
      range(9).shuffle(9).take(0).concatenate(first).concatenate(sampled().prefetch(1))));
  EXPECT_TRUE(has_one_order_twice(first.concatenate(first))) << "draws are a dataset's";
}

TEST(SampleFrom, GoesOnWithTheOthersUnlessItIsToStop) {
  const std::vector<Dataset> datasets = {range(5), from_to(100, 1100)};
  EXPECT_EQ(values(sample_from(datasets, {}, {.seed = 3})).size(), 1005u);
  const Values stopped = values(sample_from(datasets, {}, {.seed = 3, .stop_on_empty = true}));
  const auto of_the_first =
      std::count_if(stopped.begin(), stopped.end(), [](int64_t v) { return v < 5; });
  EXPECT_EQ(of_the_first, 5);
  EXPECT_LT(stopped.size(), 100u);
  Iterator iterator =
      sample_from({range(0), range(2)}, {1, 1e-9}, {.stop_on_empty = true}).iterate();
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(iterator.next());
}

TEST(SampleFrom, AsksForTheSameNamesAndDtypes) {
  for (const Dataset& other : {renamed(range(50)), as_floats(range(50))}) {
    Iterator iterator = sample_from({range(50), other}).iterate();
    const auto read_all = [&] {
      while (iterator.next()) {
      }
    };
    expect_error(read_all, Code::kInvalidArgument, {"sample_from()", "dataset 0", "dataset 1"});
  }
}

TEST(SampleFrom, RefusesWeightsThatMeanNothing) {
  const std::vector<Dataset> two = {range(2), range(2)};
  const auto refused = [](const std::vector<Dataset>& datasets, const std::vector<double>& weights,
                          const std::string& text) {
    expect_error([&] { sample_from(datasets, weights); }, Code::kInvalidArgument,
                 {"sample_from()", text});
  };
  refused({}, {}, "no dataset");
  refused(two, {1}, "1 weights for 2 datasets");
  refused(two, {1, -0.5}, "dataset 1 is -0.5");
  refused(two, {std::nan(""), 1}, "dataset 0 is nan");
  refused(two, {1, std::numeric_limits<double>::infinity()}, "dataset 1 is inf");
  refused(two, {1e308, 1e308}, "their sum is finite");
  refused(two, {0, 0}, "the weight of every dataset is 0");
}

}  // namespace
}  // namespace cohort::data
