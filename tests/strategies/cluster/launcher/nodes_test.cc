// cohort-run on several nodes: here processes of one host, which meet on the loopback.
#include "tests/strategies/cluster/launcher/nodes.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/temporary_folder.h"
#include "tests/strategies/cluster/launcher/launched.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Strings = std::vector<std::string>;

TEST(NodesTest, AreOneClusterInWhateverOrderTheyStart) {
  std::vector<int> ranks = {0, 1, 2};
  do {
    SCOPED_TRACE(::testing::PrintToString(ranks));
    Nodes nodes(
        {"--nnodes=3", "--workers=2", "--ps=1", "--chief", "--evaluator", "--restarts=2"},
        {"show=TF_CONFIG", "show=RANK", "show=WORLD_SIZE", "show=ROLE_RANK", "show=ROLE_WORLD_SIZE",
         "show=LOCAL_RANK", "show=LOCAL_WORLD_SIZE", "show=GROUP_RANK", "show=MASTER_PORT",
         "show=COHORT_JOB_ID", "show=TORCHELASTIC_RUN_ID", "show=TORCHELASTIC_MAX_RESTARTS",
         "show=COHORT_MAX_RESTARTS", "ps@hang", "evaluator@hang"});
    for (const int rank : ranks) nodes.start_rank(rank);
    ASSERT_THAT(nodes.wait(), ElementsAre(0, 0, 0)) << nodes.all_errors();
    const auto node = [&](int rank) -> Launched& {
      return nodes[std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()];
    };
    const Json cluster = Json::parse(shown(node(0).output(), "chief:0", "TF_CONFIG"))["cluster"];
    EXPECT_EQ(cluster["worker"].size(), 6);
    EXPECT_EQ(cluster["ps"].size(), 3);
    const std::string leader = cluster["chief"][0],
                      job_id = shown(node(0).output(), "chief:0", "COHORT_JOB_ID");
    EXPECT_EQ(shown(node(0).output(), "chief:0", "LOCAL_WORLD_SIZE"), "3");
    for (int worker = 0; worker < 6; ++worker) {
      const int at = worker / 2;
      const std::string name = "worker:" + std::to_string(worker);
      const auto expect = [&](const std::string& variable, const std::string& value) {
        EXPECT_EQ(shown(node(at).output(), name, variable), value) << name;
      };
      EXPECT_EQ(Json::parse(shown(node(at).output(), name, "TF_CONFIG"))["cluster"], cluster);
      for (const char* rank : {"RANK", "ROLE_RANK"}) expect(rank, std::to_string(worker + 1));
      for (const char* size : {"WORLD_SIZE", "ROLE_WORLD_SIZE"}) expect(size, "7");
      expect("LOCAL_RANK", std::to_string(worker % 2 + (at == 0 ? 1 : 0)));
      expect("LOCAL_WORLD_SIZE", at == 0 ? "3" : "2");
      expect("GROUP_RANK", std::to_string(at));
      expect("MASTER_PORT", leader.substr(leader.find(':') + 1));
      for (const char* id : {"COHORT_JOB_ID", "TORCHELASTIC_RUN_ID"}) expect(id, job_id);
      for (const char* most : {"COHORT_MAX_RESTARTS", "TORCHELASTIC_MAX_RESTARTS"})
        expect(most, "2");
    }
  } while (std::next_permutation(ranks.begin(), ranks.end()));
}

TEST(NodesTest, ReachEachOtherAndTheFirstToComeServesWithoutRanks) {
  Nodes nodes({"--nnodes=2"}, {"worker:0@call=worker:1", "worker:1@serve=inherited"});
  nodes.start().wait_for_errors("waiting for nodes: 1 of 2 nodes are here (node 0 (");
  nodes.start();
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
  EXPECT_EQ(nodes[0].output(), "[worker:0] this is worker:1\n");
}

TEST(NodesTest, MayDifferInTheirTasks) {
  Nodes nodes({"--nnodes=2"}, {"show=RANK", "show=LOCAL_WORLD_SIZE"});
  nodes.start({"--node_rank=0", "--workers=1"});
  nodes.start({"--node_rank=1", "--workers=3"});
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
  EXPECT_EQ(shown(nodes[1].output(), "worker:3", "RANK"), "3");
  EXPECT_EQ(shown(nodes[1].output(), "worker:3", "LOCAL_WORLD_SIZE"), "3");
}

TEST(NodesTest, MayHaveParameterServersAlone) {
  Nodes nodes({"--nnodes=2"}, {"show=RANK", "show=MASTER_ADDR", "ps@serve=inherited",
                               "worker:1@call=ps:0", "ps@hang"});
  nodes.start({"--node_rank=0", "--workers=0", "--ps=1"});
  nodes.start({"--node_rank=1", "--workers=2"});
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
  EXPECT_EQ(shown(nodes[1].output(), "worker:1", "RANK"), "1");
  EXPECT_EQ(shown(nodes[0].output(), "ps:0", "MASTER_ADDR"), " is unset");
  EXPECT_THAT(nodes[1].output(), HasSubstr("[worker:1] this is ps:0\n"));
}

TEST(NodesTest, NeedAWorkerSomewhere) {
  Nodes nodes({"--nnodes=2", "--workers=0", "--ps=1"});
  for (const int rank : {0, 1}) nodes.start_rank(rank);
  EXPECT_THAT(nodes.wait(), ElementsAre(2, 2));
  for (const size_t i : {0, 1})
    EXPECT_THAT(nodes[i].errors(), HasSubstr("nobody is there to train: node 0 ("));
}

TEST(NodesTest, EndWithTheFirstFailureOfAny) {
  Nodes nodes({"--nnodes=3"}, {"worker:1@print=so far", "worker:1@exit=20", "hang"});
  for (const int rank : {0, 1, 2}) nodes.start_rank(rank);
  EXPECT_THAT(nodes.wait(), ElementsAre(20, 20, 20));
  for (const size_t i : {0, 1, 2}) {
    EXPECT_THAT(nodes[i].errors(), HasSubstr("failed: worker:1 (pid "));
    EXPECT_THAT(nodes[i].errors(), HasSubstr(") exited with code 20 on node 1 ("));
    EXPECT_THAT(nodes[i].errors(), HasSubstr("cohort-run:   | so far\n"));
    EXPECT_THAT(nodes[i].errors(), HasSubstr("then worker:2 was killed by SIGTERM"));
  }
}

TEST(NodesTest, LeaveTheOneAtFaultTimeToSayWhy) {
  const TemporaryFolder folder("launcher");
  Nodes nodes({"--nnodes=2"}, {"worker:1@exit=20", "await_file=" + folder.path() + "/late",
                               "complain=why", "exit=15"});
  nodes.start_rank(0);
  nodes.start_rank(1);
  nodes[0].wait_for_errors("worker:1 exited with code 20 on node 1 (");
  nodes[0].wait_for_errors("; worker:0 may take 3 s to end\n");
  touch(folder.path() + "/late");
  EXPECT_THAT(nodes.wait(), ElementsAre(15, 15)) << nodes.all_errors();
  for (const size_t i : {0, 1}) {
    EXPECT_THAT(nodes[i].errors(), HasSubstr(") exited with code 15 on node 0 ("));
    EXPECT_THAT(nodes[i].errors(), HasSubstr("cohort-run:   | why\n"));
    EXPECT_THAT(nodes[i].errors(), HasSubstr(") exited with code 20 on node 1 ("));
  }
}

TEST(NodesTest, RestartTogether) {
  Nodes nodes(
      {"--nnodes=2", "--restarts=3"},
      {"show=COHORT_RESTART_COUNT", "worker:0@fail_before_restart=1",
       "worker:1@fail_before_restart=2", "worker:0@call=worker:1", "worker:1@serve=inherited"});
  nodes.start_rank(0);
  nodes.start_rank(1);
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
  // Its first process may be ended, because worker:0 has failed, before it prints.
  EXPECT_THAT(lines_of(nodes[1].output(), "[worker:1] COHORT_RESTART_COUNT="),
              AnyOf(ElementsAre("0", "1", "2"), ElementsAre("1", "2")));
  for (const size_t i : {0, 1}) {
    EXPECT_THAT(nodes[i].errors(), HasSubstr("(restart 2 of 3)"));
    EXPECT_THAT(nodes[i].errors(), HasSubstr("finished after 2 restarts"));
  }
}

TEST(NodesTest, StartTheirOwnTasksAgainAlone) {
  Nodes nodes({"--nnodes=2", "--task_restarts=1"},
              {"ps@hang", "worker:1@die_before_task_restart=1", "worker:0@call=worker:1",
               "worker:1@serve=inherited"});
  nodes.start({"--node_rank=0", "--ps=1"});
  nodes.start({"--node_rank=1"});  // the servers of another node are enough
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
  EXPECT_EQ(nodes[0].output(), "[worker:0] this is worker:1\n");
  EXPECT_THAT(nodes[1].errors(),
              HasSubstr("worker:1 was killed by SIGKILL (Killed); started again, 1 of 1"));
  EXPECT_THAT(nodes[0].errors(), Not(HasSubstr("worker:1")));
}

TEST(NodesTest, WaitForAllToSaveWhenOneAsksToBeResumed) {
  const TemporaryFolder folder("launcher");
  Nodes nodes({"--nnodes=2"}, {"worker:0@exit=42", "handle_signals=1",
                               "await_file=" + folder.path() + "/go", "print=saved", "exit=42"});
  nodes.start_rank(0);
  nodes.start_rank(1).wait_for_errors("worker:0 exited with code 42 (resumable) on node 0");
  touch(folder.path() + "/go");
  EXPECT_THAT(nodes.wait(), ElementsAre(42, 42)) << nodes.all_errors();
  EXPECT_EQ(nodes[1].output(), "[worker:1] saved\n");
}

TEST(NodesTest, NoticeTheLossOfOne) {
  for (const bool supervisor : {false, true}) {
    Nodes nodes({"--nnodes=2", "--grace=0.1"}, {"leave_child", "print=ready", "hang"});
    nodes.start_two("ready");
    kill(supervisor ? supervisor_of(nodes[1]) : nodes[1].pid(), SIGKILL);
    EXPECT_THAT(nodes[0].wait(), ::testing::AnyOf(20, 24)) << nodes[0].errors();
    EXPECT_THAT(nodes[0].errors(), HasSubstr("failed: node 1 ("));
    EXPECT_THAT(nodes[0].errors(), HasSubstr(") was lost: "));
    EXPECT_EQ(nodes[1].wait(), 128 + SIGKILL);
    nodes[1].wait_until_nothing_is_left();
  }
}

TEST(NodesTest, FormAgainWithoutALostOne) {
  const TemporaryFolder folder("launcher");
  Nodes elastic({"--nnodes=1:2", "--restarts=1", "--last_call=2"},
                {"show=WORLD_SIZE", "await_file=" + folder.path() + "/go"});
  Launched& lost = elastic.start_rank(1);
  Launched& left = elastic.start_rank(0);
  left.wait_for_output("WORLD_SIZE=2");
  lost.wait_for_output("WORLD_SIZE=2");
  lost.send(SIGKILL);
  left.wait_for_output("WORLD_SIZE=1");
  touch(folder.path() + "/go");
  EXPECT_EQ(left.wait(), 0) << left.errors();
  EXPECT_EQ(lost.wait(), 128 + SIGKILL);
}

TEST(NodesTest, TakeALateOneAtTheNextStart) {
  const TemporaryFolder folder("launcher");
  Nodes nodes({"--nnodes=1:2", "--restarts=1", "--last_call=0.1"},
              {"show=WORLD_SIZE", "await_file=" + folder.path() + "/go", "fail_before_restart=1"});
  nodes.start_rank(0).wait_for_output("WORLD_SIZE=1");
  nodes.start_rank(1).wait_for_errors("the job runs on 1 node already");
  touch(folder.path() + "/go");
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
  EXPECT_EQ(shown(nodes[1].output(), "worker:1", "WORLD_SIZE"), "2");
}

TEST(NodesTest, GoOnWithoutOneThatASignalAsksToLeave) {
  const TemporaryFolder folder("launcher");
  Nodes nodes({"--nnodes=1:2", "--restarts=1", "--last_call=2"},
              {"handle_signals=42", "show=WORLD_SIZE", "await_file=" + folder.path() + "/go"});
  Launched& leaving = nodes.start_rank(1);
  Launched& staying = nodes.start_rank(0);
  staying.wait_for_output("WORLD_SIZE=2");
  leaving.wait_for_output("WORLD_SIZE=2");
  leaving.send(SIGTERM);
  EXPECT_EQ(leaving.wait(), 42) << leaving.errors();
  staying.wait_for_output("WORLD_SIZE=1");
  touch(folder.path() + "/go");
  EXPECT_EQ(staying.wait(), 0) << staying.errors();
  EXPECT_THAT(staying.output(), HasSubstr("got SIGTERM"));
  EXPECT_THAT(staying.errors(), HasSubstr(" got SIGTERM and leaves; all tasks may save"));
}

TEST(NodesTest, GoOnWithoutOneWhoseTasksFailAgainAndAgain) {
  const TemporaryFolder folder("launcher");
  Nodes nodes({"--nnodes=1:2", "--restarts=1", "--last_call=2", "--node_failures=2"},
              {"worker:1@exit=7", "show=WORLD_SIZE", "await_file=" + folder.path() + "/go"});
  Launched& failing = nodes.start_rank(1);
  Launched& staying = nodes.start_rank(0);
  EXPECT_EQ(failing.wait(), 7) << failing.errors();
  EXPECT_THAT(failing.errors(), HasSubstr(") leaves after 2 failures of its tasks"));
  staying.wait_for_output("WORLD_SIZE=1");
  touch(folder.path() + "/go");
  EXPECT_EQ(staying.wait(), 0) << staying.errors();
}

TEST(NodesTest, EndByASignalToAllThatComesToTheFirstLast) {
  const TemporaryFolder folder("launcher");
  Nodes nodes(
      {"--nnodes=1:2", "--restarts=1", "--last_call=2"},
      {"handle_signals", "show=WORLD_SIZE", "await_file=" + folder.path() + "/go", "exit=42"});
  Launched& last = nodes.start_rank(1);
  Launched& first = nodes.start_rank(0);
  for (Launched* node : {&first, &last}) node->wait_for_output("WORLD_SIZE=2");
  last.send(SIGTERM);
  first.wait_for_output("got SIGTERM");
  first.send(SIGTERM);
  first.wait_for_errors(" got SIGTERM, too; the job ends");
  touch(folder.path() + "/go");
  EXPECT_THAT(nodes.wait(), ElementsAre(42, 42)) << nodes.all_errors();
}

TEST(NodesTest, StartAgainWithOneThatCameLate) {
  const TemporaryFolder folder("launcher");
  Nodes nodes({"--nnodes=1:2", "--restarts=1", "--last_call=0.1"},
              {"handle_signals=42", "show=WORLD_SIZE", "await_file=" + folder.path() + "/go"});
  nodes.start_rank(0).wait_for_output("WORLD_SIZE=1");
  nodes.start_rank(1).wait_for_output("WORLD_SIZE=2");
  nodes[0].wait_for_output("WORLD_SIZE=2");
  touch(folder.path() + "/go");
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
  EXPECT_THAT(nodes[0].errors(), HasSubstr("a start on 2 nodes instead of 1"));
}

TEST(NodesTest, TakeOneInThePlaceOfOneThatIsSilent) {
  const TemporaryFolder folder("launcher");
  Nodes nodes({"--nnodes=2", "--restarts=1", "--node_timeout=3"},
              {"show=COHORT_RESTART_COUNT", "await_file=" + folder.path() + "/go"});
  nodes.start_two("COHORT_RESTART_COUNT=0");
  const pid_t frozen = supervisor_of(nodes[1]);
  kill(frozen, SIGSTOP);
  nodes.start_rank(1).wait_for_output("COHORT_RESTART_COUNT=1");
  kill(frozen, SIGCONT);
  EXPECT_EQ(nodes[1].wait(), 24) << nodes[1].errors();
  touch(folder.path() + "/go");
  EXPECT_EQ(nodes[0].wait(), 0) << nodes[0].errors();
  EXPECT_EQ(nodes[2].wait(), 0) << nodes[2].errors();
}

TEST(NodesTest, EndWhenTheRendezvousIsLost) {
  Nodes nodes({"--nnodes=2", "--restarts=5"}, {"print=ready", "hang"});
  nodes.start_two("ready");
  kill(supervisor_of(nodes[0]), SIGKILL);
  EXPECT_EQ(nodes[1].wait(), 24);
  EXPECT_THAT(
      nodes[1].errors(),
      HasSubstr("the rendezvous at 127.0.0.1:" + std::to_string(nodes.port()) + " is lost"));
  EXPECT_EQ(nodes[0].wait(), 128 + SIGKILL);
}

TEST(NodesTest, DoNotTakeAPauseForALoss) {
  Nodes nodes({"--nnodes=2", "--node_timeout=4"}, {"handle_signals=5", "print=ready", "hang"});
  nodes.start_two("ready");
  const pid_t frozen = supervisor_of(nodes[1]);
  kill(frozen, SIGSTOP);
  sleep(1);  // a quarter of the time that is allowed
  kill(frozen, SIGCONT);
  nodes[1].send(SIGTERM);
  EXPECT_THAT(nodes.wait(), ElementsAre(5, 5)) << nodes.all_errors();
}

TEST(NodesTest, TakeALongSilenceForALoss) {
  Nodes nodes({"--nnodes=2", "--node_timeout=3"}, {"print=ready", "hang"});
  nodes.start_two("ready");
  const pid_t frozen = supervisor_of(nodes[1]);
  kill(frozen, SIGSTOP);
  EXPECT_EQ(nodes[0].wait(), 24);
  EXPECT_THAT(nodes[0].errors(), HasSubstr("was lost: silent for 3 s"));
  kill(frozen, SIGCONT);
  EXPECT_EQ(nodes[1].wait(), 24) << "it finds the rendezvous gone";
  EXPECT_THAT(nodes[1].errors(),
              AllOf(HasSubstr("this node was stopped for "),
                    HasSubstr(" s, after which the rendezvous at 127.0.0.1:" +
                              std::to_string(nodes.port()) + " counts it as lost")));
}

TEST(NodesTest, EndByASignalToAnyOfThem) {
  for (const int signal : {SIGTERM, SIGINT}) {
    for (const size_t who : {0, 1}) {
      Nodes nodes({"--nnodes=2", "--restarts=3"}, {"handle_signals=5", "print=ready", "hang"});
      nodes.start_two("ready");
      nodes[who].send(signal);
      EXPECT_THAT(nodes.wait(), ElementsAre(5, 5)) << nodes.all_errors();
      const std::string got = std::string("got SIG") + sigabbrev_np(signal);
      EXPECT_EQ(lines_of(nodes[1 - who].output(), "").back(),
                "[worker:" + std::to_string(1 - who) + "] " + got);
    }
  }
}

TEST(NodesTest, KnowAnInterruptOfAllFromASecondOne) {
  Nodes nodes({"--nnodes=2"}, {"handle_signals", "print=ready", "hang", "exit=0"});
  nodes.start_two("ready");
  nodes[0].send(SIGINT);
  nodes[1].wait_for_output("got SIGINT");
  nodes[1].send(SIGINT);                                    // as a terminal of both would
  nodes[0].send_until_errors(SIGINT, "interrupted again");  // this one means it
  EXPECT_THAT(nodes.wait(), ElementsAre(128 + SIGKILL, 128 + SIGKILL)) << nodes.all_errors();
  EXPECT_THAT(nodes[1].errors(), HasSubstr("interrupted again from node 0"));
}

TEST(NodesTest, EndByASignalWhileTheyWait) {
  Nodes nodes({"--nnodes=3"});
  nodes.start_rank(0);
  nodes.start({"--node_rank=2", "--quiet"})
      .wait_for_errors("waiting for nodes: 2 of 3 nodes are here");
  EXPECT_THAT(nodes[1].errors(), HasSubstr("missing: --node_rank 1"));
  nodes[1].send(SIGTERM);
  EXPECT_THAT(nodes.wait(), ElementsAre(128 + SIGTERM, 128 + SIGTERM));
  EXPECT_THAT(nodes[0].errors(), HasSubstr("got SIGTERM while the job waited for nodes"));
  EXPECT_THAT(nodes[1].errors(), Not(HasSubstr("asking the rendezvous"))) << "it is to be quiet";
}

TEST(NodesTest, GiveUpWithoutTheOthers) {
  Nodes nodes({"--nnodes=2", "--join_timeout=0.5"});
  EXPECT_EQ(nodes.start_rank(1).wait(), 14);
  EXPECT_THAT(nodes[0].errors(), HasSubstr("gave up waiting for the rendezvous at 127.0.0.1:"));
  EXPECT_EQ(nodes.start_rank(0).wait(), 14);
  EXPECT_THAT(nodes[1].errors(), HasSubstr("1 of 2 nodes are here"));
}

TEST(NodesTest, RefuseThoseOfAnotherJob) {
  Nodes nodes({"--job_id=mine"}, {"hang"});
  Launched& first = nodes.start({"--nnodes=2:3", "--node_rank=0"});
  const auto expect = [&](const Strings& flags, int code, const std::string& message) {
    Launched& other = nodes.start(flags);
    EXPECT_EQ(other.wait(), code);
    EXPECT_THAT(other.errors(), HasSubstr("refuses this node"));
    EXPECT_THAT(other.errors(), HasSubstr(message));
  };
  expect({"--nnodes=3", "--node_rank=1"}, 19, "has --nnodes=\"3\", the rendezvous at 127.0.0.1:");
  expect({"--nnodes=2:3", "--node_rank=1", "--restarts=1"}, 19, "has --restarts=\"1\"");
  expect({"--nnodes=2:3", "--node_rank=1", "--task_restarts=1"}, 19, "has --task_restarts=\"1\"");
  expect({"--nnodes=2:3", "--node_rank=1", "--job_id=yours"}, 17, "is of another job");
  nodes.environment()["COHORT_JOB_ID"] = "blue";
  expect({"--nnodes=2:3", "--node_rank=1"}, 19, "has COHORT_JOB_ID=\"blue\"");
  first.wait_for_errors("refuses a node at 127.0.0.1: FAILED_PRECONDITION: node 1 (");
  EXPECT_THAT(first.errors(), HasSubstr(") has --nnodes=\"3\", the rendezvous at 127.0.0.1:"));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(), 128 + SIGTERM);
}

TEST(NodesTest, RefuseASecondRendezvous) {
  Nodes nodes({"--nnodes=2"});
  nodes.start_rank(0).wait_for_errors("waiting for nodes");
  EXPECT_EQ(nodes.start_rank(0).wait(), 19);
  EXPECT_THAT(nodes[1].errors(),
              AllOf(HasSubstr("node 0 cannot serve the rendezvous at 127.0.0.1:"),
                    HasSubstr("port " + std::to_string(nodes.port()) + " is in use, by ")));
  nodes[0].send(SIGTERM);
  EXPECT_EQ(nodes[0].wait(), 128 + SIGTERM);
}

TEST(NodesTest, RefuseARendezvousThatIsNotOnTheHostOfNode0) {
  Launched node({.flags = {"--nnodes=2", "--node_rank=0", "--rendezvous=192.0.2.1:29411",
                           "--allow_plaintext"}});
  EXPECT_EQ(node.wait(), 19);
  EXPECT_THAT(node.errors(), AllOf(HasSubstr("node 0 cannot serve the rendezvous at 192.0.2.1:"),
                                   HasSubstr("192.0.2.1 is no address of this host; start node 0"),
                                   HasSubstr("in plain text, beyond this host, as "
                                             "--allow_plaintext allows"),
                                   HasSubstr("--node_rank")));
}

TEST(NodesTest, RefuseAHostThatIsNotTheirs) {
  Nodes nodes({"--nnodes=1", "--host=192.0.2.1"});
  EXPECT_EQ(nodes.start().wait(), 2);
  EXPECT_THAT(nodes[0].errors(), HasSubstr("--host=192.0.2.1: 192.0.2.1 is no address of this "
                                           "host"));
}

TEST(NodesTest, RefuseAHostThatNobodyKnows) {
  Nodes nodes({"--nnodes=2", "--host=no-such-host.invalid"});
  EXPECT_EQ(nodes.start_rank(0).wait(), 2);
  EXPECT_THAT(nodes[0].errors(),
              HasSubstr("--host=no-such-host.invalid: the name no-such-host.invalid is not known"));
}

TEST(NodesTest, AreWarnedOfARendezvousThatNoOtherHostReaches) {
  // A name of 127.0.0.1, as a host's own is in some /etc/hosts.
  const std::string rendezvous = "--rendezvous=0x7f000001:" + std::to_string(free_port());
  Launched named({.flags = {"--nnodes=1", rendezvous}, .actions = {"print=done"}});
  EXPECT_EQ(named.wait(), 0) << named.errors();
  EXPECT_THAT(named.errors(), HasSubstr("0x7f000001 stands for 127.0.0.1 on this host"));
  Nodes nodes({"--nnodes=1"}, {"print=done"});
  EXPECT_EQ(nodes.start().wait(), 0) << nodes.all_errors();
  EXPECT_THAT(nodes[0].errors(), Not(HasSubstr("stands for")));
}

TEST(NodesTest, EndAllWhenOneCannotRunTheProgram) {
  const TemporaryFolder folder("launcher");
  const std::string path = folder.path() + "/actor";
  write_script(path, "#!/no/such/interpreter\n");
  const int port = free_port();
  const Strings flags = {"--nnodes=2", "--rendezvous=127.0.0.1:" + std::to_string(port)};
  for (const std::string broken : {"0", "1"}) {
    Strings bad = flags, good = flags;
    bad.push_back("--node_rank=" + broken);
    good.push_back(broken == "0" ? "--node_rank=1" : "--node_rank=0");
    Launched first({.flags = bad, .program = path});
    Launched second({.flags = good, .actions = {"hang"}});
    EXPECT_EQ(first.wait(), 15);
    EXPECT_EQ(second.wait(), 15);
    EXPECT_THAT(second.errors(), HasSubstr("cannot run " + path));
  }
}

TEST(NodesFlags, AreChecked) {
  const auto expect = [](Strings flags, int code, const std::string& message) {
    const Finished run = finish({.flags = std::move(flags), .program = "/bin/true"});
    EXPECT_EQ(run.code, code) << message;
    EXPECT_THAT(run.errors, HasSubstr(message));
  };
  const std::string there = "--rendezvous=127.0.0.1:29400";
  for (const char* bad : {"", "1:2:3", "0", "0:2", "-1", "x", "1:", ":2", "2x", "1001"}) {
    expect({std::string("--nnodes=") + bad, there}, 2,
           std::string("--nnodes=") + bad + " is not allowed: expected N or MIN:MAX");
  }
  expect({"--nnodes=2:1", there}, 2, "did you mean --nnodes=1:2?");
  expect({"--nnodes=2"}, 2, "--nnodes=2 needs --rendezvous=HOST:PORT");
  expect({there}, 2, "--rendezvous is for a job of several nodes: expected --nnodes beside it");
  for (const std::string flag :
       {"--node_rank=1", "--host=a", "--job_id=mine", "--join_timeout=5", "--last_call=5",
        "--node_timeout=5", "--node_failures=5", "--allow_plaintext"}) {
    expect({flag}, 2, flag.substr(0, flag.find('=')) + " is for a job of several nodes");
  }
  expect({"--nnodes=2", there, "--node_rank=2"}, 2, "expected an integer from 0 to 1");
  expect({"--nnodes=2", "--rendezvous=127.0.0.1"}, 2, "--rendezvous");
  expect({"--nnodes=2", there, "--restarts=1", "--node_failures=1"}, 2,
         "expected --nnodes=MIN:MAX");
  expect({"--nnodes=1:2", there, "--node_failures=1"}, 2, "and --restarts=1 or more beside it");
  expect({"--nnodes=2", there, "--workers=0", "--chief"}, 2, "--workers=0 without --ps");
  expect({"--nnodes=1", "--workers=0", "--ps=1"}, 2, "--workers=0 leaves nobody to train");
  expect({"--nnodes=2", "--rendezvous=192.0.2.1:29400", "--node_rank=1"}, 19,
         "in plain text, beyond this host");
  // Also on one host, where they have no effect.
  expect({"--nnodes=1", "--node_rank=abc"}, 2, "--node_rank=abc is not allowed");
  expect({"--nnodes=1", "--node_rank="}, 2, "--node_rank= is not allowed");
  expect({"--nnodes=1:1", "--node_rank=7"}, 2, "--node_rank=7 is not allowed");
  expect({"--nnodes=1", "--host=0.0.0.0"}, 2, "--host");
  expect({"--nnodes=1", "--host=h:5"}, 2, "--host: found \"h:5\", which has a port");
  expect({"--nnodes=1", "--job_id=" + std::string(1001, 'j')}, 2, "--job_id is longer than 1000");
  for (const Strings& flags : {Strings{"--nnodes=1"}, Strings{"--nnodes=1", "--node_rank=0"}})
    EXPECT_EQ(finish({.flags = flags, .actions = {"print=alone"}}).output, "[worker:0] alone\n");
}

}  // namespace
}  // namespace cohort::testing
