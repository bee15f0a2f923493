#include "core/base/quote.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Quote, EscapesAllButPrintableAscii) {
  EXPECT_EQ(quote("node-[1,2] ~"), "\"node-[1,2] ~\"");
  EXPECT_EQ(quote(std::string_view("\0a\n\x7f\xff", 5)), "\"\\x00a\\x0a\\x7f\\xff\"");
  EXPECT_EQ(quote(""), "\"\"");
}

TEST(Quote, ShortensWhatIsLong) {
  EXPECT_EQ(quote(std::string(60, 'a')), '"' + std::string(60, 'a') + '"');
  EXPECT_EQ(quote(std::string(61, 'a')), '"' + std::string(60, 'a') + "...\"");
}

}  // namespace
}  // namespace cohort
