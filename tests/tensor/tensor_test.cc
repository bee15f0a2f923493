#include "core/tensor/tensor.h"

#include <algorithm>
#include <functional>
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
      {"clone: the tensor", [&] { none.clone(); }},
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

TEST(TensorTest, IsWrittenWithItsFirstElements) {
  EXPECT_EQ(to_string(Tensor::from<int32_t>({1, 2}, {2})), "int32[2] {1, 2}");
  EXPECT_EQ(to_string(Tensor::from<int64_t>({9007199254740993, -1}, {2})),
            "int64[2] {9007199254740993, -1}");
  EXPECT_EQ(to_string(Tensor::zeros(DType::kBool, {9})), "bool[9] {0, 0, 0, 0, 0, 0, 0, 0, ...}");
  EXPECT_EQ(to_string(Tensor::zeros(DType::kFloat32, {0})), "float32[0] {}");
  EXPECT_EQ(to_string(Tensor()), "undefined tensor");
}

}  // namespace
}  // namespace cohort
