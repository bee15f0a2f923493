#include "strategies/parameter_server/roster.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

TEST(Roster, HasALimitThatItsErrorNames) {
  parameter_server::Roster lanes(2, "lanes: too many");
  lanes.enter("a", 1);
  lanes.enter("b", 1);
  EXPECT_ERROR(lanes.enter("c", 1), Code::kResourceExhausted, "more than 2 lanes: too many");
  EXPECT_EQ(lanes.enter("a", 2)->incarnation, 2u) << "another start is no other task";
  EXPECT_ERROR(lanes.enter("a", 1), Code::kFailedPrecondition, "started again since");
}

// Of a task that is started again and again, a process that is still there is one of the last.
TEST(Roster, TellsTheLastOfManyStartsFromNewOnes) {
  parameter_server::Roster tasks(1, "tasks");
  constexpr uint64_t kStarts = 2000;
  for (uint64_t start = 1; start <= kStarts; ++start) tasks.enter("a", start);
  for (uint64_t start = kStarts - 1; start > kStarts - 1000; --start)
    EXPECT_ERROR(tasks.enter("a", start), Code::kFailedPrecondition, "started again since");
  EXPECT_EQ(tasks.enter("a", kStarts)->incarnation, kStarts);
}

TEST(Roster, SaysWhoBeginsAndLetsNobodyBeginUnsaid) {
  std::vector<uint64_t> begun;
  parameter_server::Roster tasks(1, "tasks", [&](const parameter_server::Start& start) {
    if (start.incarnation == 3) fail(Code::kResourceExhausted, "no memory");
    begun.push_back(start.incarnation);
  });
  for (const uint64_t start : {1, 1, 2, 2}) tasks.enter("a", start);
  EXPECT_ERROR(tasks.enter("a", 3), Code::kResourceExhausted, "no memory");
  EXPECT_EQ(tasks.enter("a", 2)->incarnation, 2u);
  EXPECT_EQ(begun, (std::vector<uint64_t>{1, 2}));
}

TEST(Roster, RefusesWhoWasRetiredBeforeAndWaitsForNobodyOfThen) {
  parameter_server::Roster tasks(2, "tasks");
  for (int i = 0; i < 2; ++i) tasks.retire("a", 1);
  EXPECT_FALSE(tasks.anybody());
  EXPECT_ERROR(tasks.enter("a", 1), Code::kFailedPrecondition, "started again since");
  EXPECT_FALSE(tasks.anybody());
  tasks.enter("b", 1)->done = true;
  EXPECT_TRUE(tasks.all_done());
  EXPECT_EQ(tasks.enter("a", 2)->incarnation, 2u);
  EXPECT_FALSE(tasks.all_done());
}

TEST(Roster, KnowsWhenTheLastStartsOfAllAreDone) {
  parameter_server::Roster tasks(2, "tasks");
  EXPECT_FALSE(tasks.all_done()) << "nobody has come";
  tasks.enter("a", 1)->done = true;
  EXPECT_TRUE(tasks.all_done());
  tasks.enter("b", 1);
  EXPECT_FALSE(tasks.all_done());
  tasks.enter("b", 1)->done = true;
  EXPECT_TRUE(tasks.all_done());
  tasks.enter("a", 2);
  EXPECT_FALSE(tasks.all_done()) << "it was started again";
}

TEST(Roster, NamesWhoHasComeAndIsNotDone) {
  parameter_server::Roster tasks(3, "tasks");
  EXPECT_EQ(tasks.unfinished(), std::vector<std::string>());
  tasks.retire("c", 1);
  for (const char* task : {"a", "b"}) tasks.enter(task, 1);
  EXPECT_EQ(tasks.unfinished(), (std::vector<std::string>{"a", "b"}));
  tasks.enter("a", 1)->done = true;
  EXPECT_EQ(tasks.unfinished(), std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace cohort::testing
