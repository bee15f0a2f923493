// What starts again, and with which nodes.
#include <csignal>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/strategies/cluster/launcher/job_state_fixture.h"

namespace cohort::launcher {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(JobStateTest, RestartsAllAsOftenAsAllowed) {
  begin(2, 3, 2);
  join(0);
  join(1);
  pass(seconds(30));
  for (int restart = 0; restart <= 2; ++restart) {
    ASSERT_EQ(got<Start>(0).at(0).round.restart, restart);
    fail_on(0, restart == 1 ? 42 : 3, restart == 1 ? 1 : 2);
    tell(1, Ended{});
    pass(seconds(1));
  }
  EXPECT_EQ(code(1), 3);
  EXPECT_THAT(said_[1], HasSubstr("restarting all tasks (restart 2 of 2)\n"));
  EXPECT_THAT(said_[1], HasSubstr("ended after 2 restarts\n"));
}

TEST_F(JobStateTest, RestartsLaterAndLaterWhatFailsAgainAndAgain) {
  begin(1, 1, 20);
  join(0);
  for (const int pause : {0, 1, 2, 4, 8, 16, 30, 30}) {
    ASSERT_EQ(got<Start>(0).size(), 1) << pause;
    said_.clear();
    fail_on(0, 3);
    if (pause == 0) {
      EXPECT_THAT(said_[0], HasSubstr("restarting all tasks (restart 1 of 20)"));
      continue;
    }
    EXPECT_THAT(said_[0], HasSubstr("all tasks in " + std::to_string(pause) + " s (restart "));
    pass(seconds(pause - 1));
    EXPECT_THAT(got<Start>(0), IsEmpty()) << pause;
    pass(seconds(1));
  }
  EXPECT_EQ(got<Start>(0).size(), 1);
}

TEST_F(JobStateTest, TakesALateNodeAtTheNextStart) {
  begin(1, 2, 1);
  join(0);
  pass(seconds(30));
  join(1);
  EXPECT_THAT(said_[1], HasSubstr("runs on 1 node already; host1 waits for its next start"));
  tell(1, Ended{});  // makes no sense
  fail_on(0, 3);
  EXPECT_EQ(got<Start>(0).back().round.nodes.size(), 2);
  EXPECT_EQ(got<Start>(1).at(0).round.index, 1);
}

TEST_F(JobStateTest, EndsALateNodeWithTheJob) {
  begin(1, 3);
  join(0);
  pass(seconds(30));
  join(1);
  join(2);
  tell(2, Signal{SIGTERM, false, ""});
  EXPECT_EQ(code(2), 128 + SIGTERM) << "but the others go on";
  EXPECT_FALSE(state_->is_over());
  tell(0, TrainersEnded{});
  tell(0, Ended{});
  EXPECT_EQ(code(0), 0);
  EXPECT_EQ(code(1), 0);
}

TEST_F(JobStateTest, FormsAgainWithoutALostNode) {
  begin(2, 3, 1);
  for (int node : {0, 1, 2}) join(node);
  lose(1);
  tell(0, Ended{});
  tell(2, Ended{});
  EXPECT_THAT(said_[0], HasSubstr("waiting for nodes: 2 of 2 to 3 nodes are here"));
  got<Start>(0);
  pass(seconds(30));
  const auto start = got<Start>(2);
  ASSERT_FALSE(start.empty());
  EXPECT_EQ(start.back().round.index, 1);
  EXPECT_EQ(start.back().round.nodes.size(), 2);
}

TEST_F(JobStateTest, StartsAtOnceWhenALostNodeIsBack) {
  begin(2, 2, 1);
  join(0, 0);
  join(1, 1);
  lose(1);
  tell(0, Ended{});
  join(2, 1);
  EXPECT_EQ(got<Start>(2).at(0).round.restart, 1);
}

TEST_F(JobStateTest, GivesUpWhenTooFewAreLeft) {
  begin(2, 2, 5);
  join(0);
  join(1);
  lose(1);
  tell(0, Ended{});
  pass(seconds(60));
  EXPECT_EQ(code(0), exit_code(Code::kDeadlineExceeded));
  EXPECT_THAT(said_[0], HasSubstr("failed: node 1 (host1) was lost"));
}

TEST_F(JobStateTest, GoesOnWithoutANodeThatASignalAsksToLeaveAndCountsNoRestart) {
  begin(1, 3, 1);
  for (const int node : {0, 1, 2}) join(node, node);
  for (const int leaving : {2, 1}) {
    SCOPED_TRACE(leaving);
    tell(leaving, Signal{leaving == 2 ? SIGTERM : SIGHUP, false, ""});
    for (int node = 0; node <= leaving; ++node) EXPECT_EQ(got<Signal>(node).size(), 1) << node;
    EXPECT_THAT(said_[0], HasSubstr(" and leaves; all tasks may save"));
    for (int node = 0; node <= leaving; ++node)
      tell(node, Ended{.failures = {{"a task", 42, 1, {}}}});
    EXPECT_EQ(code(leaving), 42);
    EXPECT_FALSE(state_->knows(leaving));
    pass(seconds(30));
    const auto start = got<Start>(0);
    ASSERT_EQ(start.size(), 1) << "after the last call for a node in its place";
    EXPECT_EQ(start[0].round.nodes.size(), leaving);
    EXPECT_EQ(start[0].round.restart, 3 - leaving);
  }
  EXPECT_THAT(said_[0], HasSubstr("nodes have come or gone, which --restarts does not count"));
  fail_on(0, 3);
  EXPECT_THAT(said_[0], HasSubstr("(restart 1 of 1)"));
}

// Of three nodes, each in its round, with a pause and a last call after it.
class NodeFailuresTest : public JobStateTest {
 protected:
  void begin_with_three(size_t min_nodes, int node_failures) {
    node_failures_ = node_failures;
    begin(min_nodes, 3, 5);
    for (const int node : {0, 1, 2}) join(node, node);
  }
  // Those that are left after it know of the next start.
  void fail_round(int culprit, int weight = kWeightOfCause) {
    fail_on(culprit, 7, weight);
    for (const int node : {0, 1, 2})
      if (node != culprit && state_->knows(node)) tell(node, Ended{});
    pass(seconds(60));
  }
};

TEST_F(NodeFailuresTest, InARowLetANodeLeaveAndCountNoRestart) {
  begin_with_three(2, 2);
  fail_round(2);
  EXPECT_TRUE(state_->knows(2));
  EXPECT_THAT(said_[0], HasSubstr("(restart 1 of 5)"));
  fail_round(2);
  EXPECT_FALSE(state_->knows(2));
  EXPECT_EQ(code(2), 7);
  for (const int node : {0, 2}) {
    EXPECT_THAT(said_[node], HasSubstr("node 2 (host2) leaves after 2 failures of its tasks "
                                       "(--node_failures); the others go on\n"));
  }
  EXPECT_EQ(got<Start>(0).back().round.nodes.size(), 2);
  EXPECT_THAT(said_[0], Not(HasSubstr("(restart 2 of 5)")));
  for (int failure = 0; failure < 2; ++failure) fail_round(1);
  EXPECT_TRUE(state_->knows(1)) << "no more than --nnodes=2 are there";
  EXPECT_THAT(said_[0], HasSubstr("(restart 3 of 5)"));
}

TEST_F(NodeFailuresTest, AreNotInARowWhereOthersAreToBlameMeanwhile) {
  begin_with_three(1, 2);
  for (const auto& [culprit, weight] :
       {std::pair(1, kWeightOfCause), std::pair(2, kWeightOfCause), std::pair(1, kWeightOfCause),
        std::pair(1, kWeightOfConsequence), std::pair(1, kWeightOfCause)})
    fail_round(culprit, weight);
  EXPECT_TRUE(state_->knows(1));
  EXPECT_TRUE(state_->knows(2));
}

TEST_F(NodeFailuresTest, LetNobodyLeaveOnWhomTheJobDepends) {
  begin_with_three(1, 1);
  fail_round(0);
  EXPECT_TRUE(state_->knows(0)) << "which serves the rendezvous";

  node_failures_ = 1;
  begin(1, 2, 5);
  join_with_servers(0, 1);
  join(1);
  fail_on(1, 7);
  tell(0, Ended{});
  EXPECT_TRUE(state_->knows(1)) << "where nobody else trains";
}

TEST_F(NodeFailuresTest, LetNobodyLeaveWhereThatIsNotAskedFor) {
  begin_with_three(1, 0);
  for (int failure = 0; failure < 4; ++failure) fail_round(1);
  EXPECT_TRUE(state_->knows(1));
}

TEST_F(JobStateTest, EndsByASignalToItsFirstNodeOrByOneOfPeople) {
  for (const auto& [node, signal] :
       {std::pair(0, SIGTERM), std::pair(1, SIGINT), std::pair(1, SIGQUIT)}) {
    SCOPED_TRACE(signal);
    begin(1, 2, 1);
    for (const int each : {0, 1}) join(each, each);
    if (node == 0) tell(1, Signal{signal, false, ""});  // as where a scheduler sends it to all
    tell(node, Signal{signal, false, ""});
    for (const int each : {0, 1}) tell(each, Ended{.failures = {{"a task", 42, 1, {}}}});
    for (const int each : {0, 1}) EXPECT_EQ(code(each), 42);
    EXPECT_TRUE(state_->is_over());
  }
}

TEST_F(JobStateTest, GoesOnWaitingWithoutANodeThatASignalAsksToLeave) {
  begin(2, 3, 1);
  join(0, 0);
  join(1, 1);
  tell(1, Signal{SIGTERM, false, ""});
  EXPECT_EQ(code(1), 128 + SIGTERM);
  EXPECT_FALSE(state_->knows(1));
  EXPECT_THAT(said_[0], HasSubstr("lost node 1 (host1): it got SIGTERM"));
  EXPECT_FALSE(state_->is_over());
}

TEST_F(JobStateTest, StartsAgainWithANodeThatHasWaitedForTheLastCall) {
  begin(1, 2, 1);
  join(0, 0);
  pass(seconds(30));
  pass(seconds(100));
  got<Start>(0);
  join(1, 1);
  pass(seconds(29));
  EXPECT_THAT(got<Signal>(0), IsEmpty());
  pass(seconds(10));
  const auto signal = got<Signal>(0);
  ASSERT_EQ(signal.size(), 1) << "once";
  EXPECT_EQ(signal[0].number, SIGTERM);
  EXPECT_THAT(said_[0],
              HasSubstr("asking all tasks to save, for a start on 2 nodes instead of 1\n"));
  tell(0, Ended{.failures = {{"a task", 42, 1, {}}}});
  EXPECT_EQ(got<Start>(0).at(0).round.nodes.size(), 2);
  EXPECT_THAT(said_[0], HasSubstr("which --restarts does not count"));
  pass(seconds(100));
  EXPECT_THAT(got<Signal>(0), IsEmpty());
}

TEST_F(JobStateTest, GrowsBesideANodeOfServersAlone) {
  begin(2, 3, 1);
  join_with_servers(0, 1);
  join(1);
  pass(seconds(30));
  tell(0, TrainersEnded{});  // it has none
  join(2);
  pass(seconds(30));
  EXPECT_EQ(got<Signal>(0).size(), 1);
}

TEST_F(JobStateTest, DoesNotGrowWithoutRestartsOrWhileItEnds) {
  for (const bool may_restart : {false, true}) {
    SCOPED_TRACE(may_restart);
    begin(1, 2, may_restart ? 1 : 0);
    join(0);
    pass(seconds(30));
    join(1);
    if (may_restart) tell(0, TrainersEnded{});
    got<Start>(0);
    pass(seconds(100));
    EXPECT_THAT(got<Signal>(0), IsEmpty());
  }
}

TEST_F(JobStateTest, CountsALossOnlyWhereItComesSoon) {
  begin(1, 2, 1);
  for (const int node : {0, 1}) join(node, node);
  pass(seconds(30));
  lose(1);
  tell(0, Ended{});
  join(2, 1);
  EXPECT_EQ(got<Start>(0).back().round.restart, 1);
  lose(2);
  tell(0, Ended{});
  EXPECT_THAT(said_[0], HasSubstr("(restart 1 of 1)"));
  pass(seconds(1));
  join(3, 1);
  EXPECT_EQ(got<Start>(0).back().round.restart, 2);
  lose(3);
  tell(0, Ended{});
  EXPECT_EQ(code(0), 24);
}

}  // namespace
}  // namespace cohort::launcher
