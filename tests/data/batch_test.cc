#include <algorithm>
#include <cstring>

#include "tests/data/testing.h"

namespace cohort::data {
namespace {

// {"x": float32[2], "label": int32[]} with x = (10 i, 10 i + 1) and label = i.
Dataset pairs(int64_t count) {
  Tensor x(DType::kFloat32, {count, 2}), label(DType::kInt32, {count});
  for (int64_t i = 0; i < count; ++i) {
    x.data<float>()[2 * i] = static_cast<float>(10 * i);
    x.data<float>()[2 * i + 1] = static_cast<float>(10 * i + 1);
    label.data<int32_t>()[i] = static_cast<int32_t>(i);
  }
  return from_tensor_slices({{"x", x}, {"label", label}});
}

Element same(const Element& element) { return element; }

// Batches read straight from tensors, and batches of elements that a map() made, have to be alike.
class Batch : public ::testing::TestWithParam<bool> {
 protected:
  static Dataset source(int64_t count) {
    return GetParam() ? pairs(count) : pairs(count).map(same);
  }
};
INSTANTIATE_TEST_SUITE_P(RowsAndElements, Batch, ::testing::Bool());

TEST_P(Batch, StacksElementsAlongANewFirstAxis) {
  Iterator iterator = source(5).batch(2).iterate();
  iterator.next();
  const auto second = iterator.next();
  ASSERT_TRUE(second);
  EXPECT_EQ((*second)["x"].shape(), Shape({2, 2}));
  EXPECT_EQ((*second)["label"].shape(), Shape({2}));
  const std::vector<float> expected{20, 21, 30, 31};
  EXPECT_EQ(std::memcmp((*second)["x"].raw(), expected.data(), 16), 0);
  EXPECT_EQ((*second)["label"].values<int32_t>()[1], 3);
  EXPECT_EQ(iterator.next()->rows(), 1);
  EXPECT_FALSE(iterator.next());
}

TEST_P(Batch, CanDropTheRemainder) {
  const Dataset dataset = source(5).batch(2, {.drop_remainder = true});
  int64_t batches = 0;
  for (auto& batch : dataset) {
    EXPECT_EQ(batch.rows(), 2);
    ++batches;
  }
  EXPECT_EQ(batches, 2);
}

TEST_P(Batch, FollowsTheOrderOfAShuffle) {
  std::vector<int32_t> single, batched;
  const Dataset shuffled = source(100).shuffle(40, {.seed = 1});
  Iterator elements = shuffled.iterate({.epoch = 0});
  while (const auto element = elements.next())
    single.push_back(static_cast<int32_t>((*element)["label"].item()));
  Iterator batches = shuffled.batch(7).iterate({.epoch = 0});
  while (const auto batch = batches.next()) {
    for (const int32_t label : (*batch)["label"].values<int32_t>()) batched.push_back(label);
    for (int64_t row = 0; row < batch->rows(); ++row)
      EXPECT_EQ((*batch)["x"].values<float>()[2 * row],
                10 * (*batch)["label"].values<int32_t>()[row]);
  }
  EXPECT_EQ(single, batched);
}

TEST_P(Batch, OwnsItsMemory) {
  const Dataset dataset = source(4).batch(2);
  Iterator iterator = dataset.iterate();
  Tensor x = (*iterator.next())["x"];
  std::memset(x.raw(), 0, x.bytes());
  EXPECT_EQ((*dataset.iterate().next())["x"].values<float>()[3], 11);
}

TEST(BatchOfBatches, AddsAnAxisEach) {
  EXPECT_EQ((*pairs(8).batch(2).batch(3).iterate().next())["x"].shape(), Shape({3, 2, 2}));
}

TEST(BatchOfMixedSources, StacksRowsOfSeveralTables) {
  const Dataset dataset =
      range(3).interleave([](const Element&) { return pairs(2); }, {.cycle_length = 3}).batch(6);
  const auto batch = dataset.iterate().next();
  ASSERT_TRUE(batch);
  const auto labels = (*batch)["label"].values<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(labels.begin(), labels.end()),
            (std::vector<int32_t>{0, 0, 0, 1, 1, 1}));
}

TEST(RaggedBatch, NamesElementTensorAndBothSpecs) {
  const Dataset ragged = range(10).map([](const Element& e) {
    return Element{{"word", Tensor::zeros(DType::kFloat32, {e["value"].item() < 5 ? 3 : 4, 2})}};
  });
  Iterator iterator = ragged.batch(4).iterate();
  EXPECT_TRUE(iterator.next());
  expect_error([&] { iterator.next(); }, Code::kInvalidArgument,
               {"element 5 ", "starts at element 4", "\"word\" is float32[4,2]", "float32[3,2]"});
}

TEST(RaggedBatch, NamesMissingAndSurplusTensors) {
  const auto batch_with = [](const Element& second) {
    range(2)
        .map([=](const Element& e) { return e["value"].item() == 1 ? second : e; })
        .batch(2)
        .iterate()
        .next();
  };
  const Tensor value = Tensor::scalar<int64_t>(1);
  expect_error(
      [&] {
        batch_with({{"other", value}});
      },
      Code::kInvalidArgument, {"element 1", "no \"value\"", "other"});
  expect_error(
      [&] {
        batch_with({{"value", value}, {"other", value}});
      },
      Code::kInvalidArgument, {"element 1", "other"});
  expect_error(
      [&] {
        batch_with({{"value", Tensor::scalar(1.0f)}});
      },
      Code::kInvalidArgument, {"float32[]", "int64[]"});
}

TEST_P(Batch, IsUndoneByUnbatch) {
  const Dataset rows = source(7).batch(3).unbatch();
  EXPECT_EQ(rows.batch_size(), std::nullopt);
  std::vector<std::string> expected, unbatched;
  for (auto& element : source(7)) expected.push_back(str(element, to_string(element["x"])));
  for (auto& element : rows) unbatched.push_back(str(element, to_string(element["x"])));
  EXPECT_EQ(unbatched, expected);
}

TEST(Unbatch, TakesBatchesOfAnySize) {
  const auto as_many = [](const Element& e) {
    return Element{{"value", Tensor::full(DType::kInt64, {e["value"].values<int64_t>()[0] % 3},
                                          e["value"].item())}};
  };
  const Dataset rows = range(7).map(as_many).unbatch();
  EXPECT_EQ(values(rows), (std::vector<int64_t>{1, 2, 2, 4, 5, 5}));
  for (int64_t skipped = 0; skipped < 8; ++skipped) {
    const std::vector<int64_t> all = values(rows);
    EXPECT_EQ(values(rows.skip(skipped)),
              std::vector<int64_t>(all.begin() + std::min<int64_t>(skipped, 6), all.end()));
  }
  EXPECT_EQ(values(rows.batch(4)), values(rows)) << "rows of several tables";
  EXPECT_EQ(values(range(0).batch(2).unbatch()), std::vector<int64_t>());
}

TEST(Unbatch, UndoesOneBatchAtATime) {
  const auto element = pairs(8).batch(2).batch(3).unbatch().iterate().next();
  ASSERT_TRUE(element);
  EXPECT_EQ((*element)["x"].shape(), Shape({2, 2}));
}

TEST(Unbatch, AsksForAsManyRowsOfEachTensor) {
  const auto unbatched = [](const Element& batch) {
    range(1).map([=](const Element&) { return batch; }).unbatch().iterate().next();
  };
  const Tensor two = Tensor::zeros(DType::kFloat32, {2}),
               three = Tensor::zeros(DType::kFloat32, {3});
  expect_error(
      [&] {
        unbatched({{"x", two}, {"label", three}});
      },
      Code::kInvalidArgument, {"unbatch()", "\"label\" has 3 rows", "\"x\" has 2"});
  expect_error([] { range(2).unbatch().iterate().next(); }, Code::kInvalidArgument,
               {"unbatch()", "\"value\" is a scalar"});
}

TEST(BatchSize, HasToBePositiveAndMayBeHuge) {
  expect_error([] { range(5).batch(0); }, Code::kInvalidArgument, {"batch(0)"});
  EXPECT_EQ(range(5).batch(INT64_MAX).iterate().next()->rows(), 5);
}

}  // namespace
}  // namespace cohort::data
