#include "strategies/parameter_server/row_slice.h"

#include <limits>

#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

using Rows = std::vector<int64_t>;

TEST(RowSlice, NamesRowsAsPythonDoes) {
  EXPECT_EQ((RowSlice{}.rows(3)), (Rows{0, 1, 2}));
  EXPECT_EQ((RowSlice{.step = 3}.rows(8)), (Rows{0, 3, 6}));
  EXPECT_EQ((RowSlice{.begin = 5, .end = -1}.rows(8)), (Rows{5, 6}));
  EXPECT_EQ((RowSlice{.begin = 2, .end = -8, .step = -1}.rows(8)), (Rows{2, 1}));
  EXPECT_EQ((RowSlice{.step = -5}.rows(8)), (Rows{7, 2}));
  EXPECT_EQ((RowSlice{.begin = 6, .end = 5, .step = -6}.rows(8)), (Rows{6}));
  EXPECT_EQ((RowSlice{.begin = 5, .end = 3}.rows(8)), Rows());
  EXPECT_EQ((RowSlice{.begin = -100, .end = 100}.rows(2)), (Rows{0, 1}));
  EXPECT_EQ((RowSlice{.begin = 100, .end = -100, .step = -1}.rows(2)), (Rows{1, 0}));
  EXPECT_EQ((RowSlice{.step = -1}.rows(2)), (Rows{1, 0}));
  for (const int64_t step : {std::numeric_limits<int64_t>::max(), int64_t{-1}})
    EXPECT_EQ((RowSlice{.step = step}.rows(0)), Rows());
  EXPECT_EQ((RowSlice{.step = std::numeric_limits<int64_t>::max()}.rows(5)), (Rows{0}));
  EXPECT_EQ((RowSlice{.step = std::numeric_limits<int64_t>::min()}.rows(5)), (Rows{4}));
  EXPECT_EQ((RowSlice{.begin = -2}.rows(int64_t{1} << 40).size()), 2u);
  EXPECT_ERROR(RowSlice{}.rows(int64_t{1} << 40), Code::kResourceExhausted, "the limit");
  EXPECT_ERROR((RowSlice{.step = 0}.rows(5)), Code::kInvalidArgument, "step 0");
}

}  // namespace
}  // namespace cohort::testing
