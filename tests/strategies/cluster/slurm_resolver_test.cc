#include "strategies/cluster/slurm_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::environment;
using cohort::testing::refusal;
using cohort::testing::Variables;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A step of `tasks` tasks without GPUs; `more` is added or replaces.
Variables step(const std::string& nodes, const std::string& counts, int tasks, int rank,
               Variables more = {}) {
  more.insert({{"SLURM_PROCID", std::to_string(rank)},
               {"SLURM_STEP_NUM_TASKS", std::to_string(tasks)},
               {"SLURM_STEP_NODELIST", nodes},
               {"SLURM_STEP_TASKS_PER_NODE", counts},
               {"CUDA_VISIBLE_DEVICES", ""}});
  return more;
}

SlurmResolver resolve(const Variables& variables, const SlurmResolverOptions& options = {}) {
  return SlurmResolver(options, environment(variables));
}

std::string workers(const ClusterResolver& resolver, const std::string& job = "worker") {
  std::string out;
  for (const int id : resolver.cluster_spec().task_ids(job)) {
    out += (out.empty() ? "" : " ") + resolver.cluster_spec().address(job, id).text();
  }
  return out;
}

TEST(SlurmResolver, ATaskPerHost) {
  const auto resolver =
      resolve(step("t02n13,t02n41,t02n43", "1(x3)", 3, 2, {{"CUDA_VISIBLE_DEVICES", "0"}}));
  EXPECT_EQ(workers(resolver), "t02n13:8888 t02n41:8888 t02n43:8888");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 2);
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  EXPECT_EQ(resolver.master(), "grpc://t02n43:8888");
  EXPECT_EQ(resolver.world().rank, 2);
  EXPECT_EQ(resolver.world().size, 3);
  EXPECT_EQ(resolver.leader()->text(), "t02n13:8888");
  EXPECT_EQ(resolver.num_accelerators(), 1);
}

TEST(SlurmResolver, KnowsHowManyTasksShareTheHost) {
  EXPECT_EQ(resolve(step("a,b,a", "2,1,1", 4, 0)).tasks_on_host(), 3);
  EXPECT_EQ(resolve(step("a,b,a", "2,1,1", 4, 2)).tasks_on_host(), 1);
}

TEST(SlurmResolver, JobsShareHosts) {
  const SlurmResolverOptions options{
      .jobs = {{"ps", 1}, {"worker", 4}}, .gpus_per_node = 2, .gpus_per_task = 1};
  const auto resolver = resolve(
      step("t02n13,t02n41,t02n43", "2(x2),1", 5, 1, {{"CUDA_VISIBLE_DEVICES", "0,1"}}), options);
  EXPECT_EQ(workers(resolver, "ps"), "t02n13:8888");
  EXPECT_EQ(workers(resolver), "t02n13:8889 t02n41:8888 t02n41:8889 t02n43:8888");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 0);
  EXPECT_THAT(*resolver.gpus(), ElementsAre("1"));
}

TEST(SlurmResolver, EachTaskHasItsShareOfTheGpus) {
  const auto gpus = [](int rank, const std::string& visible, const SlurmResolverOptions& options) {
    return *resolve(step("a,b", "2,1", 3, rank, {{"CUDA_VISIBLE_DEVICES", visible}}), options)
                .gpus();
  };
  EXPECT_THAT(gpus(1, "0,1,2,3", {.gpus_per_node = 4, .gpus_per_task = 2}), ElementsAre("2", "3"));
  EXPECT_THAT(gpus(1, "0,1,2,3", {}), ElementsAre("2", "3"));
  EXPECT_THAT(gpus(2, "0,1,2,3", {}), ElementsAre("0", "1"));
  EXPECT_THAT(gpus(1, "4,5", {}), ElementsAre("5"));
  EXPECT_THAT(gpus(0, "GPU-aa,GPU-bb", {}), ElementsAre("GPU-aa"));
  EXPECT_THAT(gpus(1, "", {}), ElementsAre());
  EXPECT_THAT(gpus(1, "NoDevFiles", {}), ElementsAre());
  EXPECT_THAT(gpus(2, "0,-1,1", {}), ElementsAre("0"));
  EXPECT_THAT(gpus(1, "0,1", {.gpus_per_task = 0}), ElementsAre());
}

TEST(SlurmResolver, OfFewerGpusThanTasksEachHasOneThatItShares) {
  const auto gpus = [](int rank, const std::string& visible, const SlurmResolverOptions& options) {
    return *resolve(step("a,b", "3,2", 5, rank, {{"CUDA_VISIBLE_DEVICES", visible}}), options)
                .gpus();
  };
  const std::string expected[] = {"0", "0", "1", "0", "1"};
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_THAT(gpus(rank, "0,1", {}), ElementsAre(expected[rank])) << rank;
    EXPECT_THAT(gpus(rank, "7", {}), ElementsAre("7")) << rank;
    EXPECT_THAT(gpus(rank, "0,1", {.gpus_per_task = 0}), ElementsAre()) << rank;
  }
  auto counted = step("a", "3", 3, 2, {{"SLURM_GPUS_ON_NODE", "2"}});
  counted.erase("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(*resolve(counted).gpus(), ElementsAre("1"));
}

TEST(SlurmResolver, AHostThatIsListedTwiceSharesItsGpusAmongTheTasksOfBoth) {
  const std::string expected[] = {"4", "4", "5"};
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(*resolve(step("a,b,a", "1(x3)", 3, rank, {{"CUDA_VISIBLE_DEVICES", "4,5"}})).gpus(),
                ElementsAre(expected[rank]))
        << rank;
  }
}

TEST(SlurmResolver, TheListOfGpusEndsWhereCudaEndsIt) {
  const auto gpus = [](const std::string& visible) {
    return *resolve(step("a", "1", 1, 0, {{"CUDA_VISIBLE_DEVICES", visible}})).gpus();
  };
  for (const char* none : {"", " ", ",", "none", "NoDevFiles", "-1", "-1,0", "all", ",0"})
    EXPECT_THAT(gpus(none), ElementsAre()) << none;
  EXPECT_THAT(gpus("0,1,-1,2"), ElementsAre("0", "1"));
  EXPECT_THAT(gpus("2, 10 ,none,3"), ElementsAre("2", "10"));
  EXPECT_THAT(gpus("MIG-a, GPU-b"), ElementsAre("MIG-a", "GPU-b"));
}

TEST(SlurmResolver, GpusThatSlurmHasDividedAreNotDividedAgain) {
  const auto gpus = [](const std::string& name, const std::string& value) {
    return *resolve(step("a", "2", 2, 1, {{"CUDA_VISIBLE_DEVICES", "2,3"}, {name, value}})).gpus();
  };
  EXPECT_THAT(gpus("SLURM_GPUS_PER_TASK", "2"), ElementsAre("2", "3"));
  for (const char* binding : {"single:1", "per_task:2", "map_gpu:0,1", "verbose,mask_gpu:3,c"})
    EXPECT_THAT(gpus("SLURM_GPU_BIND", binding), ElementsAre("2", "3")) << binding;
  for (const char* binding : {"none", "closest", "verbose,closest"})
    EXPECT_THAT(gpus("SLURM_GPU_BIND", binding), ElementsAre("3")) << binding;
}

TEST(SlurmResolver, SlurmsCountOfGpusWhereCudaSaysNothing) {
  auto variables = step("a", "2", 2, 1, {{"SLURM_GPUS_ON_NODE", "4"}});
  variables.erase("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(*resolve(variables).gpus(), ElementsAre("2", "3"));
}

TEST(SlurmResolver, MoreGpusThanThereAreIsAnError) {
  EXPECT_THAT(
      refusal([] { resolve(step("a", "3", 3, 0), {.gpus_per_node = 5, .gpus_per_task = 2}); }),
      HasSubstr("gpus_per_task: found 2 for each of 3 tasks of a host; expected at most the 5 of "
                "the program's GPUs per node in all, as in gpus_per_task = 1"));
}

TEST(SlurmResolver, ACountOfGpusThatIsNoneIsAnError) {
  for (const char* count : {"two", "-1", "4097", "gpu:2"}) {
    auto variables = step("a", "1", 1, 0, {{"SLURM_GPUS_ON_NODE", count}});
    variables.erase("CUDA_VISIBLE_DEVICES");
    EXPECT_THAT(
        refusal([&] { resolve(variables); }),
        HasSubstr(str("SLURM_GPUS_ON_NODE: found \"", count,
                      "\"; expected an integer from 0 to 4096, as in ", "SLURM_GPUS_ON_NODE=8")));
  }
}

TEST(SlurmResolver, RanksFollowTheListAndNotTheAlphabet) {
  for (int rank = 0; rank < 12; ++rank) {
    const auto resolver = resolve(step("n[1-12]", "1(x12)", 12, rank));
    EXPECT_EQ(resolver.master(), str("grpc://n", rank + 1, ":8888"));
  }
  EXPECT_EQ(workers(resolve(step("n10,n2", "1,2", 3, 0))), "n10:8888 n2:8888 n2:8889");
}

TEST(SlurmResolver, AHostThatIsListedTwiceHasTheTasksOfBoth) {
  EXPECT_EQ(workers(resolve(step("a,b,a", "2,1,1", 4, 0))), "a:8888 a:8889 b:8888 a:8890");
}

TEST(SlurmResolver, Distributions) {
  const auto laid_out = [](const std::string& distribution) {
    return workers(resolve(step("a,b,c", "3,2,1", 6, 0, {{"SLURM_DISTRIBUTION", distribution}})));
  };
  EXPECT_EQ(laid_out("block"), "a:8888 a:8889 a:8890 b:8888 b:8889 c:8888");
  EXPECT_EQ(laid_out("block:cyclic"), laid_out("block"));
  EXPECT_EQ(laid_out("cyclic"), "a:8888 b:8888 c:8888 a:8889 b:8889 a:8890");
  EXPECT_EQ(laid_out("cyclic:block,Pack"), laid_out("cyclic"));
  EXPECT_EQ(laid_out("plane=2"), "a:8888 a:8889 b:8888 b:8889 c:8888 a:8890");
  EXPECT_THAT(refusal([&] { laid_out("arbitrary"); }), HasSubstr("SLURM_DISTRIBUTION"));
  EXPECT_THAT(refusal([&] { laid_out("plane"); }), HasSubstr("SLURM_DIST_PLANESIZE"));
  EXPECT_THAT(refusal([&] { laid_out("plane=0"); }), HasSubstr("SLURM_DISTRIBUTION"));
}

TEST(SlurmResolver, TheSizeOfAPlaneMayStandOnItsOwn) {
  EXPECT_EQ(
      workers(resolve(step("a,b,c", "3,2,1", 6, 0,
                           {{"SLURM_DISTRIBUTION", "plane"}, {"SLURM_DIST_PLANESIZE", "2"}}))),
      "a:8888 a:8889 b:8888 b:8889 c:8888 a:8890");
}

// srun tells how the last component is dealt out, here one task on one host.
TEST(SlurmResolver, TheComponentsOfAHeterogeneousStepFollowEachOther) {
  EXPECT_EQ(workers(resolve(step("a,b,c", "2,1(x2)", 4, 0,
                                 {{"SLURM_DISTRIBUTION", "cyclic"}, {"SLURM_HET_SIZE", "2"}}))),
            "a:8888 a:8889 b:8888 c:8888");
}

TEST(SlurmResolver, ThePlaceThatSlurmTellsMustAgree) {
  EXPECT_NO_THROW(
      resolve(step("a,b", "2(x2)", 4, 3, {{"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "1"}})));
  EXPECT_THAT(refusal([] {
                resolve(step("a,b", "2(x2)", 4, 1, {{"SLURM_NODEID", "1"}}));
              }),
              AllOf(HasSubstr("SLURM_NODEID: found 1"), HasSubstr("expected 0")));
  EXPECT_THAT(refusal([] {
                resolve(step("a,b", "2(x2)", 4, 1, {{"SLURM_LOCALID", "0"}}));
              }),
              HasSubstr("SLURM_LOCALID: found 0"));
}

TEST(SlurmResolver, StepsThatShareAHostHaveOtherPorts) {
  const auto first_port = [](const std::string& job, const std::string& step_id) {
    const auto resolver =
        resolve(step("a", "2", 2, 0, {{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step_id}}));
    const int port = resolver.cluster_spec().address("worker", 0).port();
    EXPECT_EQ(resolver.cluster_spec().address("worker", 1).port(), port + 1);
    EXPECT_GE(port, 10000);
    EXPECT_LT(port, 30000);
    return port;
  };
  EXPECT_EQ(first_port("70", "0"), first_port("70", "0"));
  EXPECT_NE(first_port("70", "0"), first_port("71", "0"));                  // the tasks of an array
  EXPECT_NE(first_port("4160749569", "0"), first_port("4160749570", "0"));  // of a federation
  EXPECT_NE(first_port("70", "0"), first_port("70", "1"));
}

TEST(SlurmResolver, APortGivenByTheProgramCounts) {
  EXPECT_EQ(workers(resolve(step("a", "2", 2, 0, {{"SLURM_JOB_ID", "5"}}), {.port_base = 4000})),
            "a:4000 a:4001");
}

TEST(SlurmResolver, MasterPortIsTheFirstPortUnlessTheProgramSaysAnother) {
  const auto variables = [](const std::string& port) {
    return step("a,b", "2,1", 3, 0, {{"SLURM_JOB_ID", "5"}, {"MASTER_PORT", port}});
  };
  const auto resolver = resolve(variables("31111"));
  EXPECT_EQ(workers(resolver), "a:31111 a:31112 b:31111");
  EXPECT_EQ(resolver.facts()[0].source, "SLURM_STEP_NODELIST column 1, MASTER_PORT");
  EXPECT_EQ(workers(resolve(variables("31111"), {.port_base = 4000})), "a:4000 a:4001 b:4000");
  for (const char* port : {"", "0", "65536", "29500x"})
    EXPECT_THAT(refusal([&] { resolve(variables(port)); }), HasSubstr("MASTER_PORT: found"))
        << port;
  EXPECT_THAT(refusal([&] { resolve(variables("65535")); }), HasSubstr("MASTER_PORT"));
}

TEST(SlurmResolver, RankZeroWarnsOnceOfAMasterThatIsNotTheFirstHost) {
  const auto warnings = [](const std::string& master, int rank) {
    ::testing::internal::CaptureStderr();
    resolve(step("n01,n02", "1(x2)", 2, rank, {{"MASTER_ADDR", master}}));
    return ::testing::internal::GetCapturedStderr();
  };
  for (const char* same : {"", "n01", "n01.cluster.example"}) EXPECT_EQ(warnings(same, 0), "");
  EXPECT_EQ(warnings("n02", 1), "");
  EXPECT_EQ(warnings("n02", 0),
            "warning: MASTER_ADDR=n02 has no effect in a Slurm step: rank 0 is at n01, the first "
            "host of SLURM_STEP_NODELIST\n");
  EXPECT_EQ(warnings("n02", 0), "");
}

TEST(SlurmResolver, JobsMustAddUp) {
  EXPECT_THAT(refusal([] {
                resolve(step("a,b", "1(x2)", 2, 0), {.jobs = {{"ps", 1}, {"worker", 2}}});
              }),
              AllOf(HasSubstr("3 tasks in all"), HasSubstr("the 2 that were started")));
}

TEST(SlurmResolver, ThatThereAreMoreHostsThanTasksNamesBothVariables) {
  EXPECT_THAT(
      refusal([] { resolve(step("n[1-4]", "1(x2)", 2, 0)); }),
      AllOf(HasSubstr("SLURM_STEP_NODELIST="),
            HasSubstr("found more than 2 hosts; expected at most 2 (SLURM_STEP_NUM_TASKS)")));
  EXPECT_THAT(refusal([] { resolve(step("n[1-4]", "1(x4)", 2, 0)); }),
              AllOf(HasSubstr("SLURM_STEP_TASKS_PER_NODE="),
                    HasSubstr("1 to 2 hosts in all (SLURM_STEP_NUM_TASKS)")));
}

TEST(SlurmResolver, EveryVariableOfAStepIsNeeded) {
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST",
                           "SLURM_STEP_TASKS_PER_NODE"}) {
    auto variables = step("a,b", "1(x2)", 2, 0);
    variables.erase(name);
    EXPECT_THAT(refusal([&] { resolve(variables); }), HasSubstr(name));
  }
}

TEST(SlurmResolver, FactsNameVariableAndColumn) {
  const auto resolver = resolve(step("a,b[1-2]", "1(x3)", 3, 1));
  EXPECT_EQ(resolver.facts()[2].name, "worker:2");
  EXPECT_EQ(resolver.facts()[2].value, "b2:8888");
  EXPECT_EQ(resolver.facts()[2].source, "SLURM_STEP_NODELIST column 3, port 8888");
}

TEST(SlurmResolver, TenThousandTasks) {
  const auto resolver = resolve(step("n[0000-2499]", "4(x2500)", 10000, 9999));
  EXPECT_EQ(resolver.master(), "grpc://n2499:8891");
}

}  // namespace
}  // namespace cohort
