#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/program.h"
#include "strategies/cluster/mpi_resolver.h"
#include "strategies/cluster/torchrun_resolver.h"
#include "tests/strategies/cluster/coordination/job.h"

// How tasks come together, and how those that do not fit are refused.
namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

TorchrunResolver torchrun(const LocalJob& job, int rank, int size) {
  return TorchrunResolver(environment({{"RANK", std::to_string(rank)},
                                       {"WORLD_SIZE", std::to_string(size)},
                                       {"MASTER_ADDR", "127.0.0.1"},
                                       {"MASTER_PORT", std::to_string(job.port(0))}}));
}

// A job whose leader and worker:1 wait for worker:2; a stranger tries to join, then the last one
// comes.
class Refusal : public ::testing::Test {
 protected:
  // What the stranger gets. The others must not notice.
  Error refused(const ClusterResolver& resolver, const MembershipOptions& options = {}) {
    const Variables id = {{"COHORT_JOB_ID", "job-one"}};
    std::vector<std::string> errors;
    std::thread rest([&] {
      errors = on_threads(3, [&](int rank) {
        if (rank == 2) eventually([&] { return refused_.load(); });
        join(job_.resolver(rank), {}, id)->leave();
      });
    });
    const auto begin = Clock::now();
    Error error = error_of([&] { join(resolver, options); });
    EXPECT_LT(Clock::now() - begin, seconds(20));  // sooner than any time limit
    refused_ = true;
    rest.join();
    EXPECT_THAT(errors, Each(""));
    return error;
  }

  LocalJob job_{3};
  std::atomic<bool> refused_ = false;
};

TEST_F(Refusal, OfAnotherJob) {
  const Error error = refused(job_.resolver(2), {.job_id = "job-two"});
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("job id"), HasSubstr("\"job-two\""),
                                     HasSubstr("\"job-one\""), HasSubstr("worker:2")));
}

TEST_F(Refusal, OfAnotherWorldSize) {
  const Error error = refused(torchrun(job_, 2, 4), {.job_id = "job-one"});
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("world size 4, the leader 3"));
}

TEST_F(Refusal, OfAnotherCluster) {
  const LocalJob other(3);
  const ClusterSpec spec({{"worker", {job_.address(0), job_.address(1), other.address(2)}}});
  const Error error = refused(LiteralResolver(spec, {.task_type = "worker", .task_id = 2}));
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("cluster hash"),
                                     HasSubstr(str("worker:2 is at ", other.address(2),
                                                   " in this task's cluster, and at ",
                                                   job_.address(2), " in the leader's"))));
}

TEST(Joining, ARankThatIsTakenIsRefusedWithoutHarm) {
  LocalJob job(3);
  const Members members = join_all(job);
  const Error error = error_of([&] { join(job.resolver(1)); });
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_EQ(error.peer(), "worker:1");
  EXPECT_THAT(error.message(), HasSubstr("rank 1, which another living task has"));
  EXPECT_THAT(on_threads(3, [&](int rank) { members[rank]->barrier("b", kPlenty); }), Each(""));
}

TEST(Joining, TheEvaluatorNeedNotBeKnown) {
  const LocalJob job(2);
  const ClusterSpec watched({{"worker", {job.address(0), job.address(1)}}, {"evaluator", {"e:1"}}});
  Members members(2);
  const auto errors = on_threads(2, [&](int rank) {
    members[static_cast<size_t>(rank)] =
        rank == 0 ? join(LiteralResolver(watched, {.task_type = "worker", .task_id = 0}))
                  : join(job.resolver(rank));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Joining, RanksAloneAreEnough) {
  LocalJob job(1);  // for its port
  const auto errors = on_threads(3, [&](int rank) {
    const auto member = join(torchrun(job, rank, 3));
    EXPECT_EQ(member->rank(), rank);
    member->barrier("here", kPlenty);
    member->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Joining, WhereNobodyTellsOfRank0ItIsSaidHowTo) {
  char own[256] = "";
  gethostname(own, sizeof own - 1);
  const auto message = [](const Variables& variables) {
    return refusal([&] { join(MpiResolver(environment(variables))); });
  };
  EXPECT_THAT(message({{"OMPI_COMM_WORLD_RANK", "0"},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
              AllOf(HasSubstr("rank 0 of 4 by Open MPI"),
                    HasSubstr("(MASTER_ADDR is not set, and no PMIx server"),
                    HasSubstr(str("mpirun -x MASTER_ADDR=", own, " -x MASTER_PORT=29500"))));
  EXPECT_THAT(message({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}}),
              HasSubstr("mpiexec -genv MASTER_ADDR HOST_OF_RANK_0 -genv MASTER_PORT 29500"));
}

TEST(Joining, TheLimitNamesWhoIsMissingOnAllThatWait) {
  LocalJob job(4);
  const auto begin = Clock::now();
  const auto errors = on_threads(3, [&](int rank) {
    join(job.resolver(rank), {.join_timeout = rank == 0 ? seconds(2) : seconds(60)});
  });
  EXPECT_LT(Clock::now() - begin, seconds(20));
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("waited 2 s"),
                             HasSubstr("worker:3 (" + job.address(3) + ")"),
                             HasSubstr("3 of 4 tasks have joined"), HasSubstr("(peer worker:3)")));
  }
}

TEST(Joining, TheLimitNamesALeaderThatIsNotThere) {
  LocalJob job(2);
  const Error error = error_of([&] { join(job.resolver(1), {.join_timeout = milliseconds(500)}); });
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(error.peer(), "worker:0");
  EXPECT_THAT(error.message(), AllOf(HasSubstr("500 ms"), HasSubstr(job.address(0)),
                                     HasSubstr("Connection refused")));
}

TEST(Joining, AnInterruptEndsTheWait) {
  LocalJob job(3);
  const auto begin = Clock::now();
  std::vector<std::string> errors;
  std::thread waiting([&] { errors = on_threads(2, [&](int rank) { join(job.resolver(rank)); }); });
  request_stop(StopRequest::kInterrupt);
  waiting.join();
  init();  // forgets it
  EXPECT_LT(Clock::now() - begin, seconds(20));
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("CANCELLED"), HasSubstr("interrupted while it waited"))));
}

TEST(Joining, AMemberThatGivesUpMayComeAgain) {
  LocalJob job(3);
  std::atomic<bool> has_given_up = false;
  const auto errors = on_threads(3, [&](int rank) {
    if (rank == 1) {
      EXPECT_THAT(error_of([&] { join(job.resolver(1), {.join_timeout = seconds(2)}); }).message(),
                  HasSubstr("worker:2"));
      has_given_up = true;
    }
    if (rank == 2) {
      EXPECT_TRUE(eventually([&] { return has_given_up.load(); }));
    }
    join(job.resolver(rank))->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Joining, APortInUseIsNamed) {
  // The reserved port of the job is free for one listener; this is another's.
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(taken, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  setsockopt(taken, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
  LocalJob job(2);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(job.port(0)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  const Error error = error_of([&] { join(job.resolver(0)); });
  close(taken);
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr(job.address(0)), HasSubstr("in use"),
                                     HasSubstr(str("by process ", getpid(), " ("))));
}

// From here on this thread, and those that it starts, may bind no socket, whatever their rights.
void deny_bind() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bind, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    fail(Code::kInternal, "cannot deny bind: ", std::strerror(errno));
}

TEST(Joining, APortThatTheSystemDeniesIsAnErrorAtOnce) {
  const auto lead = [] {
    std::_Exit(run_main([] {
      const LocalJob job(2);
      deny_bind();
      join(job.resolver(0));
    }));
  };
  // In a process begun anew, all of whose threads may be denied it.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(lead(), ::testing::ExitedWithCode(17),
              "PERMISSION_DENIED: the leader cannot listen at .*: Permission denied");
}

TEST(Joining, TwoJobsAtOneAddressDoNotMix) {
  LocalJob job(2);
  Members members = join_all(job, {.job_id = "first"});
  EXPECT_THAT(error_of([&] { join(job.resolver(0), {.job_id = "second"}); }).message(),
              AllOf(HasSubstr("in use"), HasSubstr("which is this one: ")));
  for (int times = 0; times < 3; ++times)
    EXPECT_THAT(error_of([&] { join(job.resolver(1), {.job_id = "second"}); }).message(),
                AllOf(HasSubstr("\"second\""), HasSubstr("\"first\"")));
  EXPECT_FALSE(members[0]->failure() || members[1]->failure());
}

TEST(Joining, AnAddressOfAnotherHostIsNamed) {
  const ClusterSpec spec({{"worker", {"192.0.2.1:2222", "192.0.2.2:2222"}}});
  const LiteralResolver resolver(spec, {.task_type = "worker", .task_id = 0});
  EXPECT_THAT(error_of([&] { join(resolver, {.allow_plaintext = true}); }).message(),
              AllOf(HasSubstr("192.0.2.1:2222"), HasSubstr("no address of this host")));
}

TEST(Joining, PlainTextBeyondThisHostMustBeAllowed) {
  const ClusterSpec spec({{"worker", {"192.0.2.1:2222", "192.0.2.2:2222"}}});
  for (const int rank : {0, 1}) {
    const LiteralResolver resolver(spec, {.task_type = "worker", .task_id = rank});
    const Error error = error_of([&] { join(resolver); });
    EXPECT_EQ(error.code(), Code::kFailedPrecondition);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("192.0.2.1:2222"), HasSubstr("COHORT_TLS_CERT"),
                                       HasSubstr("COHORT_ALLOW_PLAINTEXT=1")));
  }
}

TEST(Joining, ANameThatIsNotKnownYetIsTriedUntilTheLimit) {
  const ClusterSpec spec({{"worker", {"no-such-host.invalid:2222", "127.0.0.1:2222"}}});
  for (const int rank : {0, 1}) {
    const LiteralResolver resolver(spec, {.task_type = "worker", .task_id = rank});
    EXPECT_THAT(error_of([&] { join(resolver, {.join_timeout = milliseconds(300)}); }).message(),
                HasSubstr("no-such-host.invalid is not known"));
  }
}

TEST(Joining, RefusesOptionsThatMakeNoSense) {
  const auto message = [](const MembershipOptions& options, const Variables& variables = {}) {
    return refusal([&] { join(LiteralResolver(), options, variables); });
  };
  for (const auto heartbeat : {milliseconds(0), milliseconds(1251), milliseconds::max()})
    EXPECT_THAT(message({.heartbeat = heartbeat}), HasSubstr("two heartbeats"));
  EXPECT_THAT(message({.suspect_after = milliseconds(400)}), HasSubstr("400 ms"));
  EXPECT_THAT(message({.dead_after = seconds(2)}), HasSubstr("dead_after 2 s"));
  EXPECT_THAT(message({.job_id = std::string(100, 'x')}), HasSubstr("at most 64"));
  EXPECT_THAT(message({}, {{"COHORT_JOB_ID", "a b"}}), HasSubstr("COHORT_JOB_ID"));
}

}  // namespace
}  // namespace cohort::testing
