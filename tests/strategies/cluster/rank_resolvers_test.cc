#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "strategies/cluster/mpi_resolver.h"
#include "strategies/cluster/pmix.h"
#include "strategies/cluster/torchrun_resolver.h"
#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::environment;
using cohort::testing::refusal;
using cohort::testing::Variables;
using ::testing::AllOf;
using ::testing::HasSubstr;

Variables torchrun(Variables more = {}) {
  more.insert({{"RANK", "5"},
               {"WORLD_SIZE", "8"},
               {"LOCAL_RANK", "1"},
               {"LOCAL_WORLD_SIZE", "4"},
               {"MASTER_ADDR", "10.0.0.1"},
               {"MASTER_PORT", "29500"}});
  return more;
}

TEST(TorchrunResolver, ReadsRanksAndTheLeader) {
  const TorchrunResolver resolver(environment(torchrun()));
  EXPECT_TRUE(resolver.cluster_spec().empty());
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 5);
  const World world = resolver.world();
  EXPECT_EQ(world.rank, 5);
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 4);
  EXPECT_EQ(resolver.tasks_on_host(), 4);
  EXPECT_EQ(resolver.leader()->text(), "10.0.0.1:29500");
}

TEST(TorchrunResolver, LocalNumbersNeedNotBeSet) {
  auto variables = torchrun();
  variables.erase("LOCAL_RANK");
  variables.erase("LOCAL_WORLD_SIZE");
  const TorchrunResolver resolver(environment(variables));
  EXPECT_EQ(resolver.world().local_rank, std::nullopt);
  EXPECT_EQ(resolver.world().local_size, std::nullopt);
  EXPECT_FALSE(resolver.several_hosts());
}

TEST(TorchrunResolver, WhereThisHostHasFewerRanksThanThereAreTheyAreOnSeveral) {
  const auto several_hosts = [](const std::string& local_size, const std::string& leader) {
    return TorchrunResolver(
               environment(torchrun({{"LOCAL_WORLD_SIZE", local_size}, {"MASTER_ADDR", leader}})))
        .several_hosts();
  };
  EXPECT_TRUE(several_hosts("4", "10.0.0.1"));
  EXPECT_TRUE(several_hosts("4", "node1"));
  EXPECT_FALSE(several_hosts("8", "node1"));
  // Two agents on one host.
  for (const std::string leader : {"localhost", "127.0.0.1", "127.0.1.1", "::1"})
    EXPECT_FALSE(several_hosts("4", leader)) << leader;
}

TEST(TorchrunResolver, KeepsOffThePortOnWhichTheAgentListens) {
  const auto leader = [](const std::string& agent) {
    return TorchrunResolver(environment(torchrun({{"TORCHELASTIC_USE_AGENT_STORE", agent}})))
        .leader()
        ->text();
  };
  EXPECT_EQ(leader("True"), "10.0.0.1:29501");
  EXPECT_EQ(leader("False"), "10.0.0.1:29500");
}

TEST(TorchrunResolver, AnIPv6LeaderNeedsNoBrackets) {
  EXPECT_EQ(
      TorchrunResolver(environment(torchrun({{"MASTER_ADDR", "2001:db8::1"}}))).leader()->text(),
      "[2001:db8::1]:29500");
}

Variables open_mpi(Variables more = {}) {
  more.insert({{"OMPI_COMM_WORLD_RANK", "3"},
               {"OMPI_COMM_WORLD_SIZE", "4"},
               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  return more;
}

std::string on_n1(int rank) { return str("n", rank + 1); }

std::string nowhere(int rank) { fail(Code::kUnavailable, "nobody knows of rank ", rank); }

TEST(MpiResolver, OpenMpiTellsRanksAndNoLeader) {
  const MpiResolver resolver(environment(open_mpi()), nowhere);
  EXPECT_EQ(resolver.launcher(), "Open MPI");
  EXPECT_EQ(resolver.world().rank, 3);
  EXPECT_EQ(resolver.world().size, 4);
  EXPECT_EQ(resolver.world().local_rank, 1);
  EXPECT_TRUE(resolver.several_hosts());
  EXPECT_EQ(resolver.leader(), std::nullopt);
  EXPECT_EQ(resolver.facts().back().value, "not known");
  EXPECT_EQ(resolver.facts().back().source, "MASTER_ADDR is not set, and nobody knows of rank 0");
}

TEST(MpiResolver, TheLeaderOfSeveralHostsIsWhereRank0Is) {
  const auto leader = [](const std::string& rank, const std::string& key) {
    const MpiResolver resolver(
        environment(open_mpi(
            {{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_MCA_orte_precondition_transports", key}})),
        on_n1);
    EXPECT_EQ(resolver.facts().back().source,
              "rank 0's host by PMIx, ports of OMPI_MCA_orte_precondition_transports");
    return *resolver.leader();
  };
  EXPECT_EQ(leader("0", "1163c5a8d4644eb2").host(), "n1");
  EXPECT_EQ(leader("0", "1163c5a8d4644eb2"), leader("3", "1163c5a8d4644eb2"));
  EXPECT_NE(leader("0", "1163c5a8d4644eb2"), leader("0", "5d07f1a3c22be981"));
}

// PMIx without the number of ranks of this host: they may be on several.
TEST(MpiResolver, WhereTheHostsAreNotKnownTheLeaderIsWhereRank0Is) {
  const MpiResolver resolver(environment({{"PMIX_RANK", "1"}, {"WORLD_SIZE", "3"}}), on_n1);
  EXPECT_FALSE(resolver.several_hosts());
  EXPECT_EQ(resolver.leader()->text(), "n1:29500");
}

TEST(MpiResolver, AHostThatNobodyCanReachIsNoLeader) {
  const MpiResolver resolver(environment(open_mpi()), [](int) { return "0.0.0.0"; });
  EXPECT_EQ(resolver.leader(), std::nullopt);
  EXPECT_THAT(resolver.facts().back().source, HasSubstr("the host of rank 0"));
}

TEST(MpiResolver, ALeaderMayBePassedOn) {
  const MpiResolver resolver(
      environment(open_mpi({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "4000"}})), on_n1);
  EXPECT_EQ(resolver.leader()->text(), "node1:4000");
  EXPECT_THAT(refusal([] {
                MpiResolver(environment(open_mpi({{"MASTER_ADDR", "node1"}})));
              }),
              HasSubstr("MASTER_PORT"));
}

TEST(MpiResolver, OnOneHostTheRunHasALeaderOfItsOwn) {
  const auto leader = [](const std::string& run) {
    const MpiResolver resolver(environment(open_mpi({{"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                                     {"PMIX_NAMESPACE", run}})),
                               nowhere);
    EXPECT_FALSE(resolver.several_hosts());
    return *resolver.leader();
  };
  EXPECT_EQ(leader("2987130881").host(), "127.0.0.1");
  EXPECT_EQ(leader("2987130881"), leader("2987130881"));
  EXPECT_NE(leader("2987130881"), leader("2987130882"));
}

// Two containers on one network: mpirun has the same process id in both, and so the same namespace.
TEST(MpiResolver, TheKeyOfARunTellsRunsOfOneNamespaceApart) {
  const auto leader = [](const std::string& key) {
    const MpiResolver resolver(
        environment(open_mpi({{"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                              {"PMIX_NAMESPACE", "2987130881"},
                              {"OMPI_MCA_orte_precondition_transports", key}})));
    return *resolver.leader();
  };
  EXPECT_EQ(leader("1163c5a8d4644eb2-09c9a53811d31e24"),
            leader("1163c5a8d4644eb2-09c9a53811d31e24"));
  EXPECT_NE(leader("1163c5a8d4644eb2-09c9a53811d31e24"),
            leader("5d07f1a3c22be981-64b0ef5a91d8c703"));
}

TEST(MpiResolver, ReadsPmi) {
  const MpiResolver resolver(environment(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}));
  EXPECT_EQ(resolver.launcher(), "PMI");
  EXPECT_EQ(resolver.world().rank, 1);
  EXPECT_EQ(resolver.world().size, 2);
  EXPECT_EQ(resolver.leader()->text(), "127.0.0.1:29500");
}

TEST(MpiResolver, PmixNeedsTheSize) {
  EXPECT_EQ(MpiResolver(environment({{"PMIX_RANK", "1"}, {"WORLD_SIZE", "3"}})).world().size, 3);
  EXPECT_THAT(refusal([] {
                MpiResolver(environment({{"PMIX_RANK", "1"}}));
              }),
              HasSubstr("WORLD_SIZE"));
}

TEST(PmixHost, NeedsALauncher) {
  EXPECT_THAT(refusal([] { pmix_host(0); }),
              AllOf(HasSubstr("UNAVAILABLE: "), HasSubstr("PMIX_NAMESPACE is not set")));
}

TEST(MpiResolver, NeedsOneOfTheFamilies) {
  EXPECT_THAT(refusal([] { MpiResolver(environment({})); }), HasSubstr("OMPI_COMM_WORLD_RANK"));
}

}  // namespace
}  // namespace cohort
