// Batches of tensors that are of different lengths.

#include <cmath>

#include "core/base/comma_separated.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

// Element i: {"word": int64[lengths[i]], all i + 1; "label": int64[], i}.
Dataset words(const std::vector<int64_t>& lengths) {
  return range(static_cast<int64_t>(lengths.size())).map([lengths](const Element& e) {
    const int64_t i = e["value"].values<int64_t>()[0];
    const Tensor word =
        Tensor::full(DType::kInt64, {lengths[static_cast<size_t>(i)]}, static_cast<double>(i + 1));
    return Element{{"word", word}, {"label", e["value"]}};
  });
}

Dataset of_element(const Element& element) {
  return range(2).map([element](const Element&) { return element; });
}

std::string print(const Tensor& tensor) {
  const Tensor numbers = tensor.cast(DType::kFloat64);
  return str(tensor.spec(), " {", comma_separated(numbers.values<double>()), "}");
}

// Each batch's tensor of that name.
std::vector<std::string> print(const Dataset& dataset, const std::string& name = "word") {
  std::vector<std::string> printed;
  for (auto& batch : dataset) printed.push_back(print(batch[name]));
  return printed;
}

std::string print(const std::vector<int64_t>& values, const Shape& shape) {
  return print(Tensor::from(values, shape));
}

using Printed = std::vector<std::string>;

TEST(PaddedBatch, PadsToTheLongestOfEachBatch) {
  const Dataset dataset = words({2, 0, 3, 1, 1}).padded_batch(2);
  EXPECT_EQ(print(dataset), (Printed{print({1, 1, 0, 0}, {2, 2}), print({3, 3, 3, 4, 0, 0}, {2, 3}),
                                     print({5}, {1, 1})}));
  EXPECT_EQ(print(dataset, "label"),
            (Printed{print({0, 1}, {2}), print({2, 3}, {2}), print({4}, {1})}));
}

TEST(PaddedBatch, PadsToAShape) {
  for (const int64_t extent : {4, -1}) {
    const Dataset dataset =
        words({2, 4}).padded_batch(2, {.shapes = {{"word", {extent}}}, .values = {{"word", -100}}});
    EXPECT_EQ(print(dataset), Printed{print({1, 1, -100, -100, 2, 2, 2, 2}, {2, 4})});
    EXPECT_EQ(dataset.batch_size(), extent == 4 ? std::optional<int64_t>(2) : std::nullopt);
  }
}

TEST(PaddedBatch, PadsEveryAxis) {
  const Tensor wide = Tensor::from<float>({1, 2, 3}, {1, 3}),
               tall = Tensor::from<float>({4, 5}, {2, 1});
  const Dataset dataset = range(2).map([=](const Element& e) {
    return Element{{"x", e["value"].item() == 0 ? wide : tall}};
  });
  EXPECT_EQ(print(dataset.padded_batch(2), "x"),
            Printed{print(Tensor::from<float>({1, 2, 3, 0, 0, 0, 4, 0, 0, 5, 0, 0}, {2, 2, 3}))});
  EXPECT_EQ(print(dataset.padded_batch(2, {.shapes = {{"x", {-1, 4}}}, .values = {{"x", 9}}}), "x"),
            Printed{print(
                Tensor::from<float>({1, 2, 3, 9, 9, 9, 9, 9, 4, 9, 9, 9, 5, 9, 9, 9}, {2, 2, 4}))});
}

TEST(PaddedBatch, PadsEveryDtype) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16,
                            DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool}) {
    const Dataset dataset = range(2).map([=](const Element& e) {
      return Element{{"x", Tensor::full(dtype, {1 + e["value"].values<int64_t>()[0]}, 0)}};
    });
    const auto batch = dataset.padded_batch(2, {.values = {{"x", 1}}}).iterate().next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(str((*batch)["x"].spec()), str(dtype, "[2,2]"));
    EXPECT_EQ(print((*batch)["x"].cast(DType::kInt64)), print({0, 1, 0, 0}, {2, 2}));
  }
}

TEST(PaddedBatch, CanDropTheRemainder) {
  const Dataset dropped = words({1, 2, 3}).padded_batch(2, {.drop_remainder = true});
  EXPECT_EQ(dropped.cardinality(), 1);
  EXPECT_EQ(print(dropped).size(), 1u);
  EXPECT_EQ(words({1, 2, 3}).padded_batch(2).cardinality(), 2);
}

TEST(PaddedBatch, RefusesWhatDoesNotFitItsShape) {
  const auto refused = [](const Dataset& dataset, const PaddedBatchOptions& options,
                          const std::vector<std::string>& texts) {
    expect_error([&] { print(dataset.padded_batch(2, options)); }, Code::kInvalidArgument, texts);
  };
  for (const int64_t extent : {2, -1})
    refused(words({1, 1}), {.shapes = {{"word", {extent, 3}}}},
            {"padded_batch()", "\"word\" is int64[1]", "rank is not 2"});
  const Error longer = error_of([] {
    print(words({1, 3}).padded_batch(2, {.shapes = {{"word", {2}}}}));
  });
  EXPECT_EQ(longer.message(),
            "padded_batch(): elements 0 to 1: \"word\" is int64[3], longer than the shape [2] that "
            "it is to be padded to");
  refused(words({1, 1}), {.shapes = {{"wrod", {2}}}}, {"no tensor \"wrod\"", "word: int64[1]"});
  refused(words({1, 1}), {.values = {{"wrod", 2}}}, {"no tensor \"wrod\""});
  refused(of_element({{"x", Tensor::zeros(DType::kUInt8, {1})}}),
          {.shapes = {{"x", {2}}}, .values = {{"x", 300}}},
          {"\"x\" cannot be padded with 300", "uint8"});
  refused(of_element({{"x", Tensor::zeros(DType::kInt32, {1})}}),
          {.shapes = {{"x", {2}}}, .values = {{"x", std::nan("")}}}, {"padded with nan", "int32"});
}

TEST(PaddedBatch, RefusesElementsThatDiffer) {
  const auto second_is = [](const Tensor& other) {
    const Tensor first = Tensor::zeros(DType::kInt64, {1});
    return range(2).map([=](const Element& e) {
      return Element{{"x", e["value"].item() == 0 ? first : other}};
    });
  };
  expect_error([&] { print(second_is(Tensor::zeros(DType::kInt32, {2})).padded_batch(2), "x"); },
               Code::kInvalidArgument, {"padded_batch(): element 1", "int32[2]", "int64[2]"});
  expect_error(
      [&] {
        print(second_is(Tensor::zeros(DType::kInt64, {2, 2})).padded_batch(2), "x");
      },
      Code::kInvalidArgument, {"int64[2,2]", "rank is not 1", "the batch's first"});
  // Without a shape, where others have one.
  expect_error(
      [&] {
        print(words({1, 2}).padded_batch(2, {.shapes = {{"label", {}}}}));
      },
      Code::kInvalidArgument, {"padded_batch(): element 1", "\"word\" is int64[2]"});
}

TEST(PaddedBatch, RefusesOptionsThatMeanNothing) {
  const auto refused = [](int64_t size, const PaddedBatchOptions& options,
                          const std::vector<std::string>& texts) {
    expect_error([&] { words({1}).padded_batch(size, options); }, Code::kInvalidArgument, texts);
  };
  refused(0, {}, {"padded_batch(0)"});
  refused(2, {.shapes = {{"word", {3, -2}}}}, {"\"word\" is [3, -2]"});
  refused(2, {.shapes = {{"label", {}}}, .values = {{"word", 1}}}, {"\"word\"", "no shape"});
}

}  // namespace
}  // namespace cohort::data
