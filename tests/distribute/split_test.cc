#include "tests/distribute/testing.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::floats;

TEST(SplitRowsTest, SizesDifferByAtMostOneAndTheLargerComeFirst) {
  EXPECT_EQ(split_rows(7, 3), (std::vector<int64_t>{3, 2, 2}));
  EXPECT_EQ(split_rows(10, 4), (std::vector<int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(split_rows(2, 4), (std::vector<int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(split_rows(0, 2), (std::vector<int64_t>{0, 0}));
  expect_error(Code::kInvalidArgument, {"-1"}, [] { split_rows(-1, 2); });
  expect_error(Code::kInvalidArgument, {"0 replicas"}, [] { split_rows(1, 0); });
}

class SplitBatchTest : public testing::ReplicasTest {};
COHORT_FOR_ALL_REPLICAS(SplitBatchTest);

TEST_P(SplitBatchTest, PartsShareTheBatchesMemory) {
  const Tensor batch = Tensor::zeros(DType::kFloat32, {9, 2}),
               label = floats({9, 8, 7, 6, 5, 4, 3, 2, 1});
  const auto parts = strategy.split_batch({batch, label});
  int64_t row = 0;
  for (int r = 0; r < replicas(); ++r) {
    const int64_t rows = split_rows(9, replicas())[r];
    EXPECT_EQ(parts[r][0].shape(), (Shape{rows, 2}));
    EXPECT_EQ(parts[r][1].data<float>(), label.data<float>() + row);
    row += rows;
  }
}

TEST_P(SplitBatchTest, RefusesTensorsWithoutEqualRows) {
  expect_error(Code::kInvalidArgument, {"empty"}, [&] { strategy.split_batch({}); });
  expect_error(Code::kInvalidArgument, {"float32[2]", "float32[3]"}, [&] {
    strategy.split_batch({floats({1, 2}), floats({1, 2, 3})});
  });
  expect_error(Code::kInvalidArgument, {"float32[]"},
               [&] { strategy.split_batch({Tensor::scalar(1.0f)}); });
}

}  // namespace
}  // namespace cohort
