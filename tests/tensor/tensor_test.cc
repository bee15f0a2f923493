#include "core/tensor/tensor.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/testing/error_of.h"

namespace cohort {
namespace {

TEST(TensorTest, WithoutAValueIsRefusedWhereElementsAreNeeded) {
  const Tensor none;
  Tensor empty, one = Tensor::scalar(1.0f);
  const std::pair<std::string, std::function<void()>> uses[] = {
      {"item: the tensor", [&] { none.item(); }},
      {"transpose: the tensor", [&] { none.transpose({}); }},
      {"clone: the tensor", [&] { none.clone(); }},
      {"data: the tensor", [&] { none.data<float>(); }},
      {"data: the tensor", [&] { none.values<float>(); }},
      {"cast: the tensor", [&] { none.cast(DType::kFloat64); }},
      {"cast: the tensor", [&] { none.cast(none.dtype()); }},
      {"assign: the tensor to write to", [&] { empty.assign(one); }},
      {"assign: the tensor to copy", [&] { one.assign(none); }}};
  for (const auto& [said, use] : uses) {
    const Error error = testing::error_of(use);
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message(), str("Tensor::", said, " has no value; it was never assigned"));
  }
  EXPECT_FALSE(empty.defined());
  EXPECT_EQ(one.item(), 1);
  EXPECT_EQ(none.raw(), nullptr);
  EXPECT_THROW(Tensor(DType::kFloat32, {1}, nullptr), Error);
}

TEST(TensorTest, LiesInNoMemoryThatIsTooSmallForIt) {
  const auto memory = allocate_host_buffer(64);
  EXPECT_EQ(Tensor(DType::kFloat32, {14}, memory, 8).num_elements(), 14);
  EXPECT_THROW(Tensor(DType::kFloat32, {15}, memory, 8), Error);
  // 2^64 bytes, which as a number of 64 bits are none.
  EXPECT_THROW(Tensor(DType::kFloat64, {int64_t{1} << 31, int64_t{1} << 30}, memory), Error);
}

TEST(TensorTest, WhatWasMovedFromHandsOutNoMemory) {
  Tensor from = Tensor::from<float>({1, 2}, {2});
  const Tensor to = std::move(from);
  EXPECT_FALSE(from.defined());  // NOLINT: what this is about
  EXPECT_EQ(from.raw(), nullptr);
  EXPECT_THROW(from.data<float>(), Error);
  EXPECT_EQ(to.values<float>()[1], 2);
}

TEST(TensorTest, IsMadeOfBools) {
  const std::vector<bool> values = {true, false, true};
  const Tensor tensor = Tensor::from(values, {3});
  EXPECT_EQ(to_string(tensor), "bool[3] {1, 0, 1}");
  EXPECT_EQ(to_string(Tensor::from<bool>({false}, {})), "bool[] {0}");
  EXPECT_THROW(Tensor::from(values, {2}), Error);
}

// By way of the nearest float, 1 + 2^-11 + 2^-40 would become a tie.
TEST(TensorTest, Float64IsRoundedToSixteenBitsOnce) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto cast = [](double value, DType dtype) {
    return Tensor::scalar(value).cast(dtype).item();
  };
  for (const double sign : {1.0, -1.0}) {
    EXPECT_EQ(cast(sign * (1 + 0x1p-11 + 0x1p-40), DType::kFloat16), sign * (1 + 0x1p-10));
    EXPECT_EQ(cast(sign * (1 + 0x1p-11), DType::kFloat16), sign);
    EXPECT_EQ(cast(sign * (1 + 3 * 0x1p-11 - 0x1p-40), DType::kFloat16), sign * (1 + 0x1p-10));
    EXPECT_EQ(cast(sign * (1 + 0x1p-8 + 0x1p-40), DType::kBFloat16), sign * (1 + 0x1p-7));
    EXPECT_EQ(cast(sign * (1 + 0x1p-8), DType::kBFloat16), sign);
    EXPECT_EQ(cast(sign * 1e300, DType::kBFloat16), sign * infinity);
    EXPECT_EQ(cast(sign * 65520, DType::kFloat16), sign * infinity);
    EXPECT_EQ(cast(sign * (65520 - 0x1p-30), DType::kFloat16), sign * 65504);
    EXPECT_EQ(cast(sign * 1e-300, DType::kFloat16), 0);
    EXPECT_EQ(cast(sign * (0x1p-25 + 0x1p-60), DType::kFloat16), sign * 0x1p-24);
    EXPECT_EQ(cast(sign * infinity, DType::kBFloat16), sign * infinity);
  }
  EXPECT_TRUE(std::isnan(cast(std::nan(""), DType::kFloat16)));
}

TEST(TensorTest, RowsAreAssignedToRowsThatOverlapThem) {
  constexpr int64_t kRows = 1000;
  std::vector<int64_t> numbers(kRows);
  std::iota(numbers.begin(), numbers.end(), 0);
  for (const int64_t by : {1, 3, 70}) {
    const Tensor tensor = Tensor::from(numbers, {kRows});
    const Tensor head = tensor.slice_rows(0, kRows - by), tail = tensor.slice_rows(by, kRows);
    const Tensor head_before = head.clone();
    Tensor target = tail;
    target.assign(head);
    EXPECT_TRUE(std::ranges::equal(tail.values<int64_t>(), head_before.values<int64_t>())) << by;
    const Tensor tail_before = tail.clone();
    target = head;
    target.assign(tail);
    EXPECT_TRUE(std::ranges::equal(head.values<int64_t>(), tail_before.values<int64_t>())) << by;
  }
}

TEST(TensorTest, IsTransposedIntoACopy) {
  std::vector<int32_t> numbers(2 * 3 * 4);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Tensor tensor = Tensor::from(numbers, {2, 3, 4});
  const Tensor moved = tensor.transpose({2, 0, 1});
  ASSERT_EQ(moved.shape(), (Shape{4, 2, 3}));
  for (int64_t a = 0; a < 2; ++a)
    for (int64_t b = 0; b < 3; ++b)
      for (int64_t c = 0; c < 4; ++c)
        EXPECT_EQ(moved.data<int32_t>()[(c * 2 + a) * 3 + b], (a * 3 + b) * 4 + c);
  EXPECT_EQ(to_string(moved.transpose({1, -1, 0})), to_string(tensor)) << "the way back";
  EXPECT_TRUE(std::ranges::equal(tensor.values<int32_t>(), numbers));
  EXPECT_EQ(to_string(Tensor::from<uint8_t>({3, 4}, {1, 2}).transpose({1, 0})),
            "uint8[2,1] {3, 4}");
  EXPECT_EQ(Tensor::zeros(DType::kFloat16, {0, 5}).transpose({1, 0}).shape(), (Shape{5, 0}));
  EXPECT_EQ(Tensor::scalar(7.0).transpose({}).item(), 7);

  for (const std::vector<int64_t>& perm :
       {std::vector<int64_t>{0, 1}, std::vector<int64_t>{0, 1, 1}}) {
    const Error error = testing::error_of([&] { tensor.transpose(perm); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("cannot transpose int32[2,3,4] to axes 0, 1"), std::string::npos)
        << error.message();
  }
}

TEST(ShapeTest, CountsAxesFromTheEndAndRefusesThoseItDoesNotHave) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.with_dim(-1, 5), (Shape{2, 3, 5}));
  EXPECT_EQ(shape.with_dim(-3, 5), (Shape{5, 3, 4}));
  EXPECT_EQ(shape.without_axis(-1), (Shape{2, 3}));
  EXPECT_EQ(shape.without_axis(-2), (Shape{2, 4}));
  EXPECT_EQ(shape.with_inserted(-1, 5), (Shape{2, 3, 4, 5}));
  EXPECT_EQ(shape.with_inserted(-4, 5), (Shape{5, 2, 3, 4}));
  EXPECT_EQ(shape.with_inserted(3, 5), (Shape{2, 3, 4, 5}));
  EXPECT_EQ(Shape{}.with_inserted(0, 5), Shape{5});
  const std::pair<std::function<void()>, std::string> mistakes[] = {
      {[&] { shape.with_dim(3, 5); },
       "axis 3 is out of range for shape [2,3,4] (allowed: -3 to 2)"},
      {[&] { shape.without_axis(-4); },
       "axis -4 is out of range for shape [2,3,4] (allowed: -3 to 2)"},
      {[&] { shape.with_inserted(-5, 5); },
       "axis -5 is out of range for shape [2,3,4] (allowed: -4 to 3)"}};
  for (const auto& [mistake, message] : mistakes) {
    const Error error = testing::error_of(mistake);
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message(), message);
  }
  EXPECT_THROW(Shape{}.without_axis(0), Error);
}

TEST(TensorTest, IsWrittenWithItsFirstElements) {
  EXPECT_EQ(to_string(Tensor::from<int32_t>({1, 2}, {2})), "int32[2] {1, 2}");
  EXPECT_EQ(to_string(Tensor::from<int64_t>({9007199254740993, -1}, {2})),
            "int64[2] {9007199254740993, -1}");
  EXPECT_EQ(to_string(Tensor::zeros(DType::kBool, {9})), "bool[9] {0, 0, 0, 0, 0, 0, 0, 0, ...}");
  EXPECT_EQ(to_string(Tensor::zeros(DType::kFloat32, {0})), "float32[0] {}");
  EXPECT_EQ(to_string(Tensor()), "undefined tensor");
}

// There is no memory for the others.
TEST(TensorTest, IsWrittenWithoutReadingWhatIsNotShown) {
  alignas(kBufferAlignment) float first[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t count = int64_t{1} << 40;
  const Tensor tensor(DType::kFloat32, {count},
                      std::make_shared<Buffer>(Buffer{first, static_cast<size_t>(count) * 4}));
  EXPECT_EQ(to_string(tensor), "float32[1099511627776] {1, 2, 3, 4, 5, 6, 7, 8, ...}");
}

}  // namespace
}  // namespace cohort
