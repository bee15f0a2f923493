#include <cmath>
#include <numeric>

#include <gmock/gmock.h>

#include "core/distribute/replica_scope.h"
#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizer.h"
#include "tests/distribute/testing.h"
#include "tests/nn/testing.h"

// Batch normalisation when the rows of a batch are divided over replicas.
namespace cohort::nn {
namespace {

using testing::random_tensor;
using testing::to_vector;
using testing::weight;

constexpr double kMomentum = 0.75;
constexpr int64_t kChannels = 3, kWidth = 2;

class BatchNormalizationReplicasTest : public testing::ReplicasTest {};
COHORT_FOR_ALL_REPLICAS(BatchNormalizationReplicasTest);

// Layers of the same options begin with the same weights, because they have the same name.
Layer make_layer(bool synchronized) {
  return BatchNormalization({.momentum = kMomentum,
                             .synchronized = synchronized,
                             .beta_initializer = initializers::random_uniform(-1, 1),
                             .gamma_initializer = initializers::random_uniform(0.5, 1.5),
                             .name = "norm"});
}

Tensor batch_of(int64_t rows, uint64_t stream) {
  return random_tensor({rows, kWidth, kChannels}, stream, DType::kFloat64);
}

// The output for x, and the gradients of sum(output * dy) with respect to x, gamma and beta.
Function training_step(const Layer& layer) {
  return function([layer](Value x, Value dy) -> std::vector<Value> {
    const Value y = layer(x, {.training = true});
    const Value loss = ops::reduce_sum(y * dy);
    const auto of_weights =
        current_strategy().reduce_gradients(optim::gradients(loss, layer.trainable_variables()));
    return {y, gradients(loss, {x})[0].values, of_weights[0].values, of_weights[1].values};
  });
}

// The rows of one output of all replicas, one behind the other.
std::vector<double> joined(const PerReplica<std::vector<Tensor>>& outputs, size_t which) {
  std::vector<double> all;
  for (const auto& replica : outputs)
    for (const double x : to_vector(replica[which])) all.push_back(x);
  return all;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  testing::expect_near(Tensor::from(actual, {static_cast<int64_t>(actual.size())}), expected,
                       1e-10);
}

// What each output of a few training steps is, its replicas' rows joined or that of each replica,
// and then the moving statistics.
std::vector<std::vector<double>> trained(bool synchronized, int64_t rows, Strategy& strategy) {
  const auto scope = strategy.scope();
  const Layer layer = make_layer(synchronized);
  const Function step = training_step(layer);
  std::vector<std::vector<double>> results;
  for (uint64_t i = 0; i < 2; ++i) {
    const auto outputs = strategy.run(
        step, strategy.split_batch({batch_of(rows, 2 * i), batch_of(rows, 2 * i + 1)}));
    for (const size_t by_row : {0, 1}) results.push_back(joined(outputs, by_row));
    for (const size_t of_weight : {2, 3}) {
      results.push_back(to_vector(outputs[0][of_weight]));
      for (const auto& replica : outputs)
        EXPECT_EQ(to_vector(replica[of_weight]), results.back()) << "replicas differ";
    }
  }
  results.push_back(to_vector(weight(layer, "moving_mean")));
  results.push_back(to_vector(weight(layer, "moving_variance")));
  return results;
}

TEST_P(BatchNormalizationReplicasTest, SynchronizedItIsThatOfOneDevice) {
  for (const int64_t rows : {1, 2, 5, 8, 13}) {
    SCOPED_TRACE(str(rows, " rows"));
    const auto expected = trained(false, rows, default_strategy()),
               actual = trained(true, rows, strategy);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) expect_near(actual[i], expected[i]);
  }
}

// The mean and the variance of each channel of [rows, width, channels].
std::vector<std::vector<double>> moments(const Tensor& x) {
  const auto values = to_vector(x);
  std::vector<std::vector<double>> result(2, std::vector<double>(kChannels, 0.0));
  const size_t per_channel = values.size() / kChannels;
  const auto count = static_cast<double>(per_channel);
  for (size_t i = 0; i < values.size(); ++i) result[0][i % kChannels] += values[i] / count;
  for (size_t i = 0; i < values.size(); ++i) {
    const double d = values[i] - result[0][i % kChannels];
    result[1][i % kChannels] += d * d / count;
  }
  return result;
}

TEST_P(BatchNormalizationReplicasTest, MovesItsStatisticsByTrueRows) {
  for (const int64_t rows : {1, 5, 8, 13}) {
    SCOPED_TRACE(str(rows, " rows"));
    const auto scope = strategy.scope();
    const Layer layer = make_layer(false);
    const Function step = training_step(layer);
    std::vector<std::vector<double>> expected = {std::vector<double>(kChannels, 0.0),
                                                 std::vector<double>(kChannels, 1.0)};
    for (uint64_t i = 0; i < 3; ++i) {
      const auto shares = strategy.split_batch({batch_of(rows, i), batch_of(rows, i + 9)});
      for (const double y : joined(strategy.run(step, shares), 0)) EXPECT_TRUE(std::isfinite(y));
      for (auto& statistic : expected)
        for (double& x : statistic) x *= kMomentum;
      for (const auto& share : shares) {
        const auto of_share = moments(share[0]);
        const double part = static_cast<double>(share[0].shape()[0]) / static_cast<double>(rows);
        for (size_t k = 0; k < 2 && part > 0; ++k)
          for (size_t c = 0; c < kChannels; ++c)
            expected[k][c] += (1 - kMomentum) * part * of_share[k][c];
      }
    }
    expect_near(to_vector(weight(layer, "moving_mean")), expected[0]);
    expect_near(to_vector(weight(layer, "moving_variance")), expected[1]);
  }
}

TEST_P(BatchNormalizationReplicasTest, OutsideTrainingAllReplicasUseTheMergedStatistics) {
  for (const bool synchronized : {false, true}) {
    const auto scope = strategy.scope();
    const Layer layer = make_layer(synchronized);
    const Tensor x = batch_of(5, 1);
    strategy.run(training_step(layer), strategy.split_batch({x, x}));
    const auto infer = function([layer](Value in) { return layer(in); });
    const auto outputs = strategy.run(infer, strategy.split_batch({x}));
    const auto mean = to_vector(weight(layer, "moving_mean")),
               variance = to_vector(weight(layer, "moving_variance")),
               gamma = to_vector(weight(layer, "gamma")), beta = to_vector(weight(layer, "beta"));
    auto expected = to_vector(x);
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t c = i % kChannels;
      expected[i] = (expected[i] - mean[c]) / std::sqrt(variance[c] + 1e-3) * gamma[c] + beta[c];
    }
    expect_near(joined(outputs, 0), expected);
  }
}

// The ops of a function that normalises twice, in the order in which a replica runs them, in a
// strategy of its own.
std::vector<std::string> ops_outside_training(Strategy& strategy, bool synchronized) {
  const auto scope = strategy.scope();
  const Layer network = make_sequential({make_layer(synchronized), Dense(kChannels),
                                         BatchNormalization({.synchronized = synchronized})});
  const TensorSpec rows{DType::kFloat64, {4, kChannels}};
  network.build({rows});
  network.set_trainable(false);
  const Function step =
      function([network](Value x) { return network(x, {.training = true}); });  // frozen
  const ReplicaScope inside(strategy);
  ReplicaGroup group;
  group.num_replicas = strategy.num_replicas_in_sync();
  const GraphFunction scheduled = schedule_collectives(step.trace({rows}, group));
  std::vector<std::string> ops;
  for (const auto& node : scheduled.graph->nodes()) ops.push_back(node->op().name);
  return ops;
}

TEST_P(BatchNormalizationReplicasTest, OutsideTrainingStatisticsAreMergedBehindTheComputation) {
  const auto ops = ops_outside_training(strategy, false);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "AllReduce"), 0);
  const auto starts = std::count(ops.begin(), ops.end(), "AllReduceStart");
  EXPECT_EQ(starts, replicas() == 1 ? 0 : 2);
  const auto product = std::find(ops.begin(), ops.end(), "MatMul");
  EXPECT_NE(product, ops.end());
  EXPECT_EQ(std::count(ops.begin(), product, "AllReduceStart"), starts);

  const auto same = ops_outside_training(strategy, true);
  EXPECT_EQ(std::count(same.begin(), same.end(), "AllReduceStart"), 0);
}

// The ops of a training step as one of `replicas` with equal rows traces it.
std::vector<std::string> traced_ops(const Layer& layer, int replicas) {
  ReplicaGroup group;
  group.num_replicas = replicas;
  const TensorSpec spec{DType::kFloat32, {4, kWidth, kChannels}};
  const Function step = function([layer](Value x) { return layer(x, {.training = true}); });
  std::vector<std::string> ops;
  for (const auto& node : step.trace({spec}, group).graph->nodes()) ops.push_back(node->op().name);
  return ops;
}

TEST(BatchNormalizationGraphTest, EqualSharesCostNothing) {
  const Layer layer = BatchNormalization();
  const auto alone = traced_ops(layer, 1);
  auto four = traced_ops(layer, 4);
  // Replicas of a step that reduces nothing meet once, before they write.
  EXPECT_EQ(std::erase(four, "Barrier"), 1u);
  EXPECT_EQ(four, alone);
  EXPECT_THAT(alone, ::testing::Contains("BatchNorm"));
}

TEST(BatchNormalizationGraphTest, SynchronizedOverOneReplicaItIsThePlainLayer) {
  const Layer plain = BatchNormalization(), synchronized = SyncBatchNormalization();
  EXPECT_EQ(traced_ops(synchronized, 1), traced_ops(plain, 1));
  const auto over_two = traced_ops(synchronized, 2);
  EXPECT_EQ(std::count(over_two.begin(), over_two.end(), "AllGather"), 1);
}

}  // namespace
}  // namespace cohort::nn
