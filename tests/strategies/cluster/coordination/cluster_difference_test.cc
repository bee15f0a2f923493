#include "strategies/cluster/coordination/cluster_difference.h"

#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace cohort::coordination {
namespace {

using Jobs = ClusterSpec::Jobs;

std::optional<std::string> difference(const Jobs& own, const Jobs& leaders) {
  return cluster_difference(ClusterSpec(own), told_cluster(ClusterSpec(leaders)));
}

TEST(ClusterDifference, IsTheFirstTaskThatIsAtAnotherPlace) {
  EXPECT_EQ(difference(Jobs{{"chief", {"a:1"}}, {"worker", {"b:1", "c:1", "d:1"}}},
                       Jobs{{"chief", {"a:1"}}, {"worker", {"b:1", "e:1", "f:1"}}}),
            "worker:1 is at c:1 in this task's cluster, and at e:1 in the leader's");
}

TEST(ClusterDifference, IsTheFirstTaskThatOneOfThemLacks) {
  const Jobs workers{{"worker", {"a:1", "b:1"}}};
  const Jobs with_server{{"worker", {"a:1", "b:1"}}, {"ps", {"c:1"}}};
  EXPECT_EQ(difference(with_server, workers),
            "ps:0 is at c:1 in this task's cluster, and missing in the leader's");
  EXPECT_EQ(difference(workers, with_server),
            "ps:0 is missing in this task's cluster, and at c:1 in the leader's");
  EXPECT_EQ(difference(workers, {}),
            "worker:0 is at a:1 in this task's cluster, and missing in the leader's");
}

TEST(ClusterDifference, IsNotKnownWhereTheLeadersClusterIsTooLong) {
  std::vector<std::string> addresses;
  for (int task = 0; task < 3000; ++task) addresses.push_back(str("host", task, ".example.com:1"));
  const ClusterSpec large(Jobs{{"worker", addresses}});
  EXPECT_EQ(told_cluster(large), "");
  EXPECT_EQ(cluster_difference(ClusterSpec(), told_cluster(large)), std::nullopt);
  EXPECT_EQ(cluster_difference(ClusterSpec(), large.json()), std::nullopt);
}

TEST(ClusterDifference, IsNotKnownWhereTheLeaderTellsNonsense) {
  const ClusterSpec own(Jobs{{"worker", {"a:1", "b:1"}}});
  const std::vector<std::string> nonsense = {"{",
                                             "[]",
                                             "null",
                                             "\xff",
                                             std::string(60'000, '['),
                                             R"({"boss": ["c:1"]})",
                                             R"({"worker": 1})",
                                             R"({"worker": [1]})",
                                             R"({"worker": ["c:1\u001b[2J"]})",
                                             R"({"worker": {"-1": "c:1"}})",
                                             own.json()};
  for (const std::string& told : nonsense)
    EXPECT_EQ(cluster_difference(own, told), std::nullopt) << told.substr(0, 100);
}

}  // namespace
}  // namespace cohort::coordination
