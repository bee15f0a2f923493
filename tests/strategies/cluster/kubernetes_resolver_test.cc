#include "strategies/cluster/kubernetes_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::environment;
using cohort::testing::refusal;
using cohort::testing::Variables;
using ::testing::AllOf;
using ::testing::HasSubstr;

Variables pod(int index, int pods, Variables more = {}) {
  more.insert({{"JOB_COMPLETION_INDEX", std::to_string(index)},
               {"HOSTNAME", str("train-", index)},
               {"COHORT_KUBERNETES_SERVICE", "ring"},
               {"COHORT_KUBERNETES_PODS", std::to_string(pods)}});
  return more;
}

TEST(KubernetesResolver, PodsFindEachOtherThroughTheService) {
  const KubernetesResolver resolver({}, environment(pod(2, 3)));
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec(ClusterSpec::Jobs{
                {"worker", {"train-0.ring:8470", "train-1.ring:8470", "train-2.ring:8470"}}}));
  EXPECT_EQ(resolver.master(), "grpc://train-2.ring:8470");
  EXPECT_EQ(resolver.world().rank, 2);
  EXPECT_EQ(resolver.world().size, 3);
  EXPECT_EQ(resolver.leader()->text(), "train-0.ring:8470");
}

TEST(KubernetesResolver, PortAndJobNameComeFromTheEnvironment) {
  const KubernetesResolver resolver(
      {}, environment(pod(
              1, 2,
              {{"HOSTNAME", "my-2-run-1.ring.default.svc"}, {"COHORT_KUBERNETES_PORT", "2222"}})));
  EXPECT_EQ(resolver.master(), "grpc://my-2-run-1.ring:2222");
}

TEST(KubernetesResolver, TheProgramWins) {
  const KubernetesResolver resolver({.job_name = "j",
                                     .service = "s.ns.svc.cluster.local",
                                     .pods = 3,
                                     .port = 5,
                                     .jobs = {{"chief", 1}, {"ps", 1}, {"worker", 1}}},
                                    environment({{"JOB_COMPLETION_INDEX", "1"}}));
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 0);
  EXPECT_EQ(resolver.master(), "grpc://j-1.s.ns.svc.cluster.local:5");
  EXPECT_EQ(resolver.leader()->text(), "j-0.s.ns.svc.cluster.local:5");
}

TEST(KubernetesResolver, TheHostNameMustFitTheIndex) {
  for (const char* name : {"train-1", "-2", "2", "train", "train-12"}) {
    EXPECT_THAT(refusal([&] {
                  KubernetesResolver({}, environment(pod(2, 20, {{"HOSTNAME", name}})));
                }),
                AllOf(HasSubstr("HOSTNAME"), HasSubstr("JOB_COMPLETION_INDEX=2")))
        << name;
  }
}

TEST(KubernetesResolver, OptionsAreChecked) {
  EXPECT_THROW(KubernetesResolver({.pods = 0}, environment(pod(0, 1))), Error);
  EXPECT_THROW(KubernetesResolver({.port = 70000}, environment(pod(0, 1))), Error);
}

}  // namespace
}  // namespace cohort
