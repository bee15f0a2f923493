// Gradients that the program has summed over replicas by itself.
#include <gmock/gmock.h>

#include "tests/optim/replicas.h"

namespace cohort::optim {
namespace {

using testing::make_weight;
using testing::to_vector;
using testing::VariablePtr;

// As testing::step_along_input, but for who sums the gradients.
Function step_by_hand(const Optimizer& optimizer, const VariablePtr& weight) {
  return Function([=](const std::vector<Value>& in) {
    const Value loss = ops::reduce_sum(weight->read() * in[0]);
    const std::vector<Gradient> own = gradients(optimizer.scale_loss(loss), {weight});
    optimizer.apply_gradients(get_replica_context()->all_reduce(ReduceOp::kSum, own), {weight},
                              {.skip_gradients_aggregation = true});
    return std::vector<Value>{};
  });
}

class ReducedGradientsTest : public testing::MirroredTest {
 protected:
  // A gradient for each replica that depends on the step.
  static PerReplica<std::vector<Tensor>> inputs(int step) {
    PerReplica<std::vector<Tensor>> made(static_cast<size_t>(GetParam()));
    for (size_t r = 0; r < made.size(); ++r)
      made[r] = {
          testing::vector({1.0 + static_cast<double>(r), step - 2.0 * static_cast<double>(r)})};
    return made;
  }

  MirroredStrategy strategy{first_cpus(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(Replicas, ReducedGradientsTest, ::testing::Values(1, 2, 3, 7));

TEST_P(ReducedGradientsTest, AreAppliedAsOthersAreOnceTheseAreSummed) {
  const auto scope = strategy.scope();
  for (const auto& options :
       {GradientOptions{}, GradientOptions{.clipvalue = 0.5}, GradientOptions{.global_clipnorm = 1},
        GradientOptions{.accumulation_steps = 2}, GradientOptions{.loss_scale = LossScale{}},
        GradientOptions{.clipnorm = 0.5, .accumulation_steps = 3, .loss_scale = LossScale{}}}) {
    SCOPED_TRACE(str("accumulation of ", options.accumulation_steps, ", loss scaling ",
                     options.loss_scale.has_value()));
    const auto usual = make_weight("w", {1, 2}), by_hand = make_weight("w", {1, 2});
    const Function usual_step = testing::step_along_input(
                       SGD(0.1, {.momentum = 0.9, .gradients = options}), usual),
                   own_step =
                       step_by_hand(SGD(0.1, {.momentum = 0.9, .gradients = options}), by_hand);
    for (int step = 0; step < 6; ++step) {
      strategy.run(usual_step, inputs(step));
      strategy.run(own_step, inputs(step));
      testing::expect_near(by_hand->value(), to_vector(usual->value()));
    }
    for (int r = 1; r < GetParam(); ++r)
      EXPECT_EQ(to_vector(by_hand->storage(r)), to_vector(by_hand->storage(0)));
  }
}

TEST_P(ReducedGradientsTest, AreAddedUpToTheSumThatOthersAreAddedUpTo) {
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1, 2});
  const Optimizer sgd = SGD(1, {.gradients = {.accumulation_steps = 2}});
  strategy.run(step_by_hand(sgd, weight), inputs(5));
  std::vector<double> total = {0, 0};
  for (const auto& replica : inputs(5))
    for (size_t i = 0; i < total.size(); ++i) total[i] += to_vector(replica[0])[i];
  const VariablePtr kept = sgd.variables().back();
  EXPECT_EQ(kept->name(), "optimizer/gradient_accumulator/w");
  testing::expect_near(kept->value(), total);
}

// The loss is the same on all replicas, each of which has its gradient.
TEST_P(ReducedGradientsTest, OfALossThatIsReducedAlreadyCountForEachReplica) {
  const auto scope = strategy.scope();
  const int replicas = GetParam();
  const auto step_of = [](const VariablePtr& weight, double divisor) {
    const Optimizer sgd = SGD(1);
    return Function([=](const std::vector<Value>& in) {
      const Value own = ops::reduce_sum(weight->read() * in[0]);
      const Value loss = get_replica_context()->all_reduce(ReduceOp::kMean, own);
      sgd.minimize(divisor == 1 ? loss : loss / divisor, {weight});
      return std::vector<Value>{};
    });
  };
  std::vector<double> mean = {0, 0};
  for (const auto& replica : inputs(5))
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += to_vector(replica[0])[i] / replicas;

  const auto divided = make_weight("w", {0, 0}), whole = make_weight("w", {0, 0});
  ::testing::internal::CaptureStderr();
  strategy.run(step_of(divided, replicas), inputs(5));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  testing::expect_near(divided->value(), {-mean[0], -mean[1]});

  ::testing::internal::CaptureStderr();
  strategy.run(step_of(whole, 1), inputs(5));
  const std::string notice = ::testing::internal::GetCapturedStderr();
  if (replicas == 1)
    EXPECT_EQ(notice, "");
  else
    EXPECT_THAT(notice, ::testing::HasSubstr(str("gradients are ", replicas, " times too large")));
  testing::expect_near(whole->value(), {-mean[0] * replicas, -mean[1] * replicas});
}

TEST_P(ReducedGradientsTest, NeedAStepThatReplicasRun) {
  if (GetParam() == 1) return;
  const auto scope = strategy.scope();
  const auto weight = make_weight("w", {1});
  const Function inner([&](const std::vector<Value>&) {
    const Gradient gradient{.values = ops::constant(Tensor::full(DType::kFloat64, {1}, 1))};
    SGD(1).apply_gradients({gradient}, {weight}, {.skip_gradients_aggregation = true});
    return std::vector<Value>{};
  });
  const Function step([&](const std::vector<Value>&) {
    inner({});
    return std::vector<Value>{};
  });
  const PerReplica<std::vector<Tensor>> nothing(static_cast<size_t>(GetParam()));
  EXPECT_THAT(testing::error_of([&] { strategy.run(step, nothing); }, Code::kFailedPrecondition),
              ::testing::HasSubstr("apply_gradients needs the replicas of MirroredStrategy"));
}

}  // namespace
}  // namespace cohort::optim
