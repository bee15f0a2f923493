#include "core/base/error.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(CodeOf, EveryCodeHasItsNumber) {
  for (const Code code : {Code::kCancelled, Code::kInvalidArgument, Code::kDataLoss})
    EXPECT_EQ(code_of(static_cast<int64_t>(code)), code) << code_name(code);
}

TEST(CodeOf, ANumberOfNoCodeIsUnknown) {
  for (const int64_t number : {int64_t{-1}, int64_t{0}, int64_t{16}, int64_t{1} << 32 | 3,
                               std::numeric_limits<int64_t>::min()})
    EXPECT_EQ(code_of(number), Code::kUnknown) << number;
}

}  // namespace
}  // namespace cohort
