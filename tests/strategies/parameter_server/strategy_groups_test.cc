// Groups of variables whose updates are made on servers.
#include "core/ops/math_ops.h"
#include "core/train/training.h"
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

TEST(VariableGroups, TrainWithServersAsWithout) {
  const auto optimizer = [] {
    return optim::SGD(0.1, {.momentum = 0.5,
                            .weight_decay = {.factor = 0.1, .exclude = {"bias"}},
                            .groups = {{.variables = {"dense_1"}, .learning_rate_multiplier = 0.1},
                                       {.variables = {"kernel"}, .weight_decay = 0.5}}});
  };
  Model alone = line_model(optimizer());
  alone.fit(line(8), {.epochs = 2, .verbose = Verbose::kSilent});
  const Job job(2, 2, {.max_staleness = 0, .partitioner = FixedShardsPartitioner(2)});
  std::vector<Tensor> weights(4);
  job.on_workers([&](ParameterServerStrategy& strategy) {
    Model model = line_model(optimizer());
    model.fit(line(4), {.epochs = 2, .verbose = Verbose::kSilent});
    if (strategy.is_chief())
      for (size_t i = 0; i < weights.size(); ++i) weights[i] = model.variables()[i]->value();
  });
  for (size_t i = 0; i < weights.size(); ++i)
    expect_near(weights[i], alone.variables()[i]->value(), 1e-5);
}

}  // namespace
}  // namespace cohort::testing
