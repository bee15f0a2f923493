#include <numeric>

#include <gmock/gmock.h>

#include "core/graph/op.h"
#include "tests/optim/counting_ops.h"
#include "tests/optim/replicas.h"

// Gradient accumulation, and the order of updates, under replicas.
namespace cohort::optim {
namespace {

using testing::make_weight;
using testing::to_vector;
using testing::VariablePtr;

class AccumulationReplicasTest : public testing::MirroredTest {
 protected:
  // A gradient for each replica that depends on the step.
  static PerReplica<std::vector<Tensor>> gradients(int step) {
    PerReplica<std::vector<Tensor>> inputs(static_cast<size_t>(GetParam()));
    for (size_t r = 0; r < inputs.size(); ++r)
      inputs[r] = {testing::vector({1.0 + static_cast<double>(r), step - 2.0 * r})};
    return inputs;
  }
  static std::vector<double> total(const PerReplica<std::vector<Tensor>>& inputs) {
    std::vector<double> sum = {0, 0};
    for (const auto& replica : inputs)
      for (size_t i = 0; i < 2; ++i) sum[i] += to_vector(replica[0])[i];
    return sum;
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, AccumulationReplicasTest, ::testing::Values(1, 2, 3, 4, 7));

TEST_P(AccumulationReplicasTest, ExchangesGradientsAtTheUpdateOnly) {
  constexpr int kSteps = 3;
  const auto counting = std::make_shared<testing::CountingOps>();
  auto options = first_cpus(GetParam());
  options.cross_device_ops = counting;
  MirroredStrategy strategy(options);
  const auto scope = strategy.scope();
  const auto small = make_weight("small", {1, 2}), big = make_weight("big", {1, 2});
  const Function micro = testing::step_along_input(
                     Adam(0.1, {.gradients = {.accumulation_steps = kSteps}}), small),
                 full = testing::step_along_input(Adam(0.1), big);
  std::vector<double> sum = {0, 0};
  for (int step = 0; step < 3 * kSteps; ++step) {
    const auto before = to_vector(small->value());
    counting->take_bytes();
    strategy.run(micro, gradients(step));
    const int64_t bytes = counting->take_bytes();
    const auto here = total(gradients(step));
    for (size_t i = 0; i < 2; ++i) sum[i] += here[i] / kSteps;
    if (step % kSteps != kSteps - 1) {
      EXPECT_EQ(bytes, 0) << "at step " << step;
      EXPECT_EQ(to_vector(small->value()), before);
      continue;
    }
    EXPECT_EQ(bytes > 0, GetParam() > 1) << "at step " << step;
    PerReplica<std::vector<Tensor>> whole(static_cast<size_t>(GetParam()));
    for (auto& replica : whole) replica = {testing::vector({0, 0})};
    whole[0] = {testing::vector(std::exchange(sum, {0, 0}))};
    strategy.run(full, whole);
    testing::expect_near(small->value(), to_vector(big->value()));
    for (int r = 1; r < GetParam(); ++r)
      EXPECT_EQ(to_vector(small->storage(r)), to_vector(small->storage(0)));
  }
}

TEST_P(AccumulationReplicasTest, SavesTheSumOverReplicas) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1, 2});
  const Optimizer sgd = SGD(1, {.gradients = {.accumulation_steps = 2}});
  const Function step = testing::step_along_input(sgd, weight);
  strategy.run(step, gradients(5));
  const VariablePtr kept = sgd.variables().back();
  EXPECT_EQ(kept->name(), "optimizer/gradient_accumulator/w");
  testing::expect_near(kept->value(), total(gradients(5)));

  kept->assign(testing::vector({2, 4}));  // as a checkpoint of any number of replicas is restored
  PerReplica<std::vector<Tensor>> nothing(static_cast<size_t>(GetParam()));
  for (auto& replica : nothing) replica = {testing::vector({0, 0})};
  strategy.run(step, nothing);
  testing::expect_near(weight->value(), {0, 0});
}

TEST_P(AccumulationReplicasTest, SchedulesCountUpdates) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const Optimizer sgd = SGD(Schedule([](const Value& step) { return 1.0 + step; }),
                            {.gradients = {.accumulation_steps = 3}});
  const Function step = testing::step_along_input(sgd, make_weight("w", {1, 2}));
  std::vector<double> rates;
  for (int call = 0; call < 7; ++call) {
    rates.push_back(sgd.learning_rate());
    strategy.run(step, gradients(1));
  }
  EXPECT_THAT(rates, ::testing::ElementsAre(1, 1, 1, 2, 2, 2, 3));
}

TEST_P(AccumulationReplicasTest, NeedsItsStrategyToRunTheStep) {
  if (GetParam() == 1) return;
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  const Function step = testing::step_along_input(SGD(1), make_weight("w", {1}));
  EXPECT_THAT(testing::error_of([&] { step({testing::vector({1})}); }, Code::kFailedPrecondition),
              ::testing::HasSubstr("run()"));
}

TEST_P(AccumulationReplicasTest, UpdatesInTheOrderInWhichGradientsAreReduced) {
  MirroredStrategy strategy(testing::in_buckets_of_one(first_cpus(GetParam())));
  const auto scope = strategy.scope();
  const auto weights = testing::make_three_weights();
  const Optimizer sgd = SGD(0.1, {.momentum = 0.5});
  const Function step = testing::step_along_product(sgd, weights);
  std::vector<std::string> written;
  for (const auto& node :
       testing::trace_in(strategy, step, {{DType::kFloat64, {1}}}).graph->nodes())
    if (node->op().name == "AssignVariable") written.push_back(node->resource()->name());
  EXPECT_THAT(written,
              ::testing::ElementsAre("optimizer/iterations", "c", "optimizer/momentum/c", "b",
                                     "optimizer/momentum/b", "a", "optimizer/momentum/a"));
  std::vector<std::string> made;
  for (const VariablePtr& variable : sgd.variables()) made.push_back(variable->name());
  EXPECT_THAT(made, ::testing::ElementsAre("optimizer/iterations", "optimizer/learning_rate",
                                           "optimizer/momentum/a", "optimizer/momentum/b",
                                           "optimizer/momentum/c"));
}

}  // namespace
}  // namespace cohort::optim
