#include "core/base/quote.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Quote, EscapesAllButPrintableAscii) {
  EXPECT_EQ(quote("node-[1,2] ~"), "\"node-[1,2] ~\"");
  EXPECT_EQ(quote(std::string_view("\0a\n\x7f\xff", 5)), "\"\\x00a\\x0a\\x7f\\xff\"");
  EXPECT_EQ(quote(""), "\"\"");
}

TEST(Escaped, IsTheSameWithoutQuotesAndWhole) {
  EXPECT_EQ(escaped(std::string_view("\0a\n\x7f\xff", 5)), "\\x00a\\x0a\\x7f\\xff");
  EXPECT_EQ(escaped(std::string(61, 'a')), std::string(61, 'a'));
}

TEST(Quote, ShortensWhatIsLong) {
  EXPECT_EQ(quote(std::string(60, 'a')), '"' + std::string(60, 'a') + '"');
  EXPECT_EQ(quote(std::string(61, 'a')), '"' + std::string(60, 'a') + "...\"");
}

TEST(Printable, ShowsNoControlCharacters) {
  EXPECT_EQ(printable("a\tb\x1b[2J\r\n\x7f"), "a?b?[2J???");
  EXPECT_EQ(printable("\x9b \xc2\x9b"), "? ??");  // the same to a terminal
  EXPECT_EQ(printable("Müller \u2014 ç \u00a0"), "Müller \u2014 ç \u00a0");
}

TEST(Printable, KeepsTheLinesOfATextOfSeveral) {
  EXPECT_EQ(printable_lines("a\x1b[2J\nb\r\n\nc"), "a?[2J\nb?\n\nc");
  EXPECT_EQ(printable_lines(""), "");
}

}  // namespace
}  // namespace cohort
