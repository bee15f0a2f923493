#include "core/base/format_number.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "core/base/progress.h"
#include "tests/testing/comma_locale.h"

namespace cohort {
namespace {

std::string printed(const char* pattern, int precision, double value) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, precision, value);
  return text;
}

TEST(FormatNumber, WritesWhatPrintfWrites) {
  for (const double value :
       {0.0, -0.0, 1.0, 0.5, -2.5, 0.123456789, 99999.95, 123456789.0, 1e-5, 3.1e-5, 1e22, -1e308,
        std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()})
    for (const int precision : {0, 1, 3, 6, 17, 99}) {
      EXPECT_EQ(format_number(value, std::chars_format::fixed, precision),
                printed("%.*f", precision, value));
      EXPECT_EQ(format_number(value, std::chars_format::scientific, precision),
                printed("%.*e", precision, value));
      EXPECT_EQ(format_number(value, std::chars_format::general, precision),
                printed("%.*g", precision, value));
    }
  EXPECT_EQ(format_number(std::nan(""), std::chars_format::fixed, 2), "nan");
}

TEST(FormatNumber, HasAPointInEveryLocale) {
  const testing::CommaLocale comma;
  if (!comma.is_set()) GTEST_SKIP() << "no locale with a comma";
  ASSERT_EQ(printed("%.*f", 1, 0.5), "0,5");
  EXPECT_EQ(format_number(0.5, std::chars_format::fixed, 3), "0.500");
  EXPECT_EQ(format_metric(0.3012), "0.3012");
  EXPECT_EQ(format_metric(3.1e-5), "3.1000e-05");
}

}  // namespace
}  // namespace cohort
