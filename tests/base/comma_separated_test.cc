#include "core/base/comma_separated.h"

#include <map>
#include <ranges>
#include <vector>

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(CommaSeparated, IsBetweenTheItemsAlone) {
  EXPECT_EQ(comma_separated(std::vector<std::string>()), "");
  EXPECT_EQ(comma_separated(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(comma_separated(std::vector<int>{3, 1, 2}), "3, 1, 2");
  EXPECT_EQ(comma_separated(std::vector<std::string>{"", "b", ""}), ", b, ");
}

TEST(CommaSeparated, TakesAnyRange) {
  const std::map<std::string, double> logs = {{"loss", 1}, {"accuracy", 2}};
  EXPECT_EQ(comma_separated(std::views::keys(logs)), "accuracy, loss");
  const auto is_odd = [](int number) { return number % 2 != 0; };
  EXPECT_EQ(comma_separated(std::views::iota(1, 6) | std::views::filter(is_odd)), "1, 3, 5");
}

}  // namespace
}  // namespace cohort
