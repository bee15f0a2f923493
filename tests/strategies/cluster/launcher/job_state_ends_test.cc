// How a job ends, and what is to blame.
#include <csignal>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/launcher/job_state_fixture.h"

namespace cohort::launcher {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(JobStateTest, EndsAllWhenTheTrainersOfAllHaveEnded) {
  begin(2, 2);
  join(0);
  join(1);
  tell(0, TrainersEnded{});
  EXPECT_THAT(got<End>(0), IsEmpty());
  tell(1, TrainersEnded{});
  ASSERT_EQ(got<End>(0).size(), 1);
  EXPECT_EQ(got<End>(1)[0].reason, "");
  tell(0, Ended{});
  EXPECT_FALSE(state_->is_over());
  lose(1);  // too late to matter
  EXPECT_EQ(code(0), 0);
}

TEST_F(JobStateTest, SaysWhoseTrainersAreAwaitedOnceThoseOfOthersHaveEnded) {
  begin(3, 3);
  Join servers = greeting("host0");
  servers.node.workers.clear();
  state_->join(0, servers, now_);
  join(1);
  join(2);
  tell(0, TrainersEnded{});  // it has none
  pass(seconds(100));
  EXPECT_EQ(said_[1], "");
  tell(2, TrainersEnded{});
  const std::string line = "others have finished; waiting for the tasks of node 1 (host1)\n";
  for (const int pause : {5, 10, 20, 40, 60, 60}) {
    pass(seconds(pause - 1));
    EXPECT_EQ(said_[1], "") << pause;
    pass(seconds(1));
    EXPECT_EQ(std::exchange(said_[1], ""), line) << pause;
  }
  tell(1, TrainersEnded{});
  pass(seconds(100));
  EXPECT_EQ(said_[1], "");
}

TEST_F(JobStateTest, EndsAllAtTheFirstFailureAndSaysWhere) {
  begin(3, 3);
  for (int node : {0, 1, 2}) join(node);
  tell(1, End{"worker:2 exited with code 3"});
  EXPECT_EQ(got<End>(0)[0].reason, "worker:2 exited with code 3 on node 1 (host1)");
  EXPECT_THAT(got<End>(1), IsEmpty());
  tell(2, End{"worker:4 exited with code 4"});  // crossed the first
  tell(2, Ended{.failures = {{"worker:4 exited with code 4", 4, 2, {}}}});
  tell(0, Ended{.ends = {"worker:0 was killed"}});
  tell(1, Ended{.failures = {{"worker:2 exited with code 3", 3, 2, {"last words"}}}});
  EXPECT_EQ(said_[0],
            "failed: worker:2 exited with code 3 on node 1 (host1); its last lines:\n"
            "  | last words\n"
            "then worker:0 was killed on node 0 (host0)\n"
            "then worker:4 exited with code 4 on node 2 (host2)\n");
  for (int node : {0, 1, 2}) EXPECT_EQ(code(node), 3);
}

TEST_F(JobStateTest, BlamesTheLikelierCause) {
  begin(2, 2);
  join(0);
  join(1);
  fail_on(0, 42, 1);
  EXPECT_EQ(got<Settle>(1)[0].reason, "trouble on node 0 (host0)");
  fail_on(1, 7);
  EXPECT_EQ(code(0), 7);
}

TEST_F(JobStateTest, BlamesWhoAsksToBeResumedBeforeWhoMissesIt) {
  for (const bool is_first : {true, false}) {
    begin(2, 2);
    join(0);
    join(1);
    fail_on(is_first ? 0 : 1, 42, 1);
    fail_on(is_first ? 1 : 0, 24, 0);
    EXPECT_EQ(code(0), 42);
  }
}

TEST_F(JobStateTest, BlamesALossBeforeWhatItLedTo) {
  begin(2, 2);
  join(0);
  join(1);
  fail_on(0, 7);
  lose(1);
  EXPECT_EQ(code(0), 24);
  EXPECT_THAT(said_[0],
              HasSubstr("failed: node 1 (host1) was lost: closed\nthen a task on node 0"));
}

// Also to the node that got it, which may have had no tasks yet.
TEST_F(JobStateTest, PassesASignalOnToAllAndDoesNotRestart) {
  begin(2, 2, 5);
  join(0);
  join(1);
  tell(1, Signal{SIGINT, false, ""});
  for (const int node : {0, 1}) {
    const auto signal = got<Signal>(node);
    ASSERT_EQ(signal.size(), 1);
    EXPECT_EQ(signal[0].number, SIGINT);
    EXPECT_EQ(signal[0].origin, "node 1 (host1)");
  }
  tell(0, Ended{.failures = {{"a task", 130, 0, {}}}});
  tell(1, Ended{.failures = {{"a task", 42, 1, {}}}});
  EXPECT_EQ(code(0), 42);
}

TEST_F(JobStateTest, EndsWhenItHasLastedTooLong) {
  timeout_ = seconds(100);
  begin(2, 2, 3);
  join(0);
  pass(seconds(50));  // of waiting, which does not count
  join(1);
  pass(seconds(99));
  EXPECT_THAT(got<End>(0), IsEmpty());
  pass(seconds(1));
  for (const int node : {0, 1}) EXPECT_THAT(got<End>(node).at(0).reason, HasSubstr("100 s"));
  tell(0, Ended{.ends = {"worker:0 was killed by SIGTERM"}});
  tell(1, Ended{});
  for (const int node : {0, 1}) EXPECT_EQ(code(node), 14);
  EXPECT_THAT(said_[1], HasSubstr("failed: the run has lasted 100 s (--timeout)"));
}

TEST_F(JobStateTest, AFailureCountsBeforeATimeout) {
  timeout_ = seconds(100);
  begin(2, 2, 3);
  join(0);
  join(1);
  pass(seconds(99));
  tell(0, End{"trouble"});
  pass(seconds(1));
  tell(0, Ended{.failures = {{"a task", 7, 2, {"oh"}}}});
  tell(1, Ended{});
  EXPECT_EQ(code(1), 7);
}

}  // namespace
}  // namespace cohort::launcher
