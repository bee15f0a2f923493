// Groups of variables whose updates are made on servers.
#include "core/ops/math_ops.h"
#include "tests/strategies/parameter_server/job.h"

namespace cohort::testing {
namespace {

TEST(VariableGroups, MoveShardsByTheirRateAndDecay) {
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(2)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto kernel = counting("kernel", {4}), bias = counting("bias", {4});
  const auto sgd = optim::SGD(
      0.5,
      {.weight_decay = {.factor = 0.5},
       .groups = {{.variables = {"bias"}, .learning_rate_multiplier = 0.5, .weight_decay = 0}}});
  const auto step = strategy->function([&] {
    sgd.minimize(ops::reduce_sum(kernel->read() + bias->read()), {kernel, bias});
  });
  strategy->run(step);
  EXPECT_EQ(values_of(kernel->value()), (std::vector<float>{-0.5, 0.25, 1, 1.75}));
  EXPECT_EQ(values_of(bias->value()), (std::vector<float>{-0.25, 0.75, 1.75, 2.75}));
}

}  // namespace
}  // namespace cohort::testing
