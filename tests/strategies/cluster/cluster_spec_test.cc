#include "strategies/cluster/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::refusal;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Jobs = ClusterSpec::Jobs;

TEST(ClusterSpec, AnswersWhoIsWhere) {
  const ClusterSpec spec(Jobs{{"worker", {"a:1", "b:1", "c:1"}}, {"ps", {"d:1"}}});
  EXPECT_THAT(spec.jobs(), ElementsAre("ps", "worker"));
  EXPECT_THAT(spec.task_ids("worker"), ElementsAre(0, 1, 2));
  EXPECT_EQ(spec.num_tasks("worker"), 3);
  EXPECT_EQ(spec.num_tasks("chief"), 0);
  EXPECT_EQ(spec.num_tasks(), 4);
  EXPECT_EQ(spec.address("worker", 2).text(), "c:1");
  EXPECT_TRUE(spec.has_task("ps", 0));
  EXPECT_FALSE(spec.has_task("ps", 1));
  EXPECT_THAT(refusal([&] { spec.address("worker", 3); }),
              AllOf(HasSubstr("worker:3"), HasSubstr("0 to 2")));
}

TEST(ClusterSpec, AnEmptyOneHasNoTasks) {
  const ClusterSpec spec;
  EXPECT_TRUE(spec.empty());
  EXPECT_THAT(spec.jobs(), IsEmpty());
  EXPECT_EQ(spec.num_tasks(), 0);
  EXPECT_EQ(spec.json(), "{}");
}

TEST(ClusterSpec, AJobWithoutTasksIsNotThere) {
  EXPECT_THAT(ClusterSpec(Jobs{{"worker", {"a:1"}}, {"ps", {}}}).jobs(), ElementsAre("worker"));
}

TEST(ClusterSpec, NumbersMayHaveGaps) {
  const auto spec = ClusterSpec::from_json(R"({"worker": {"7": "h:7", "2": "h:2", "10": "h:10"}})");
  EXPECT_THAT(spec.task_ids("worker"), ElementsAre(2, 7, 10));
  EXPECT_EQ(spec.num_tasks("worker"), 3);
  EXPECT_EQ(spec.address("worker", 7).text(), "h:7");
  EXPECT_EQ(spec.describe_task_ids("worker"), "2, 7, 10");
}

TEST(ClusterSpec, EqualClustersHaveTheSameTextAndHash) {
  const auto list = ClusterSpec::from_json(R"({"worker": ["A:1", "[0:0::1]:2"], "ps": ["c:3"]})");
  const auto object =
      ClusterSpec::from_json(R"({"ps": {"0": "c:3"}, "worker": {"1": "[::1]:2", "0": "a:1"}})");
  EXPECT_EQ(list, object);
  EXPECT_EQ(list.json(), R"({"ps":["c:3"],"worker":["a:1","[::1]:2"]})");
  EXPECT_EQ(list.json(), object.json());
  EXPECT_EQ(list.hash(), object.hash());
}

TEST(ClusterSpec, OtherClustersHaveAnotherHash) {
  const ClusterSpec spec(Jobs{{"worker", {"a:1", "b:1"}}});
  for (const Jobs& other : {Jobs{{"worker", {"b:1", "a:1"}}}, Jobs{{"worker", {"a:1"}}},
                            Jobs{{"ps", {"a:1", "b:1"}}}, Jobs{{"worker", {"a:1", "b:2"}}}}) {
    EXPECT_NE(ClusterSpec(other), spec);
    EXPECT_NE(ClusterSpec(other).hash(), spec.hash());
  }
}

TEST(ClusterSpec, TheHashIsTheSameForThoseWhoDoNotKnowTheEvaluator) {
  const Jobs workers = {{"worker", {"a:1", "b:1"}}};
  Jobs all = workers, elsewhere = workers;
  all["evaluator"] = {"c:1"};
  elsewhere["evaluator"] = {"d:1"};
  EXPECT_NE(ClusterSpec(all), ClusterSpec(workers));
  EXPECT_EQ(ClusterSpec(all).hash(), ClusterSpec(workers).hash());
  EXPECT_EQ(ClusterSpec(elsewhere).hash(), ClusterSpec(workers).hash());
}

TEST(ClusterSpec, TheHashIsTheSameOnEveryMachine) {
  // FNV-1a of "{}", worked out by hand from its definition.
  uint64_t expected = 14695981039346656037u;
  for (const unsigned char c : {'{', '}'}) expected = (expected ^ c) * 1099511628211u;
  EXPECT_EQ(ClusterSpec().hash(), expected);
}

TEST(ClusterSpec, TextIsReadBack) {
  for (const char* text : {R"({})", R"({"chief":["a:1"],"worker":["b:1","c:1"]})",
                           R"({"worker":{"3":"[fe80::1%eth0]:1","5":"c:1"}})"}) {
    EXPECT_EQ(ClusterSpec::from_json(text).json(), text);
  }
}

TEST(ClusterSpec, ADuplicateAddressNamesBothPlaces) {
  EXPECT_THAT(refusal([] {
                ClusterSpec(Jobs{{"worker", {"a:1", "b:1"}}, {"ps", {"B:1"}}});
              }),
              AllOf(HasSubstr("cluster.ps[0]"), HasSubstr("cluster.worker[1]"), HasSubstr("b:1")));
}

TEST(ClusterSpec, RefusesUnknownJobsAndSecondChiefs) {
  EXPECT_THAT(refusal([] {
                ClusterSpec(Jobs{{"master", {"a:1"}}});
              }),
              AllOf(HasSubstr("master"), HasSubstr("chief, worker, ps or evaluator")));
  EXPECT_THAT(refusal([] {
                ClusterSpec(Jobs{{"chief", {"a:1", "b:1"}}});
              }),
              AllOf(HasSubstr("cluster.chief[1]"), HasSubstr("at most one chief")));
  EXPECT_THAT(refusal([] {
                ClusterSpec(Jobs{{"evaluator", {"a:1", "b:1"}}});
              }),
              HasSubstr("at most one evaluator"));
}

TEST(ClusterSpec, ATaskMayNotBeGivenTwice) {
  EXPECT_THAT(refusal([] {
                ClusterSpec::from_tasks({{"worker", 0, Address::parse("a:1"), "here"},
                                         {"worker", 0, Address::parse("b:1"), "there"}});
              }),
              AllOf(HasSubstr("there"), HasSubstr("worker:0")));
  EXPECT_THAT(refusal([] {
                ClusterSpec::from_tasks({{"worker", -1, Address::parse("a:1"), "here"}});
              }),
              AllOf(HasSubstr("here"), HasSubstr("-1")));
}

}  // namespace
}  // namespace cohort
