// Strategies that a program makes one after another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/multi_worker_mirrored_strategy.h"
#include "tests/strategies/cluster/coordination/job.h"

namespace cohort::testing {
namespace {

using ::testing::Each;

TEST(SuccessiveStrategiesTest, StartWhileVariablesOfThoseBeforeLive) {
  const LocalJob job(2);
  const auto errors = on_threads(job.size(), [&](int rank) {
    std::vector<std::shared_ptr<Variable>> kept;
    for (int number = 0; number < 3; ++number) {
      MultiWorkerMirroredStrategy strategy(
          {.resolver = std::make_shared<LiteralResolver>(job.resolver(rank)),
           .devices = {"cpu:0"}});
      const auto scope = strategy.scope();
      kept.push_back(create_variable({.name = "v",
                                      .spec = {DType::kFloat32, {}},
                                      .initial_value = [] { return Tensor::scalar(1.0f); }}));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace cohort::testing
