// The decisions of the rendezvous, message by message.
#include "strategies/cluster/launcher/job_state.h"

#include <csignal>
#include <map>
#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobStateTest : public ::testing::Test {
 protected:
  void begin(size_t min_nodes, size_t max_nodes, int restarts = 0) {
    state_.emplace(JobRules{.min_nodes = min_nodes,
                            .max_nodes = max_nodes,
                            .restarts = restarts,
                            .join_timeout = seconds(60),
                            .last_call = seconds(30),
                            .timeout = timeout_,
                            .job_id = "secret",
                            .run_id = run_id_,
                            .terms = {{"--chief=", "false"}},
                            .place = "here"},
                   now_);
  }
  static Join greeting(const std::string& name, int rank = -1) {
    return {kProtocol,
            "secret",
            {{"--chief=", "false"}},
            {.name = name, .host = name, .rank = rank, .workers = {1, 2}}};
  }
  void join(int node, int rank = -1) {
    state_->join(node, greeting("host" + std::to_string(node), rank), now_);
    collect();
  }
  // A node without workers.
  void join_with_servers(int node, size_t servers) {
    Join join = greeting("host" + std::to_string(node));
    join.node.workers.clear();
    join.node.ps.assign(servers, 1);
    state_->join(node, join, now_);
    collect();
  }
  void tell(int node, const Message& message) {
    state_->receive(node, message, now_);
    collect();
  }
  void lose(int node) {
    state_->lose(node, "closed", 24, now_);
    collect();
  }
  void pass(seconds time) {
    for (; time.count() > 0; --time) {
      now_ += seconds(1);
      state_->tick(now_);
    }
    collect();
  }
  void fail_on(int node, int code, int weight = 2) {
    if (weight < 2) tell(node, Settle{"trouble"});
    if (weight == 2) tell(node, End{"trouble"});
    tell(node, Ended{.failures = {{"a task", code, weight, {"oh"}}}});
  }
  void collect() {
    for (auto& send : state_->take_sends()) {
      if (const auto* notice = std::get_if<Notice>(&send.message)) {
        for (const auto& line : notice->lines) said_[send.node] += line + "\n";
      } else {
        sent_[send.node].push_back(std::move(send.message));
      }
    }
  }
  // The messages of one type that a node has got since the last call.
  template <typename T>
  std::vector<T> got(int node) {
    std::vector<T> out;
    for (const Message& message : std::exchange(sent_[node], {})) {
      if (const auto* body = std::get_if<T>(&message)) out.push_back(*body);
    }
    return out;
  }
  // The exit code that a node was told; -1 without one.
  int code(int node) {
    const auto finish = got<Finish>(node);
    return finish.size() == 1 ? finish[0].code : -1;
  }

  JobState::Time now_{};
  seconds timeout_{0};
  std::string run_id_;
  std::optional<JobState> state_;
  std::map<int, std::vector<Message>> sent_;
  std::map<int, std::string> said_;
};

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
