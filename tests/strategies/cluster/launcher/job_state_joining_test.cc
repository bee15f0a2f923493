// Who takes part in a job, and when it starts.
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/strategies/cluster/launcher/job_state_fixture.h"

namespace cohort::launcher {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(JobStateTest, StartsWhenAllAreThereInTheOrderOfRanksThenOfJoining) {
  begin(4, 4);
  join(0);
  join(1, 3);
  join(2);
  EXPECT_THAT(got<Start>(0), IsEmpty());
  join(3, 0);
  const std::vector<int> order = {3, 1, 0, 2};
  std::string job_id;
  for (int index = 0; index < 4; ++index) {
    const auto start = got<Start>(order[index]);
    ASSERT_EQ(start.size(), 1);
    const Round& round = start[0].round;
    EXPECT_EQ(round.index, index);
    EXPECT_EQ(round.restart, 0);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(round.nodes[i].name, "host" + std::to_string(order[i]));
    if (index == 0) job_id = round.job_id;
    EXPECT_EQ(round.job_id, job_id);
  }
  EXPECT_EQ(job_id.size(), 32);
}

TEST_F(JobStateTest, GivesTasksTheIdThatIsGivenInEveryRound) {
  run_id_ = "blue";
  begin(1, 1, 1);
  join(0);
  for (const int restart : {0, 1}) {
    const auto start = got<Start>(0);
    ASSERT_EQ(start.size(), 1);
    EXPECT_EQ(start[0].round.restart, restart);
    EXPECT_EQ(start[0].round.job_id, "blue");
    if (restart == 0) fail_on(0, 3);
  }
}

TEST_F(JobStateTest, CallsForFurtherNodesBeforeItStartsWithFewer) {
  begin(2, 4);
  join(0);
  join(1);
  pass(seconds(29));
  join(2);
  pass(seconds(29));
  EXPECT_THAT(got<Start>(0), IsEmpty());
  pass(seconds(1));
  ASSERT_EQ(got<Start>(0).size(), 1);
  EXPECT_EQ(got<Start>(2)[0].round.nodes.size(), 3);
}

TEST_F(JobStateTest, SaysEveryFiveSecondsWhoIsMissingUntilItGivesUp) {
  begin(3, 3);
  join(0, 0);
  join(1, 2);
  pass(seconds(4));
  EXPECT_EQ(said_[0], "");
  pass(seconds(1));
  EXPECT_EQ(said_[0],
            "waiting for nodes: 2 of 3 nodes are here (node 0 (host0), node 2 (host1)); missing: "
            "--node_rank 1; giving up in 55 s\n");
  pass(seconds(55));
  EXPECT_THAT(said_[1], HasSubstr("giving up in 5 s\n"));
  EXPECT_THAT(said_[1], HasSubstr("giving up after 60 s (--join_timeout): 2 of 3 nodes are here"));
  EXPECT_EQ(code(0), exit_code(Code::kDeadlineExceeded));
  EXPECT_EQ(code(1), exit_code(Code::kDeadlineExceeded));
  EXPECT_TRUE(state_->is_over());
}

TEST_F(JobStateTest, StartsWithANodeOfServersAlone) {
  begin(2, 2);
  join_with_servers(0, 1);
  join(1);
  ASSERT_EQ(got<Start>(0).size(), 1);
  EXPECT_EQ(got<Start>(1).size(), 1);
}

TEST_F(JobStateTest, StartsWithNodesOfServersAndAChief) {
  begin(1, 1);
  Join chief = greeting("host0");
  chief.node.workers.clear();
  chief.node.chief = 1;
  state_->join(0, chief, now_);
  collect();
  EXPECT_EQ(got<Start>(0).size(), 1);
}

TEST_F(JobStateTest, IsOverWhereNobodyWouldTrainAndSaysWhatAllHave) {
  begin(2, 2);
  join_with_servers(0, 1);
  join_with_servers(1, 3);
  EXPECT_EQ(said_[1],
            "nobody is there to train: host0 has --workers=0 --ps=1, host1 has --workers=0 --ps=3; "
            "expected --workers=1 or more on one node at least, or --chief on all\n");
  for (const int node : {0, 1}) EXPECT_EQ(code(node), exit_code(Code::kInvalidArgument));
}

TEST_F(JobStateTest, WaitsForANodeThatTrainsWhileOneMayCome) {
  begin(1, 2);
  join_with_servers(0, 1);
  pass(seconds(59));
  EXPECT_THAT(got<Start>(0), IsEmpty());
  EXPECT_THAT(said_[0], HasSubstr("nobody is there to train: host0 has --workers=0 --ps=1"));
  EXPECT_THAT(said_[0], HasSubstr("giving up in 5 s\n"));
  join(1);
  EXPECT_EQ(got<Start>(0).size(), 1);
}

TEST_F(JobStateTest, GivesUpWhereNoneThatTrainsComesInTime) {
  begin(1, 2);
  join_with_servers(0, 1);
  pass(seconds(60));
  EXPECT_THAT(said_[0], HasSubstr("giving up after 60 s (--join_timeout): 1 of 1 to 2 nodes are "
                                  "here (host0); nobody is there to train"));
  EXPECT_EQ(code(0), exit_code(Code::kDeadlineExceeded));
}

TEST_F(JobStateTest, RefusesWhoDoesNotFitAndNamesBothSides) {
  begin(2, 2);
  join(0, 1);
  const auto expect = [&](const Join& join, Code code, const std::string& reason) {
    state_->join(9, join, now_);
    for (const int node : {0, 1}) tell(node, Ping{});
    const auto refused = got<Refused>(9);
    ASSERT_EQ(refused.size(), 1) << reason;
    EXPECT_EQ(refused[0].code, static_cast<int>(code));
    EXPECT_THAT(refused[0].reason, HasSubstr(reason));
    EXPECT_FALSE(state_->knows(9));
  };
  Join other = greeting("x");
  other.protocol = 7;
  expect(other, Code::kFailedPrecondition, "x speaks version 7 of the protocol, here version 2");
  for (const char* id : {"", "secre", "secrets", "secretsecret", "Secret"}) {
    other = greeting("x");
    other.job_id = id;
    expect(other, Code::kPermissionDenied, "x is of another job than here");
  }
  other = greeting("x");
  other.terms[0].second = "true";
  expect(other, Code::kFailedPrecondition, "x has --chief=\"true\", here has --chief=\"false\"");
  other.terms.clear();
  expect(other, Code::kFailedPrecondition, "x has --chief=\"\"");
  expect(greeting("x", 1), Code::kAlreadyExists, "--node_rank=1, which is taken by host0 at host0");
  other = greeting("x");
  other.node.workers.assign(kMaxTasksOfJob, 1);
  expect(other, Code::kResourceExhausted, "at most 10000");
  other.node.host = "192.168.100.100";
  other.node.workers.assign(6000, 1);
  expect(other, Code::kResourceExhausted,
         "with x the addresses of the 6006 tasks of the job of here would take 144232 bytes of "
         "TF_CONFIG; at most 131072 are possible");
  join(1);
  expect(greeting("x"), Code::kFailedPrecondition,
         "has its 2 nodes, node 0 (host0), node 1 (host1)");
}

TEST_F(JobStateTest, KeepsWhoIsToTakeAPlaceUntilItsOwnerIsLost) {
  begin(2, 2, 1);
  join(0, 0);
  join(1, 1);
  join(2, 1);
  join(3);
  EXPECT_TRUE(state_->knows(2));
  for (const int node : {2, 3}) EXPECT_THAT(got<Refused>(node), IsEmpty());
  tell(0, Ping{});
  tell(2, Ping{});
  EXPECT_THAT(got<Refused>(3), IsEmpty()) << "one of those who have a place is silent";
  lose(1);
  tell(0, Ended{});
  EXPECT_EQ(got<Start>(2).at(0).round.restart, 1);
  EXPECT_THAT(got<Refused>(3).at(0).reason, HasSubstr("one too many"));
  join(4, 1);
  tell(2, Ping{});
  EXPECT_THAT(got<Refused>(4).at(0).reason, HasSubstr("which is taken by host2"));
  EXPECT_FALSE(state_->knows(4));
  join(5, 1);
  state_->finish(7, {});
  collect();
  EXPECT_THAT(got<Refused>(5).at(0).reason, HasSubstr("is over"));
}

TEST_F(JobStateTest, AnswersAllWhoAreToTakeAPlaceWhereTheNextOfThemComesTooLate) {
  begin(3, 3);
  join(0, 0);
  join(1, 1);
  join(2, 0);
  join(3, 1);
  now_ += seconds(60);
  lose(0);  // 2 takes its place, and the time for joining is over
  EXPECT_EQ(code(2), exit_code(Code::kDeadlineExceeded));
  EXPECT_TRUE(state_->is_over());
  ASSERT_EQ(got<Refused>(3).size(), 1);
  EXPECT_FALSE(state_->knows(3));
}

TEST_F(JobStateTest, EndsByASignalWhileItWaits) {
  begin(3, 3);
  join(0);
  join(1);
  tell(1, Signal{SIGTERM, false, ""});
  EXPECT_EQ(code(0), 128 + SIGTERM);
  EXPECT_THAT(said_[0], HasSubstr("host1 got SIGTERM while the job waited for nodes"));
}

}  // namespace
}  // namespace cohort::launcher
