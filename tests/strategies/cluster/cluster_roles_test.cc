#include "strategies/cluster/cluster_roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::refusal;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A cluster of so many tasks of each job.
ClusterSpec cluster(int chiefs, int workers, int ps, int evaluators = 0) {
  ClusterSpec::Jobs jobs;
  int port = 1000;
  const auto add = [&](const char* job, int count) {
    for (int i = 0; i < count; ++i) jobs[job].push_back("h:" + std::to_string(port++));
  };
  add("chief", chiefs);
  add("worker", workers);
  add("ps", ps);
  add("evaluator", evaluators);
  return ClusterSpec(jobs);
}

TEST(ClusterRoles, TheChiefIsTheChiefOrElseTheFirstWorker) {
  const ClusterSpec with = cluster(1, 2, 2), without = cluster(0, 3, 1);
  EXPECT_TRUE(is_chief(with, "chief", 0));
  EXPECT_FALSE(is_chief(with, "worker", 0));
  EXPECT_FALSE(is_chief(with, "ps", 0));
  EXPECT_TRUE(is_chief(without, "worker", 0));
  EXPECT_FALSE(is_chief(without, "worker", 1));
  EXPECT_FALSE(is_chief(without, "ps", 0));
}

TEST(ClusterRoles, AnEvaluatorIsItsOwnChiefWhetherListedOrNot) {
  EXPECT_TRUE(is_chief(cluster(1, 2, 0, 1), "evaluator", 0));
  EXPECT_TRUE(is_chief(cluster(1, 2, 0, 0), "evaluator", 0));
}

TEST(ClusterRoles, TasksThatAreNotThereAreRefused) {
  EXPECT_THAT(refusal([] { is_chief(cluster(0, 2, 2), "chief", 0); }),
              AllOf(HasSubstr("chief"), HasSubstr("ps, worker")));
  EXPECT_THAT(refusal([] { is_chief(cluster(1, 2, 0), "worker", 2); }),
              AllOf(HasSubstr("task.index: found 2"), HasSubstr("0 to 1")));
  EXPECT_THAT(refusal([] { validate_task(cluster(0, 1, 0), "worker", -1); }), HasSubstr("-1"));
  EXPECT_THAT(refusal([] { validate_task(cluster(0, 0, 2), "worker", 0); }), HasSubstr("worker"));
  EXPECT_THAT(refusal([] { validate_task(cluster(0, 2, 0), "trainer", 0); }),
              AllOf(HasSubstr("trainer"), HasSubstr("chief, worker, ps or evaluator")));
  EXPECT_THAT(refusal([] { validate_task(cluster(0, 2, 0, 1), "evaluator", 1); }),
              HasSubstr("evaluator"));
  EXPECT_NO_THROW(validate_task(cluster(0, 2, 0), "evaluator", 0));
  EXPECT_THAT(refusal([] { validate_task(cluster(0, 2, 0), "evaluator", 5); }),
              AllOf(HasSubstr("task.index: found 5"), HasSubstr("at most one evaluator")));
}

TEST(ClusterRoles, ChiefAndWorkersAreCountedTogether) {
  for (int chiefs = 0; chiefs <= 1; ++chiefs) {
    for (int workers = 1; workers <= 4; ++workers) {
      const ClusterSpec spec = cluster(chiefs, workers, 2, 1);
      EXPECT_EQ(worker_count(spec, "worker"), chiefs + workers);
      if (chiefs == 1) {
        EXPECT_EQ(worker_count(spec, "chief"), 1 + workers);
      }
      EXPECT_EQ(worker_count(spec, "evaluator"), 1);
      EXPECT_THROW(worker_count(spec, "ps"), Error);
      for (int i = 0; i < workers; ++i) EXPECT_EQ(id_in_cluster(spec, "worker", i), chiefs + i);
    }
  }
}

TEST(ClusterRoles, CountsNeedACluster) {
  EXPECT_THROW(worker_count({}, "worker"), Error);
  EXPECT_THROW(worker_count({}, "chief"), Error);
  EXPECT_THROW(worker_count(cluster(0, 2, 0), ""), Error);
}

TEST(ClusterRoles, IdsOfTheOthers) {
  EXPECT_EQ(id_in_cluster(cluster(1, 2, 2), "chief", 0), 0);
  EXPECT_EQ(id_in_cluster(cluster(1, 2, 2), "evaluator", 0), 0);
  EXPECT_THROW(id_in_cluster(cluster(1, 2, 2), "ps", 0), Error);
}

TEST(ClusterRoles, TheLeaderIsTheFirstOfChiefAndWorkers) {
  EXPECT_EQ(collective_leader(cluster(1, 2, 1), "worker", 1), "chief:0");
  EXPECT_EQ(collective_leader(cluster(0, 2, 1), "worker", 1), "worker:0");
  EXPECT_EQ(collective_leader(cluster(0, 2, 1), "ps", 0), "worker:0");
  EXPECT_EQ(collective_leader(cluster(0, 2, 1, 1), "evaluator", 0), "");
  EXPECT_EQ(collective_leader({}, "", 0), "");
  EXPECT_EQ(collective_leader(cluster(0, 0, 1), "ps", 0), "");
}

}  // namespace
}  // namespace cohort
