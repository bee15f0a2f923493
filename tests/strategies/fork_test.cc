// The end of what has threads and connections in a fork, which has none of them.
#include <functional>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "strategies/central_storage_strategy.h"
#include "strategies/mirrored_strategy.h"
#include "strategies/multi_worker_mirrored_strategy.h"
#include "strategies/one_device_strategy.h"
#include "strategies/parameter_server_strategy.h"
#include "strategies/process_group.h"

namespace cohort {
namespace {

double sum_over_replicas(Strategy& strategy) {
  const auto step = strategy.function(
      [](Value x) { return get_replica_context()->all_reduce(ReduceOp::kSum, x); });
  return strategy.run(step, 1.0F)[0].item();
}

// A fork ends at once what this process goes on with.
template <typename Owned>
void expect_ends_in_fork(std::unique_ptr<Owned> owned, const std::function<double(Owned&)>& use) {
  const double before = use(*owned);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    owned.reset();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(use(*owned), before);
}

class ForkTest : public ::testing::Test {
 protected:
  ForkTest() { set_logical_cpus(2, 1); }
};

TEST_F(ForkTest, EndsEveryStrategyAtOnce) {
  const std::function<std::unique_ptr<Strategy>()> makers[] = {
      [] { return OneDeviceStrategy(); },
      [] { return std::make_unique<MirroredStrategy>(); },
      [] { return std::make_unique<CentralStorageStrategy>(); },
      [] { return std::make_unique<MultiWorkerMirroredStrategy>(); },
      [] {
        return std::make_unique<ParameterServerStrategy>(
            ParameterServerStrategy::Options{.max_staleness = 1});
      },
  };
  for (const auto& make : makers) {
    auto strategy = make();
    SCOPED_TRACE(strategy->name());
    expect_ends_in_fork<Strategy>(std::move(strategy), sum_over_replicas);
  }
}

TEST_F(ForkTest, EndsAGroupOfRanksAtOnce) {
  expect_ends_in_fork<collective::ProcessGroup>(
      std::make_unique<collective::ProcessGroup>(), [](collective::ProcessGroup& group) {
        return collective::all_reduce(group, Tensor::scalar(1.0F)).item();
      });
}

}  // namespace
}  // namespace cohort
