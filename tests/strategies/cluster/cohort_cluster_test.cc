// The program, as a user runs it.

#include <cstdio>
#include <memory>
#include <sys/wait.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/version.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code;
  std::string output;  // stdout and stderr
};

// Runs the program with nothing in its environment but `variables`.
Outcome run(const std::string& variables, const std::string& arguments) {
  const std::string command =
      str("env -i ", variables, " strategies/cluster/check/cohort_cluster ", arguments, " 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  Outcome outcome{};
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.output.append(buffer, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(CohortCluster, PrintsWhatWasResolvedAndFromWhere) {
  const Outcome result = run(
      R"(TF_CONFIG='{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}')",
      "check --timeout=0");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("TF_CONFIG is set"), HasSubstr("worker:1, rank 1 of 2"),
                    HasSubstr("TF_CONFIG.cluster.worker[0]")));
}

TEST(CohortCluster, ExitCodesAreThoseOfErrors) {
  const Outcome malformed = run("TF_CONFIG='{'", "check");
  EXPECT_EQ(malformed.exit_code, exit_code(Code::kInvalidArgument));
  EXPECT_THAT(malformed.output, HasSubstr("TF_CONFIG, line 1, column 2"));

  const Outcome alone = run("", "check");
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_THAT(alone.output, HasSubstr("rank 0 of 1"));

  // Port 1 of this host: nobody listens there.
  const Outcome unreachable =
      run("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1", "check --json");
  EXPECT_EQ(unreachable.exit_code, exit_code(Code::kUnavailable));
  EXPECT_THAT(unreachable.output, AllOf(HasSubstr(R"("launcher": "torchrun")"),
                                        HasSubstr("cannot be reached: leader")));

  // Of several hosts, by variables alone: nobody tells where rank 0 is.
  const std::string mpi =
      "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
      "OMPI_COMM_WORLD_LOCAL_SIZE=1";
  const Outcome unknown = run(mpi, "check");
  EXPECT_EQ(unknown.exit_code, exit_code(Code::kUnavailable));
  EXPECT_THAT(unknown.output, AllOf(HasSubstr("no, MASTER_ADDR is not set"),
                                    HasSubstr("cannot be reached: leader")));
  EXPECT_EQ(run(mpi, "check --timeout=0").exit_code, 0);
}

TEST(CohortCluster, ShowsAClusterThatGivesThisTaskNoRank) {
  const std::string sparse =
      R"(TF_CONFIG='{"sparseCluster": {"ps": ["127.0.0.1:1"], "worker": {"1": "127.0.0.1:2"}}, "task": {"type": "worker", "index": 1}}')";
  const Outcome partial = run(sparse, "check --timeout=0");
  EXPECT_EQ(partial.exit_code, exit_code(Code::kInvalidArgument));
  EXPECT_THAT(partial.output,
              AllOf(HasSubstr("this is worker:1\n"), HasSubstr("TF_CONFIG.sparseCluster.ps[0]"),
                    HasSubstr("error: INVALID_ARGUMENT: TF_CONFIG: found a sparseCluster")));
  const Outcome tried = run(sparse, "check --timeout=0.05 --json");
  EXPECT_EQ(tried.exit_code, exit_code(Code::kInvalidArgument));
  EXPECT_THAT(tried.output, AllOf(HasSubstr(R"("refusal": "TF_CONFIG: found a sparseCluster)"),
                                  HasSubstr(R"("name": "ps:0")"), Not(HasSubstr("world"))));

  const Outcome unnamed =
      run(R"(TF_CONFIG='{"cluster": {"worker": ["a:1", "b:1"]}}')", "check --timeout=0");
  EXPECT_EQ(unnamed.exit_code, exit_code(Code::kInvalidArgument));
  EXPECT_THAT(unnamed.output, AllOf(HasSubstr("this is a task without a name, led from a:1\n"),
                                    HasSubstr("not which of them this is")));
}

TEST(CohortCluster, SaysOfWhichVersionItIs) {
  const Outcome result = run("", "--version");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "cohort-cluster " COHORT_VERSION "\n");
}

std::string cluster(const std::string& own, const std::string& other) {
  return str(R"(TF_CONFIG='{"cluster": {"worker": [")", own, R"(", ")", other,
             R"("]}, "task": {"type": "worker", "index": 0}}' )");
}

TEST(CohortCluster, ATaskThatCouldNotTakePartIsNotFine) {
  const std::string check = "check --timeout=0.05";
  const Outcome plain = run(cluster("192.0.2.1:1", "192.0.2.2:1"), check);
  EXPECT_EQ(plain.exit_code, exit_code(Code::kFailedPrecondition));
  EXPECT_THAT(plain.output,
              AllOf(HasSubstr("traffic with worker:0 at 192.0.2.1:1 would be in plain text"),
                    HasSubstr("worker:1  192.0.2.2:1  no, ")));
  const Outcome allowed =
      run(cluster("192.0.2.1:1", "192.0.2.2:1") + "COHORT_ALLOW_PLAINTEXT=1", check);
  EXPECT_EQ(allowed.exit_code, exit_code(Code::kUnavailable)) << allowed.output;

  const Outcome named = run(cluster("127.0.1.1:1", "192.0.2.2:1"), check);
  EXPECT_EQ(named.exit_code, exit_code(Code::kFailedPrecondition));
  EXPECT_THAT(named.output, HasSubstr("this task is at 127.0.1.1:1 (TF_CONFIG.cluster.worker[0])"));

  const Outcome mistaken = run("COHORT_ALLOW_PLAINTEXT=yes", "check --timeout=0");
  EXPECT_EQ(mistaken.exit_code, exit_code(Code::kInvalidArgument));
  EXPECT_THAT(mistaken.output, HasSubstr("COHORT_ALLOW_PLAINTEXT: found \"yes\""));

  const Outcome missing =
      run("COHORT_TLS_CERT=/none COHORT_TLS_KEY=/none COHORT_TLS_CA=/none", "check --timeout=0");
  EXPECT_EQ(missing.exit_code, exit_code(Code::kInvalidArgument));
  EXPECT_THAT(missing.output, HasSubstr("COHORT_TLS_CERT: cannot open /none"));

  const Outcome unknown = run("COHORT_COLLECTIVE_BACKEND=xyz", "check --timeout=0");
  EXPECT_EQ(unknown.exit_code, exit_code(Code::kInvalidArgument));
  EXPECT_THAT(unknown.output, HasSubstr("COHORT_COLLECTIVE_BACKEND: found \"xyz\""));
}

TEST(CohortCluster, WarnsOfAMisspeltSetting) {
  const Outcome result = run("COHORT_TLS_REQUIRED_TASK=1", "check");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("did you mean COHORT_TLS_REQUIRE_TASK?"));
}

TEST(CohortCluster, WrongUsage) {
  EXPECT_EQ(run("", "").exit_code, 2);
  EXPECT_EQ(run("", "chekc").exit_code, 2);
  EXPECT_EQ(run("", "check --timeuot=1").exit_code, 2);
  EXPECT_EQ(run("", "check --timeout=-1").exit_code, 2);
  EXPECT_EQ(run("", "--help").exit_code, 0);
  const Outcome help = run("", "check --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output, HasSubstr("cohort_cluster check [flags]"));
}

}  // namespace
}  // namespace cohort
