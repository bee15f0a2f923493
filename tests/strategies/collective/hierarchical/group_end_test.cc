#include "strategies/collective/hierarchical/group_end.h"

#include <gtest/gtest.h>

namespace cohort::hierarchical {
namespace {

// Ranks of which the first ones listen; the others are as if they were stopped.
struct Ranks {
  Ranks(int size, int listening) : controls(make_in_process_communicators(size)) {
    for (size_t r = 0; r < static_cast<size_t>(listening); ++r)
      ends.push_back(std::make_unique<GroupEnd>(std::move(controls[r]), [](const Error&) {}));
  }
  GroupEnd& operator[](size_t rank) { return *ends[rank]; }

  std::vector<std::unique_ptr<Communicator>> controls;
  std::vector<std::unique_ptr<GroupEnd>> ends;
};

void expect_missing(GroupEnd& end, const std::vector<int>& ranks, const std::string& why) {
  const GroupEnd::Missing missing = end.call_roll();
  EXPECT_EQ(missing.ranks, ranks);
  EXPECT_EQ(missing.why, why);
}

TEST(GroupEndTest, WhoHasNotComeIsMissingAndNotThoseThatWaitForIt) {
  Ranks ranks(4, 4);
  ranks[0].begin_call();
  ranks[1].begin_call();
  ranks[3].begin_call();
  expect_missing(ranks[0], {2}, "not called by");
  expect_missing(ranks[3], {2}, "not called by");
  ranks[2].begin_call();
  EXPECT_TRUE(ranks[0].call_roll().ranks.empty());
}

TEST(GroupEndTest, WhoIsStoppedIsMissingEvenWhereOthersHaveNotCome) {
  Ranks ranks(3, 2);
  ranks[0].begin_call();
  expect_missing(ranks[0], {2}, "no answer from");
}

TEST(GroupEndTest, WhoIsInTheCallBeforeIsMissingOnlyWhenAllOthersHaveCome) {
  Ranks ranks(3, 3);
  for (size_t r = 0; r < 3; ++r) ranks[r].begin_call();
  for (const size_t r : {0, 2}) ranks[r].finish_call();
  ranks[0].begin_call();
  expect_missing(ranks[0], {2}, "not called by");
  ranks[2].begin_call();
  expect_missing(ranks[0], {1}, "the call before not finished by");
  EXPECT_TRUE(ranks[1].call_roll().ranks.empty());
}

TEST(GroupEndTest, NobodyIsMissingFromAGroupThatHasEnded) {
  Ranks ranks(2, 2);
  ranks[0].begin_call();
  ranks[1].end(Error(Code::kCancelled, "enough"));
  EXPECT_TRUE(ranks[0].call_roll().ranks.empty());
  EXPECT_THROW(ranks[0].fail_call(Error(Code::kDeadlineExceeded, "late")), Error);
}

}  // namespace
}  // namespace cohort::hierarchical
