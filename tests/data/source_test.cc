// Datasets from tensors, numbers and generators; passes and what a dataset knows about itself.

#include <algorithm>
#include <iterator>
#include <ranges>

#include "core/base/random.h"
#include "core/data/distributed_dataset.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

TEST(FromTensorSlices, YieldsTheRowsWithoutTheFirstAxis) {
  const Dataset dataset =
      from_tensor_slices({{"x", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2})},
                          {"label", Tensor::from<int32_t>({7, 8, 9}, {3})}});
  EXPECT_EQ(dataset.cardinality(), 3);
  Iterator iterator = dataset.iterate();
  iterator.next();
  const auto second = iterator.next();
  ASSERT_TRUE(second);
  EXPECT_EQ((*second)["x"].shape(), Shape({2}));
  EXPECT_EQ((*second)["x"].values<float>()[1], 4);
  EXPECT_EQ((*second)["label"].shape(), Shape());
  EXPECT_EQ((*second)["label"].item(), 8);
  EXPECT_TRUE(iterator.next());
  EXPECT_FALSE(iterator.next());
  EXPECT_FALSE(iterator.next());
}

TEST(FromTensorSlices, NamesBothTensorsThatDifferInRows) {
  const Tensor two = Tensor::zeros(DType::kFloat32, {2}),
               three = Tensor::zeros(DType::kFloat32, {3});
  expect_error(
      [&] {
        from_tensor_slices({{"x", two}, {"label", three}});
      },
      Code::kInvalidArgument, {"\"label\" has 3 rows", "\"x\" has 2"});
  expect_error(
      [&] {
        from_tensor_slices({{"x", Tensor::scalar(1)}});
      },
      Code::kInvalidArgument, {"\"x\" is a scalar"});
  expect_error([&] { from_tensor_slices({}); }, Code::kInvalidArgument, {"without tensors"});
}

TEST(FromTensorSlices, OfNoRowsIsEmpty) {
  const Dataset empty = from_tensor_slices({{"value", Tensor::zeros(DType::kInt64, {0})}});
  EXPECT_EQ(empty.cardinality(), 0);
  EXPECT_TRUE(values(empty).empty());
  EXPECT_TRUE(values(empty.shuffle(3).batch(2).repeat().prefetch(1)).empty());
}

TEST(Dataset, OfNoSourceIsRefused) {
  expect_error([] { Dataset(nullptr); }, Code::kInvalidArgument, {"its source is null"});
}

TEST(Range, CountsUpAndIsCheapWhateverItsLength) {
  EXPECT_EQ(values(range(4)), count_up(0, 4));
  EXPECT_EQ(values(range(INT64_MAX).skip(INT64_MAX - 2)), count_up(INT64_MAX - 2, INT64_MAX));
  expect_error([] { range(-1); }, Code::kInvalidArgument, {"range(-1)"});
}

Dataset three_from_a_generator() {
  return generator([] {
    return [next = int64_t{0}]() mutable -> std::optional<Element> {
      if (next == 3) return std::nullopt;
      return Element{{"value", Tensor::scalar(next++)}};
    };
  });
}

TEST(Generator, StartsAnewForEachPass) {
  const Dataset dataset = three_from_a_generator();
  EXPECT_EQ(dataset.cardinality(), kUnknown);
  EXPECT_EQ(values(dataset.repeat(2)), (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(generator([] { return [] { return std::nullopt; }; }, {.cardinality = 0}).cardinality(),
            0);
}

TEST(Generator, HasAsManyElementsAsItSays) {
  const auto three = [](int64_t cardinality) {
    return generator(
        [] {
          return [next = int64_t{0}]() mutable -> std::optional<Element> {
            if (next == 3) return std::nullopt;
            return Element{{"value", Tensor::scalar(next++)}};
          };
        },
        {.cardinality = cardinality});
  };
  EXPECT_EQ(values(three(3)), count_up(0, 3));
  EXPECT_EQ(values(three(5).take(3)), count_up(0, 3)) << "as long as that does not show";
  for (const auto& [cardinality, text] :
       {std::pair(2, "says 2 elements, but it went on"),
        std::pair(4, "says 4 elements, but it ended after 3"), std::pair(0, "says 0 elements"),
        std::pair(-1, "endless, but it ended after 3")})
    expect_error([&, cardinality = cardinality] { values(three(cardinality)); },
                 Code::kInvalidArgument, {"generator()", text});
}

TEST(Dataset, IsReadByRangeForAsOftenAsOneLikes) {
  const Dataset dataset = range(5).batch(2);
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<int64_t> rows;
    for (auto& batch : dataset) rows.push_back(batch.rows());
    EXPECT_EQ(rows, (std::vector<int64_t>{2, 2, 1}));
  }
}

static_assert(std::ranges::input_range<const Dataset>);
static_assert(std::ranges::input_range<const DistributedDataset>);

TEST(Dataset, IsARangeOfTheStandardLibrary) {
  const Dataset dataset = range(5);
  const auto is_even = [](const Element& e) { return e["value"].values<int64_t>()[0] % 2 == 0; };
  EXPECT_EQ(std::ranges::count_if(dataset, is_even), 3);
  EXPECT_EQ(std::ranges::distance(dataset), 5);
}

TEST(Dataset, NumbersThePassesThatDoNotSayTheirEpoch) {
  const Dataset dataset = range(100).shuffle(100);
  const Dataset copy = dataset;
  std::vector<std::vector<int64_t>> passes;
  for (int pass = 0; pass < 2; ++pass) {
    passes.emplace_back();
    for (auto& element : dataset)
      passes.back().push_back(static_cast<int64_t>(element["value"].item()));
  }
  EXPECT_EQ(passes[0], values(dataset, 0));
  EXPECT_EQ(passes[1], values(dataset, 1));
  EXPECT_EQ(copy.iterate().epoch(), 2u);
}

TEST(Dataset, KnowsItsCardinality) {
  const Dataset ten = range(10), endless = range(3).repeat(), unknown = three_from_a_generator();
  const auto keep_all = [](const Element&) { return true; };
  const auto same = [](const Element& e) { return e; };
  const auto ranges = [](const Element&) { return range(2); };
  EXPECT_EQ(ten.batch(4).cardinality(), 3);
  EXPECT_EQ(ten.batch(4, {.drop_remainder = true}).cardinality(), 2);
  EXPECT_EQ(ten.take(4).cardinality(), 4);
  EXPECT_EQ(ten.take(20).cardinality(), 10);
  EXPECT_EQ(ten.take(-1).cardinality(), 10);
  EXPECT_EQ(endless.take(7).cardinality(), 7);
  EXPECT_EQ(unknown.take(7).cardinality(), kUnknown);
  EXPECT_EQ(unknown.take(0).cardinality(), 0);
  EXPECT_EQ(ten.skip(4).cardinality(), 6);
  EXPECT_EQ(ten.skip(40).cardinality(), 0);
  EXPECT_EQ(endless.skip(4).cardinality(), kInfinite);
  EXPECT_EQ(ten.shard(3, 0).cardinality(), 4);
  EXPECT_EQ(ten.shard(3, 1).cardinality(), 3);
  EXPECT_EQ(ten.shard(20, 15).cardinality(), 0);
  EXPECT_EQ(ten.repeat(3).cardinality(), 30);
  EXPECT_EQ(ten.repeat(0).cardinality(), 0);
  EXPECT_EQ(range(0).repeat().cardinality(), 0);
  EXPECT_EQ(unknown.repeat(2).cardinality(), kUnknown);
  EXPECT_EQ(unknown.repeat().cardinality(), kInfinite);
  EXPECT_EQ(endless.cardinality(), kInfinite);
  EXPECT_EQ(ten.filter(keep_all).cardinality(), kUnknown);
  EXPECT_EQ(ten.interleave(ranges).cardinality(), kUnknown);
  EXPECT_EQ(range(0).filter(keep_all).cardinality(), 0);
  EXPECT_EQ(range(0).interleave(ranges).cardinality(), 0);
  EXPECT_EQ(endless.filter(keep_all).cardinality(), kInfinite);
  EXPECT_EQ(endless.interleave(ranges).cardinality(), kInfinite);
  EXPECT_EQ(ten.shuffle(3).map(same).cache().prefetch(1).cardinality(), 10);
  EXPECT_EQ(ten.padded_batch(4).cardinality(), 3);
  EXPECT_EQ(ten.padded_batch(4, {.shapes = {{"value", {}}}, .drop_remainder = true}).cardinality(),
            2);
  EXPECT_EQ(ten.batch(4).unbatch().cardinality(), kUnknown);
  EXPECT_EQ(range(0).batch(4).unbatch().cardinality(), 0);
  EXPECT_EQ(endless.batch(4).unbatch().cardinality(), kInfinite);
  EXPECT_EQ(ten.window(4).cardinality(), 3);
  EXPECT_EQ(unknown.window(4).cardinality(), kUnknown);
  EXPECT_EQ(endless.window(4, {.drop_remainder = true}).cardinality(), kInfinite);
  EXPECT_EQ(ten.take_while(keep_all).cardinality(), kUnknown);
  EXPECT_EQ(endless.take_while(keep_all).cardinality(), kUnknown);
  EXPECT_EQ(range(0).take_while(keep_all).cardinality(), 0);
  EXPECT_EQ(ten.concatenate(range(4)).cardinality(), 14);
  EXPECT_EQ(ten.concatenate(unknown).cardinality(), kUnknown);
  EXPECT_EQ(unknown.concatenate(endless).cardinality(), kInfinite);
  EXPECT_EQ(sample_from({ten, range(4)}).cardinality(), 14);
  EXPECT_EQ(sample_from({ten, unknown}).cardinality(), kUnknown);
  EXPECT_EQ(sample_from({ten, endless}).cardinality(), kInfinite);
  EXPECT_EQ(sample_from({ten, endless}, {}, {.stop_on_empty = true}).cardinality(), kUnknown);
  EXPECT_EQ(sample_from({endless, endless}, {}, {.stop_on_empty = true}).cardinality(), kInfinite);
  EXPECT_EQ(sample_from({ten, endless}, {1, 0}, {.stop_on_empty = true}).cardinality(), 10);
  EXPECT_EQ(zip(ten, endless).cardinality(), 10);
  EXPECT_EQ(zip(ten, range(4)).cardinality(), 4);
  EXPECT_EQ(zip(ten, unknown).cardinality(), kUnknown);
}

TEST(Dataset, KnowsItsBatchSize) {
  const auto same = [](const Element& e) { return e; };
  const auto ranges = [](const Element&) { return range(2); };
  const Dataset batched = range(10).batch(4);
  EXPECT_EQ(range(10).batch_size(), std::nullopt);
  EXPECT_EQ(batched.batch_size(), 4);
  EXPECT_EQ(
      batched.map(same).shuffle(2).repeat().take(5).skip(1).shard(2, 0).prefetch(2).batch_size(),
      4);
  EXPECT_EQ(batched.cache().batch_size(), 4);
  EXPECT_EQ(batched.batch(2).batch_size(), 2);
  EXPECT_EQ(batched.interleave(ranges).batch_size(), std::nullopt);
  EXPECT_EQ(batched.concatenate(range(9).batch(4)).batch_size(), 4);
  EXPECT_EQ(batched.concatenate(range(9).batch(3)).batch_size(), std::nullopt);
  EXPECT_EQ(sample_from({batched, batched}).batch_size(), 4);
  EXPECT_EQ(batched.unbatch().batch_size(), std::nullopt);
  EXPECT_EQ(batched.window(2).batch_size(), std::nullopt);
  EXPECT_EQ(batched.take_while([](const Element&) { return true; }).batch_size(), std::nullopt);
  EXPECT_EQ(zip(batched, range(9).batch(4)).batch_size(), 4);
  EXPECT_EQ(zip(batched, range(9).batch(3)).batch_size(), std::nullopt);
}

// To ask an input twice on each level would take for ever.
TEST(Dataset, IsMadeOfAsManyOthersAsOneLikes) {
  const Dataset batches = range(4).batch(2);
  Dataset concatenated = batches, sampled = batches, zipped = batches;
  for (int level = 0; level < 64; ++level) {
    const std::string name = str("level ", level);
    const Dataset renamed = batches.map([name](const Element& e) {
      return Element{{name, e["value"]}};
    });
    concatenated = concatenated.concatenate(batches);
    sampled = sample_from({sampled, batches});
    zipped = zip(zipped, renamed);
  }
  for (const Dataset& dataset : {concatenated, sampled, zipped}) EXPECT_EQ(dataset.batch_size(), 2);
  EXPECT_EQ(values(concatenated).size(), 65u * 4);
  EXPECT_EQ(values(sampled).size(), 65u * 4);
  EXPECT_EQ(zipped.iterate().next()->size(), 65u);
}

TEST(Iterator, KeepsItsDatasetAlive) {
  std::optional<Iterator> iterator;
  {
    const Dataset dataset = range(3).map([](const Element& e) { return e; }).prefetch(1);
    iterator.emplace(dataset.iterate());
  }
  EXPECT_EQ(remaining(*iterator), count_up(0, 3));
  *iterator = range(2).iterate();
  EXPECT_EQ(remaining(*iterator), count_up(0, 2));
}

}  // namespace
}  // namespace cohort::data
