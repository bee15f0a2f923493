#include "strategies/multi_worker/own_gpus.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device/simulated/simulated_gpus.h"
#include "strategies/cluster/slurm_resolver.h"
#include "strategies/cluster/torchrun_resolver.h"
#include "strategies/multi_worker_mirrored_strategy.h"
#include "tests/strategies/cluster/testing.h"

namespace cohort::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What a launcher says of this task.
class Launcher final : public ClusterResolver {
 public:
  explicit Launcher(ClusterFacts facts) : ClusterResolver(std::move(facts)) {}
};

ClusterFacts with_gpus(std::vector<std::string> ids) {
  ClusterFacts facts{.launcher = "test"};
  facts.gpus = std::move(ids);
  return facts;
}

// The numbers of a task's GPUs among `count`.
std::vector<int> numbers(const ClusterResolver& resolver, int count,
                         const Variables& variables = {}) {
  std::vector<int> numbers;
  for (const Device gpu : own_gpus(resolver, count, environment(variables))) {
    EXPECT_EQ(gpu.type, DeviceType::kGpu);
    numbers.push_back(gpu.index);
  }
  return numbers;
}

Variables torchrun(int local_rank, int local_size) {
  return {{"RANK", std::to_string(local_rank)},
          {"WORLD_SIZE", std::to_string(2 * local_size)},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(local_size)},
          {"MASTER_ADDR", "10.0.0.1"},
          {"MASTER_PORT", "29500"}};
}

std::vector<int> numbers_under_torchrun(int local_rank, int local_size, int count) {
  return numbers(TorchrunResolver(environment(torchrun(local_rank, local_size))), count);
}

TEST(OwnGpus, AreAllWhereNobodySaysWhichOrHowManyTasksThereAre) {
  EXPECT_THAT(numbers(Launcher({}), 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers(Launcher({}), 0), IsEmpty());
}

TEST(OwnGpus, AreThoseOfTheLauncher) {
  EXPECT_THAT(numbers(Launcher(with_gpus({"1", "3"})), 4), ElementsAre(1, 3));
  EXPECT_THAT(numbers(Launcher(with_gpus({})), 4), IsEmpty());
  EXPECT_THAT(numbers(Launcher(with_gpus({"5"})), 0), IsEmpty()) << "as in a build without CUDA";
}

TEST(OwnGpus, AreNumberedAsTheProcessSeesThem) {
  EXPECT_THAT(
      numbers(Launcher(with_gpus({"GPU-b", "7"})), 3, {{"CUDA_VISIBLE_DEVICES", "7,GPU-a,GPU-b"}}),
      ElementsAre(2, 0));
}

TEST(OwnGpus, OfTheLauncherThatTheProcessDoesNotHaveAreNamed) {
  EXPECT_THAT(refusal([] { numbers(Launcher(with_gpus({"4"})), 4); }), HasSubstr("\"4\""));
  EXPECT_THAT(refusal([] {
                numbers(Launcher(with_gpus({"1"})), 2, {{"CUDA_VISIBLE_DEVICES", "4,5"}});
              }),
              HasSubstr("found \"1\"; expected one of the 2 of CUDA_VISIBLE_DEVICES=\"4,5\""));
}

TEST(OwnGpus, AreSharedOutAmongTheTasksOfAHost) {
  EXPECT_THAT(numbers_under_torchrun(0, 2, 4), ElementsAre(0, 1));
  EXPECT_THAT(numbers_under_torchrun(1, 2, 4), ElementsAre(2, 3));
  EXPECT_THAT(numbers_under_torchrun(1, 2, 5), ElementsAre(2, 3)) << "all need equally many";
  EXPECT_THAT(numbers_under_torchrun(0, 1, 2), ElementsAre(0, 1));
}

TEST(OwnGpus, AreSharedByTasksWhereThereAreTooFew) {
  for (const int task : {0, 1, 2})
    EXPECT_THAT(numbers_under_torchrun(task, 3, 1), ElementsAre(0)) << task;
  EXPECT_THAT(numbers_under_torchrun(0, 3, 2), ElementsAre(0));
  EXPECT_THAT(numbers_under_torchrun(2, 3, 2), ElementsAre(1));
}

// cohort-run sets these beside TF_CONFIG.
TEST(OwnGpus, FollowTheLocalRankBesideALauncherThatTellsAddresses) {
  EXPECT_THAT(numbers(Launcher({}), 4, {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}}),
              ElementsAre(1));
  EXPECT_THAT(numbers(Launcher({}), 2, {{"LOCAL_RANK", "1"}}), ElementsAre(0, 1));
}

TEST(OwnGpus, OfASlurmStepAreDividedOnce) {
  Variables variables = {{"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_STEP_NODELIST", "n1"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2"},
                         {"CUDA_VISIBLE_DEVICES", "0,1"}};
  for (const int rank : {0, 1}) {
    variables["SLURM_PROCID"] = std::to_string(rank);
    EXPECT_THAT(numbers(SlurmResolver({}, environment(variables)), 2, variables),
                ElementsAre(rank));
  }
}

TEST(OwnGpus, AreTheDevicesOfAStrategyThatNamesNone) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  simulated::use_simulated_gpus(4);
  const auto devices = [](ClusterFacts facts, std::vector<std::string> names = {}) {
    return MultiWorkerMirroredStrategy({.resolver = std::make_shared<Launcher>(std::move(facts)),
                                        .devices = std::move(names)})
        .devices();
  };
  const auto gpu = [](int index) { return Device{DeviceType::kGpu, index}; };
  EXPECT_THAT(devices(with_gpus({"3"})), ElementsAre(gpu(3)));
  EXPECT_THAT(devices(with_gpus({})), ElementsAre(Device{}));
  EXPECT_THAT(devices(with_gpus({"1"}), {"gpu:2"}), ElementsAre(gpu(2)));
}

}  // namespace
}  // namespace cohort::testing
