#include "core/base/comma_separated.h"

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
  EXPECT_EQ(comma_separated(std::vector<int>{3, 1, 2}, squared, 2), "9, 1");
  EXPECT_EQ(comma_separated(std::vector<int>{3}, squared, 2), "9");
  EXPECT_EQ(comma_separated(std::vector<int>{3}, squared, 0), "");
}

}  // namespace
}  // namespace cohort
