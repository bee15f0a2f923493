#include "core/base/error.h"

#include <cstdint>
#include <limits>
#include <locale>

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

struct CommaForPoint : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Str, WritesNumbersAlikeInAllLocales) {
  const std::locale before =
      std::locale::global(std::locale(std::locale::classic(), new CommaForPoint));
  const std::string text = str(1234.5, ' ', 8888);
  std::locale::global(before);
  EXPECT_EQ(text, "1234.5 8888");
}

}  // namespace
}  // namespace cohort
