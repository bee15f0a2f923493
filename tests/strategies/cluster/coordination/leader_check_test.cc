#include <atomic>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/check/cluster_check.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/certificates.h"

// What the check says of a leader that is there.
namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

ClusterCheck check(const LiteralResolver& resolver, const Variables& variables) {
  return check_cluster({std::make_shared<LiteralResolver>(resolver), "the test says so"},
                       seconds(5), environment(variables));
}

class LeaderCheck : public ::testing::Test {
 protected:
  // What worker:1 finds, with this resolver and these variables, while a leader waits for it. The
  // job must not notice.
  ClusterCheck while_leader_waits(const MembershipOptions& leader, const LiteralResolver& resolver,
                                  const Variables& variables) {
    std::optional<ClusterCheck> found;
    const auto errors = on_threads(2, [&](int rank) {
      if (rank == 1) {
        eventually([&] {
          found = check(resolver, variables);
          return found->peers[0].reachability.detail != "Connection refused";
        });
      }
      join(job_.resolver(rank), leader)->leave();
    });
    EXPECT_THAT(errors, Each(""));
    return *found;
  }
  ClusterCheck while_leader_waits(const MembershipOptions& leader, const Variables& variables) {
    return while_leader_waits(leader, job_.resolver(1), variables);
  }
  // What keeps a task with these variables from joining, though it might be otherwise.
  std::string trouble(const MembershipOptions& leader, const Variables& variables) {
    const ClusterCheck found = while_leader_waits(leader, variables);
    EXPECT_FALSE(found.peers[0].reachability.reachable);
    EXPECT_FALSE(found.refusal);
    return found.peers[0].reachability.detail;
  }
  static Variables tls(const TlsFiles& files) {
    return {{"COHORT_TLS_CERT", files.certificate},
            {"COHORT_TLS_KEY", files.key},
            {"COHORT_TLS_CA", files.authority}};
  }

  const LocalJob job_{2};
};

TEST_F(LeaderCheck, SaysThatItWouldTakeThisTask) {
  const ClusterCheck found = while_leader_waits({}, {});
  EXPECT_TRUE(found.peers[0].reachability.reachable);
  EXPECT_THAT(found.peers[0].reachability.detail,
              AllOf(HasSubstr(" ms; "), HasSubstr("the leader would take this task")));
  EXPECT_FALSE(found.refusal);
}

TEST_F(LeaderCheck, OfAnotherJobOrClusterIsWhatTheTaskWouldEndWith) {
  const auto expect_refused = [](const ClusterCheck& found, const std::string& why) {
    ASSERT_TRUE(found.refusal);
    EXPECT_EQ(found.refusal->code(), Code::kFailedPrecondition);
    EXPECT_THAT(found.refusal->message(),
                AllOf(HasSubstr("is refused by the leader, worker:0"), HasSubstr(why)));
    EXPECT_EQ(found.peers[0].reachability.detail, found.refusal->message());
    EXPECT_THAT(found.unreachable(), ::testing::Contains("worker:0"));
  };
  expect_refused(while_leader_waits({.job_id = "one"}, {{"COHORT_JOB_ID", "two"}}),
                 "this task has job id \"two\", the leader \"one\"");
  const LocalJob other(2);
  const ClusterSpec spec({{"worker", {job_.address(0), other.address(1)}}});
  expect_refused(
      while_leader_waits({}, LiteralResolver(spec, {.task_type = "worker", .task_id = 1}), {}),
      str("worker:1 is at ", other.address(1), " in this task's cluster"));
}

TEST_F(LeaderCheck, SpeaksAsATaskThatJoins) {
  const Certificates certificates;
  certificates.sign("elsewhere", "DNS:elsewhere.example");
  const MembershipOptions with = {.tls = certificates.files()};
  EXPECT_TRUE(while_leader_waits(with, tls(certificates.files())).peers[0].reachability.reachable);
  EXPECT_THAT(trouble(with, {}), HasSubstr("asked in plain text: "));
  EXPECT_THAT(trouble({}, tls(certificates.files())), HasSubstr("asked by TLS: "));
  TlsFiles named = certificates.files("elsewhere");
  named.leader_name = "elsewhere.example";
  EXPECT_THAT(trouble({.tls = named}, tls(certificates.files())),
              HasSubstr("Peer name 127.0.0.1 is not in peer certificate"));
}

TEST_F(LeaderCheck, OfARankThatIsTakenSaysSo) {
  const Members members = join_all(job_);
  const ClusterCheck found = check(job_.resolver(1), {});
  EXPECT_FALSE(found.peers[0].reachability.reachable);
  EXPECT_THAT(found.peers[0].reachability.detail, HasSubstr("the job is complete"));
  EXPECT_THAT(on_threads(2, [&](int rank) { members[rank]->leave(); }), Each(""));
}

}  // namespace
}  // namespace cohort::testing
