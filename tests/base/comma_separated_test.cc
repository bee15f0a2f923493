#include "core/base/comma_separated.h"

#include <functional>
#include <map>
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

TEST(CommaSeparated, ShowsWhatIsAskedFor) {
  using Logs = std::map<std::string, double>;
  const Logs logs = {{"loss", 1}, {"accuracy", 2}};
  EXPECT_EQ(comma_separated(logs, &Logs::value_type::first), "accuracy, loss");
  const auto squared = [](int number) { return number * number; };
  EXPECT_EQ(comma_separated(std::vector<int>{3, 1, 2}, squared), "9, 1, 4");
}

TEST(CommaSeparated, SaysHowManyItLeavesOut) {
  const std::vector<std::string> names = {"a", "b", "c"};
  EXPECT_EQ(comma_separated(names, std::identity(), 1), "a and 2 more");
  EXPECT_EQ(comma_separated(names, std::identity(), 2), "a, b and 1 more");
  EXPECT_EQ(comma_separated(names, std::identity(), 3), "a, b, c");
  EXPECT_EQ(comma_separated(names, std::identity(), 4), "a, b, c");
}

}  // namespace
}  // namespace cohort
