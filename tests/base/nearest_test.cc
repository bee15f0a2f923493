#include "core/base/nearest.h"

#include <array>

#include <gtest/gtest.h>

namespace cohort {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"epochs", "data_dir", "rate"};

TEST(Nearest, IsTheNameWithTheFewestOtherLetters) {
  EXPECT_EQ(nearest("epcohs", kNames), "epochs");
  EXPECT_EQ(nearest("epoch", kNames), "epochs");
  EXPECT_EQ(nearest("rates", kNames), "rate");
  EXPECT_EQ(nearest("datadir", kNames), "data_dir");
  EXPECT_EQ(nearest("rate", kNames), "rate");
}

TEST(Nearest, IsNoneWhereMoreThanHalfOfItIsOther) {
  for (const char* word : {"", "zzz", "rzzz", "a_name_of_something_else"})
    EXPECT_EQ(nearest(word, kNames), "") << word;
  EXPECT_EQ(nearest("rate", {}), "");
}

}  // namespace
}  // namespace cohort
