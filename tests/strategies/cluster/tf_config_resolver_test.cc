#include "strategies/cluster/tf_config_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/literal_resolver.h"
#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::environment;
using cohort::testing::refusal;
using ::testing::HasSubstr;

constexpr const char* kCluster =
    R"("cluster": {"ps": ["ps0:2222", "ps1:2222"], "worker": ["worker0:2222", "worker1:2222", "worker2:2222"]})";

TFConfigResolver resolver(const std::string& text, const TFConfigResolverOptions& options = {}) {
  return TFConfigResolver(options, environment({{"TF_CONFIG", text}}));
}

TFConfigResolver with_cluster(const std::string& rest,
                              const TFConfigResolverOptions& options = {}) {
  return resolver(str("{", kCluster, rest.empty() ? "" : ", ", rest, "}"), options);
}

TEST(TFConfigResolver, ReadsClusterAndTask) {
  const auto resolver = with_cluster(R"("task": {"type": "ps", "index": 1})");
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 3);
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.rpc_layer(), "");
  EXPECT_EQ(resolver.environment(), "");
}

TEST(TFConfigResolver, MasterIsTheAddressOfATask) {
  const auto resolver = with_cluster(R"("task": {"type": "ps", "index": 0})");
  EXPECT_EQ(resolver.master(), "ps0:2222");
  EXPECT_EQ(resolver.master("worker", 1), "worker1:2222");
  EXPECT_EQ(resolver.master("worker", 2, "grpc"), "grpc://worker2:2222");
  EXPECT_THROW(resolver.master("worker", 3), Error);
}

TEST(TFConfigResolver, MasterCarriesTheRpcLayer) {
  const auto resolver = with_cluster(R"("rpc_layer": "grpc", "task": {"type": "ps", "index": 0})");
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  EXPECT_EQ(resolver.master(), "grpc://ps0:2222");
  EXPECT_EQ(resolver.master("worker", 1), "grpc://worker1:2222");
  EXPECT_EQ(resolver.master("worker", 1, ""), "worker1:2222");
}

TEST(TFConfigResolver, ASessionMasterWins) {
  const auto resolver = with_cluster(
      R"("rpc_layer": "grpc", "session_master": "master:9", "task": {"type": "ps", "index": 0})");
  EXPECT_EQ(resolver.master(), "master:9");
  EXPECT_EQ(resolver.master("worker", 1), "master:9");
}

TEST(TFConfigResolver, WithoutClusterTheProgramIsOnItsOwn) {
  for (const auto& local :
       {TFConfigResolver({}, environment({})), resolver("{}"), resolver(R"({"cluster": {}})")}) {
    EXPECT_TRUE(local.cluster_spec().empty());
    EXPECT_EQ(local.task_type(), "");
    EXPECT_EQ(local.task_id(), std::nullopt);
    EXPECT_EQ(local.master(), "");
    EXPECT_EQ(local.world().rank, 0);
    EXPECT_EQ(local.world().size, 1);
    EXPECT_EQ(local.leader(), std::nullopt);
  }
}

TEST(TFConfigResolver, ASingleTaskNeedsNoMaster) {
  const auto single = resolver(R"({"cluster": {"worker": ["worker0:2222"]}})");
  EXPECT_EQ(single.master(), "");
  EXPECT_EQ(single.world().size, 1);
  EXPECT_EQ(single.leader()->text(), "worker0:2222");
}

TEST(TFConfigResolver, TypeAndIndexAreCast) {
  EXPECT_EQ(resolver(R"({"task": {"type": 123456, "index": "1"}})").task_type(), "123456");
  EXPECT_EQ(resolver(R"({"task": {"type": "worker", "index": "17"}})").task_id(), 17);
  EXPECT_EQ(with_cluster(R"("task": {"type": "worker", "index": "2"})").task_id(), 2);
  EXPECT_EQ(with_cluster(R"("task": {"type": "worker", "index": -0})").task_id(), 0);
}

TEST(TFConfigResolver, OverridesWin) {
  const auto resolver = with_cluster(
      R"("rpc_layer": "grpc", "environment": "cloud", "task": {"type": "ps", "index": 1})",
      {.task_type = "worker", .task_id = 2, .rpc_layer = "other", .environment = "x"});
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 2);
  EXPECT_EQ(resolver.rpc_layer(), "other");
  EXPECT_EQ(resolver.environment(), "x");
  EXPECT_EQ(resolver.master(), "other://worker2:2222");
}

TEST(TFConfigResolver, EachFieldIsOverriddenAlone) {
  const auto resolver =
      with_cluster(R"("task": {"type": "ps", "index": 1})", {.task_type = "worker"});
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
}

TEST(TFConfigResolver, AnOverrideIsCheckedToo) {
  EXPECT_THAT(
      refusal([] { with_cluster(R"("task": {"type": "ps", "index": 1})", {.task_id = 2}); }),
      HasSubstr("TF_CONFIG.task.index"));
}

TEST(TFConfigResolver, SparseJobs) {
  const auto sparse = resolver(
      R"({"cluster": {"ps": ["p:1"], "worker": {"4": "w4:1"}}, "task": {"type": "worker", "index": 4}})");
  EXPECT_EQ(sparse.master(), "w4:1");
  EXPECT_EQ(
      refusal([&] { sparse.world(); }),
      "TF_CONFIG.cluster.worker.4: found worker:4 among workers that are numbered 4; expected "
      "the number 0, as in \"worker\": [\"host0:2222\", "
      "\"host1:2222\"]");
}

TEST(TFConfigResolver, ASparseClusterOfTFJobIsOne) {
  for (const int index : {0, 1}) {
    const auto sparse =
        resolver(str(R"({"sparseCluster": {"ps": ["p:1"], "worker": {")", index,
                     R"(": "w:1"}}, "task": {"type": "worker", "index": )", index, "}}"));
    EXPECT_EQ(sparse.master(), "w:1");
    EXPECT_EQ(sparse.master("ps", 0), "p:1");
    EXPECT_THAT(refusal([&] { sparse.world(); }),
                HasSubstr("found a sparseCluster, which names of the workers this one alone"));
  }
}

TEST(TFConfigResolver, SeveralTasksNeedToKnowWhichThisIs) {
  const auto nobody = with_cluster("");
  EXPECT_EQ(
      refusal([&] { nobody.world(); }),
      "TF_CONFIG: found a cluster of 5 tasks and not which of them this is; expected its type "
      "and index, as in \"task\": {\"type\": \"worker\", \"index\": 0}");
}

TEST(TFConfigResolver, WorldCountsChiefAndWorkers) {
  const auto world = [](const std::string& type, int index) {
    return resolver(
        str(R"({"cluster": {"chief": ["c:1"], "worker": ["a:1", "b:1"], "ps": ["p:1"]},)",
            R"("task": {"type": ")", type, R"(", "index": )", index, "}}"));
  };
  EXPECT_EQ(world("chief", 0).world().rank, 0);
  EXPECT_EQ(world("worker", 1).world().rank, 2);
  EXPECT_EQ(world("worker", 1).world().size, 3);
  EXPECT_EQ(world("worker", 1).leader()->text(), "c:1");
  EXPECT_EQ(world("evaluator", 0).world().size, 1);
  EXPECT_EQ(world("evaluator", 0).leader(), std::nullopt);
  EXPECT_THROW(world("ps", 0).world(), Error);
  EXPECT_EQ(world("ps", 0).leader()->text(), "c:1");
}

TEST(TFConfigResolver, AClusterWithoutAPlaceInItHasNoRank) {
  const auto nobody = with_cluster("");
  EXPECT_THAT(refusal([&] { nobody.world(); }), HasSubstr("TF_CONFIG"));
  EXPECT_THAT(refusal([&] { nobody.master(); }), HasSubstr("TF_CONFIG"));
}

TEST(TFConfigResolver, KeysOfOthersAreIgnoredBesideACluster) {
  EXPECT_EQ(with_cluster(R"("job": {"args": []}, "task": {"type": "ps", "index": 0, "trial": "7"})")
                .task_type(),
            "ps");
}

TEST(TFConfigResolver, EveryFactNamesItsKey) {
  const auto resolver = with_cluster(
      R"("rpc_layer": "grpc", "task": {"type": "worker", "index": 1})", {.task_id = 2});
  const auto source = [&](const std::string& name) {
    for (const Fact& fact : resolver.facts()) {
      if (fact.name == name) return str(fact.value, " from ", fact.source);
    }
    return std::string("none");
  };
  EXPECT_EQ(source("worker:1"), "worker1:2222 from TF_CONFIG.cluster.worker[1]");
  EXPECT_EQ(source("ps:0"), "ps0:2222 from TF_CONFIG.cluster.ps[0]");
  EXPECT_EQ(source("task type"), "worker from TF_CONFIG.task.type");
  EXPECT_EQ(source("task index"), "2 from the program");
  EXPECT_EQ(source("rpc_layer"), "grpc from TF_CONFIG.rpc_layer");
}

TEST(LiteralResolver, IsWhatTheProgramSays) {
  const LiteralResolver literal(ClusterSpec(ClusterSpec::Jobs{{"worker", {"a:1", "b:1"}}}),
                                {.task_type = "worker", .task_id = 1});
  EXPECT_EQ(literal.master(), "grpc://b:1");
  EXPECT_EQ(literal.world().rank, 1);
  EXPECT_EQ(literal.world().size, 2);
  EXPECT_EQ(literal.leader()->text(), "a:1");
  EXPECT_THROW(LiteralResolver(ClusterSpec(ClusterSpec::Jobs{{"worker", {"a:1"}}}),
                               {.task_type = "worker", .task_id = 1}),
               Error);
}

}  // namespace
}  // namespace cohort
