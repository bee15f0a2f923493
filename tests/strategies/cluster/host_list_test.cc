#include "strategies/cluster/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::refusal;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string hosts(const std::string& text) {
  std::string names;
  for (const ListedHost& host : expand_host_list(text, "LIST", 1000)) {
    names += (names.empty() ? "" : " ") + host.name;
  }
  return names;
}

TEST(HostList, Expands) {
  const std::pair<std::string, std::string> cases[] = {
      {"n1", "n1"},
      {"a,b,c", "a b c"},
      {"a b\tc", "a b c"},
      {"a , b", "a b"},
      {"n[1]", "n1"},
      {"n[1,3]", "n1 n3"},
      {"n[1-3]", "n1 n2 n3"},
      {"n[1-2],m5,o[3-4,6,7-9]", "n1 n2 m5 o3 o4 o6 o7 o8 o9"},
      {"n[0001-0003],m5,o[009-011]", "n0001 n0002 n0003 m5 o009 o010 o011"},
      {"n[08-10]", "n08 n09 n10"},
      {"n[8-10]", "n8 n9 n10"},
      {"n[98-102]", "n98 n99 n100 n101 n102"},
      {"rack[1-2]n[01-02]", "rack1n01 rack1n02 rack2n01 rack2n02"},
      {"n[1-2]-ib", "n1-ib n2-ib"},
      {"[1-2]n", "1n 2n"},
      {"a[1-2][3-4]", "a13 a14 a23 a24"},
      {"n2,n10,n1,n2", "n2 n10 n1 n2"},
      {"n[10-11,1-2]", "n10 n11 n1 n2"},
      {"t02n13.cluster,t02n41.cluster", "t02n13.cluster t02n41.cluster"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(hosts(text), expected) << text;
}

TEST(HostList, ColumnsAreThoseOfTheName) {
  std::vector<int> columns;
  for (const auto& host : expand_host_list("ab,n[1-2], c", "LIST", 10)) {
    columns.push_back(host.column);
  }
  EXPECT_THAT(columns, ElementsAre(1, 4, 4, 12));
}

TEST(HostList, MistakesNameTheColumn) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "column 1"},
      {",a", "column 1"},
      {"a,,b", "column 3"},
      {"a,", "column 3"},
      {"n[1-", "column 5"},
      {"n[1", "column 4"},
      {"n[1-2-3]", "column 6"},
      {"n[3-1]", "from 3 down"},
      {"n[]", "column 3"},
      {"n[1,]", "column 5"},
      {"n]1[", "column 2"},
      {"n[[1]]", "column 3"},
      {"n[a-b]", "column 3"},
      {"n[-1]", "column 3"},
      {"n[1-2]]", "column 7"},
      {"n[1 2]", "column 4"},
      {"n[0-9999999999999999999]", "18 digits"},
      {"n[0-999999999]", "more than 1000 hosts"},
      {"n[1-100]m[1-100]", "more than 1000 hosts"},
      {"n[1-600],m[1-600]", "more than 1000 hosts"},
      {"n[1-999999999999999999,1-999999999999999999]", "more than 1000 hosts"},
      {std::string(300, 'n'), "253"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_THAT(refusal([&] { hosts(text); }), AllOf(HasSubstr("LIST="), HasSubstr(part))) << text;
  }
}

TEST(HostList, WhatIsNoRangeIsNotCounted) {
  const auto refused = [](const std::string& text) {
    return refusal([&] { expand_host_list(text, "LIST", 1); });
  };
  EXPECT_THAT(refused("n[1-2-3]"), AllOf(HasSubstr("column 6"), HasSubstr("',' or ']'")));
  EXPECT_THAT(refused("n[1-2]"), HasSubstr("found more than 1 host; expected at most 1,"));
  EXPECT_THAT(refused("n1,n2"), HasSubstr("found more than 1 host; expected at most 1,"));
}

TEST(HostList, ALongListIsRefusedBeforeItIsWrittenOut) {
  std::string text = "n[0-999]";
  for (int i = 0; i < 80; ++i) text += "[0-999]";
  EXPECT_THAT(refusal([&] { expand_host_list(text, "LIST", 1'000'000); }), HasSubstr("1000000"));
  EXPECT_EQ(expand_host_list("n[000000-999999]", "LIST", 1'000'000).back().name, "n999999");
}

std::vector<int> counts(const std::string& text) { return expand_task_counts(text, "COUNTS", 100); }

TEST(TaskCounts, Expands) {
  EXPECT_THAT(counts("2"), ElementsAre(2));
  EXPECT_THAT(counts("2,1,3"), ElementsAre(2, 1, 3));
  EXPECT_THAT(counts("3(x2),2,1"), ElementsAre(3, 3, 2, 1));
  EXPECT_THAT(counts("3(x2),2,11(x4)"), ElementsAre(3, 3, 2, 11, 11, 11, 11));
  EXPECT_EQ(counts("13(x10)"), std::vector<int>(10, 13));
}

TEST(TaskCounts, MistakesNameTheColumn) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "column 1"},       {"3x2", "column 2"},   {"3(2)", "column 3"},
      {"3(x2", "column 5"},   {"3(x)", "column 4"},  {"3(x2)4", "column 6"},
      {"2,", "column 3"},     {"0", "0 tasks"},      {"-1", "column 1"},
      {"2(x0)", "0 more"},    {"2(x101)", "in all"}, {"2(x60),2(x60)", "in all"},
      {"1000001", "1000000"}, {" 2", "column 1"},    {"2 ", "column 2"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_THAT(refusal([&] { counts(text); }), AllOf(HasSubstr("COUNTS="), HasSubstr(part)))
        << text;
  }
}

}  // namespace
}  // namespace cohort
