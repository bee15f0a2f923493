#include "strategies/cluster/resolve_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::environment;
using cohort::testing::Variables;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What each launcher sets, from the first that counts to the last.
const std::vector<std::pair<std::string, Variables>>& launchers() {
  static const std::vector<std::pair<std::string, Variables>> all = {
      {"TF_CONFIG", {{"TF_CONFIG", "{}"}}},
      {"torchrun",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}},
      {"Open MPI", {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}},
      {"PMI", {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}},
      {"Slurm",
       {{"SLURM_PROCID", "0"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"SLURM_STEP_NODELIST", "a,b"},
        {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}}},
      {"Kubernetes",
       {{"JOB_COMPLETION_INDEX", "0"},
        {"HOSTNAME", "j-0"},
        {"COHORT_KUBERNETES_SERVICE", "s"},
        {"COHORT_KUBERNETES_PODS", "2"}}},
  };
  return all;
}

TEST(ResolveCluster, FindsEachLauncher) {
  for (const auto& [launcher, variables] : launchers()) {
    const auto cluster = resolve_cluster(environment(variables));
    EXPECT_EQ(cluster.resolver->launcher(), launcher);
    EXPECT_THAT(cluster.reason, HasSubstr("is set")) << launcher;
  }
  EXPECT_EQ(
      resolve_cluster(environment({{"PMIX_RANK", "0"}, {"WORLD_SIZE", "2"}})).resolver->launcher(),
      "PMIx");
}

TEST(ResolveCluster, AnEarlierOneComesFirstAndTheReasonNamesTheOther) {
  const auto& all = launchers();
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i + 1; j < all.size(); ++j) {
      Variables variables = all[i].second;
      variables.insert(all[j].second.begin(), all[j].second.end());
      const auto cluster = resolve_cluster(environment(variables));
      EXPECT_EQ(cluster.resolver->launcher(), all[i].first);
      EXPECT_THAT(cluster.reason, AllOf(HasSubstr("comes before"), HasSubstr(all[j].first)));
    }
  }
}

TEST(ResolveCluster, APmiThatIsSlurmsOwnLeavesTheStepToSlurm) {
  Variables variables = launchers()[4].second;
  variables.insert({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMIX_RANK", "0"}});
  EXPECT_EQ(resolve_cluster(environment(variables)).resolver->launcher(), "Slurm");
}

TEST(ResolveCluster, NothingIsAProgramOnItsOwn) {
  const auto cluster = resolve_cluster(environment({{"PATH", "/bin"}}));
  EXPECT_EQ(cluster.resolver->launcher(), "literal");
  EXPECT_TRUE(cluster.resolver->cluster_spec().empty());
  EXPECT_EQ(cluster.resolver->world().size, 1);
}

TEST(ResolveCluster, OutsideAStepTheHintAndTheReasonSayWhatIsMissing) {
  const auto expect = [](const Variables& variables, const std::string& what) {
    const auto cluster = resolve_cluster(environment(variables));
    EXPECT_EQ(cluster.resolver->world().size, 1);
    EXPECT_THAT(cluster.hint, HasSubstr(what));
    EXPECT_THAT(cluster.reason, HasSubstr("; " + cluster.hint));
  };
  for (const char* number : {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_JOB_NUM_NODES"})
    expect({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {number, "4"}}, "srun");
  expect({{"JOB_COMPLETION_INDEX", "0"}, {"COHORT_KUBERNETES_SERVCE", "s"}},
         "COHORT_KUBERNETES_SERVICE");
  expect({{"RANK", "0"}, {"MASTER_ADDR", "a"}}, "RANK is set, which needs WORLD_SIZE");
  expect({{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set, which needs RANK");
  expect({{"OMPI_COMM_WORLD_SIZE", "2"}}, "_SIZE is set, which needs OMPI_COMM_WORLD_RANK");
  expect({{"PMI_SIZE", "2"}}, "PMI_SIZE is set, which needs PMI_RANK");
  for (const std::string name : {"COHORT_KUBERNETES_SERVICE", "COHORT_KUBERNETES_PODS"})
    expect({{name, "2"}, {"HOSTNAME", "train-x7k2p"}},
           name + " is set, and JOB_COMPLETION_INDEX is not");
}

TEST(ResolveCluster, AProgramThatIsMeantToBeOnItsOwnGetsNoHint) {
  for (const Variables& variables :
       {Variables{{"PATH", "/bin"}},
        Variables{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_NUM_NODES", "1"}},
        Variables{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"TF_CONFIG", "{}"}},
        Variables{{"JOB_COMPLETION_INDEX", "0"}, {"TF_CONFIG", "{}"}},
        Variables{{"COHORT_KUBERNETES_SERVICE", "s"}, {"TF_CONFIG", "{}"}}})
    EXPECT_EQ(resolve_cluster(environment(variables)).hint, "");
}

constexpr const char* kOneWorker = R"({"cluster": {"worker": ["a:1"]}})";

// The variables of one task that are left in the environment, and those that are beside them.
Variables left_alone(Variables variables) {
  variables.insert(
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}});
  return variables;
}

TEST(ResolveCluster, AClusterOfOneThatSilencesALauncherOfSeveralIsTold) {
  const auto expect = [](const Variables& variables, const std::string& who) {
    const auto cluster = resolve_cluster(environment(variables));
    EXPECT_EQ(cluster.resolver->world().size, 1);
    EXPECT_THAT(cluster.hint, HasSubstr("one task by " + who + ": unset the former"));
    EXPECT_THAT(cluster.reason, HasSubstr("; " + cluster.hint));
  };
  const std::string torchrun = "RANK and WORLD_SIZE=1, which comes before ";
  const std::string open_mpi = "OMPI_COMM_WORLD_SIZE=2 of Open MPI";
  for (size_t i = 2; i < 5; ++i) {
    const auto& [launcher, variables] = launchers()[i];
    const auto hint = resolve_cluster(environment(left_alone(variables))).hint;
    EXPECT_THAT(hint, AllOf(HasSubstr("one task by " + torchrun), HasSubstr(" of " + launcher)));
  }
  Variables mpirun = launchers()[2].second;
  expect(left_alone(mpirun), torchrun + open_mpi);
  mpirun["TF_CONFIG"] = kOneWorker;
  expect(mpirun, "TF_CONFIG, which comes before " + open_mpi);
  expect(left_alone(mpirun), "TF_CONFIG, " + torchrun + open_mpi);  // cohort-run mpirun
  Variables torchrun_of_two = launchers()[1].second;
  torchrun_of_two["TF_CONFIG"] = kOneWorker;
  expect(torchrun_of_two, "TF_CONFIG, which comes before WORLD_SIZE=2 of torchrun");
}

TEST(ResolveCluster, AClusterOfOneThatIsRightGetsNoHint) {
  Variables mpirun_of_one{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}};
  Variables on_its_own = launchers()[2].second, with_a_server = on_its_own, evaluator = on_its_own;
  on_its_own["TF_CONFIG"] = "{}";
  with_a_server["TF_CONFIG"] = R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]},
                                   "task": {"type": "worker", "index": 0}})";
  evaluator["TF_CONFIG"] = R"({"cluster": {"evaluator": ["a:1"]},
                               "task": {"type": "evaluator", "index": 0}})";
  Variables daemons_of_mpirun = launchers()[4].second;  // of which mpirun starts one by srun
  daemons_of_mpirun.insert(mpirun_of_one.begin(), mpirun_of_one.end());
  Variables pod = launchers()[5].second;
  pod["TF_CONFIG"] = kOneWorker;
  for (const Variables& variables : {left_alone({}), mpirun_of_one, left_alone(mpirun_of_one),
                                     on_its_own, left_alone(on_its_own), with_a_server, evaluator,
                                     daemons_of_mpirun, left_alone(daemons_of_mpirun), pod,
                                     Variables{{"SLURM_PROCID", "0"},
                                               {"SLURM_STEP_NUM_TASKS", "1"},
                                               {"SLURM_STEP_NODELIST", "a"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                               {"SLURM_NTASKS", "4"},
                                               {"PMIX_RANK", "0"},
                                               {"WORLD_SIZE", "2"}}})
    EXPECT_EQ(resolve_cluster(environment(variables)).hint, "");
}

// A task of two, by variables that torchrun, a script or somebody before has set.
Variables ranked(const std::string& rank, Variables more) {
  more.insert({{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  return more;
}
Variables mpirun(const std::string& rank, const std::string& size) {
  return {{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", size}};
}
Variables srun(const std::string& rank, const std::string& size) {
  return {{"SLURM_PROCID", rank},
          {"SLURM_STEP_NUM_TASKS", size},
          {"SLURM_STEP_NODELIST", "a"},
          {"SLURM_STEP_TASKS_PER_NODE", size}};
}

TEST(ResolveCluster, ARankThatIsLeftInAJobOfTheSameSizeIsAnError) {
  const auto message = [](const Variables& variables) {
    return cohort::testing::refusal([&] { resolve_cluster(environment(variables)); });
  };
  EXPECT_EQ(message(ranked("0", mpirun("1", "2"))),
            "this is another task by RANK=0 and WORLD_SIZE=2, which comes before "
            "OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=2 of Open MPI: unset the former, or "
            "give the strategy the resolver of Open MPI (docs/cluster.md, Which launcher counts); "
            "where the former is right, that of torchrun");
  EXPECT_THAT(message(ranked("1", mpirun("0", "2"))), HasSubstr("OMPI_COMM_WORLD_RANK=0"));
  EXPECT_THAT(message(ranked("0", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})), HasSubstr("of PMI:"));
  EXPECT_THAT(message(ranked("0", srun("1", "2"))), HasSubstr("SLURM_PROCID=1"));
}

TEST(ResolveCluster, RanksThatMayDifferAreNone) {
  const auto with = [](Variables variables, const Variables& more) {
    variables.insert(more.begin(), more.end());
    return variables;
  };
  const Variables of_torchrun = {{"TORCHELASTIC_RUN_ID", "x"}};
  for (const Variables& variables :
       {ranked("0", mpirun("0", "2")), ranked("1", srun("1", "2")),  // RANK=$SLURM_PROCID
        ranked("0", with(of_torchrun, srun("1", "2"))),       // one on each host, of one process
        ranked("0", with(of_torchrun, mpirun("1", "2"))),     //
        ranked("1", srun("0", "1")),                          // two processes of a script's own
        ranked("0", with(mpirun("0", "2"), srun("1", "2"))),  // mpirun's daemons
        ranked("0", {{"PMIX_RANK", "1"}}),                    // has no size of its own
        ranked("0", {{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "2"}})})
    EXPECT_EQ(resolve_cluster(environment(variables)).resolver->launcher(), "torchrun");
  EXPECT_EQ(
      resolve_cluster(environment(with(mpirun("0", "2"), srun("1", "2")))).resolver->launcher(),
      "Open MPI");
  // It says where each task is.
  Variables placed = mpirun("1", "2");
  placed["TF_CONFIG"] =
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})";
  EXPECT_EQ(resolve_cluster(environment(placed)).resolver->launcher(), "TF_CONFIG");
}

TEST(ResolveCluster, AMistakeIsNotPassedOver) {
  Variables variables = launchers()[4].second;
  variables["TF_CONFIG"] = "{";
  EXPECT_THAT(cohort::testing::refusal([&] { resolve_cluster(environment(variables)); }),
              HasSubstr("TF_CONFIG"));
}

}  // namespace
}  // namespace cohort
