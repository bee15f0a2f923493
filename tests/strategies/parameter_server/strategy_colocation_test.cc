// Variables beside others on the servers of ParameterServerStrategy.
#include "tests/strategies/parameter_server/job.h"

namespace cohort::testing {
namespace {

class ColocationTest : public ::testing::Test {
 protected:
  static std::vector<int> servers(const VariablePtr& variable) {
    std::vector<int> found;
    for (const auto& shard : on_servers(variable).shards()) found.push_back(shard.server);
    return found;
  }

  const Job job_{3, 1, {.partitioner = FixedShardsPartitioner(2)}};
  const std::unique_ptr<ParameterServerStrategy> strategy_ = job_.worker(0);
  const Strategy::Scope scope_{*strategy_};
};

TEST_F(ColocationTest, PutsVariablesUncutOnTheServerOfTheFirstShard) {
  counting("before", {1});
  const VariablePtr table = counting("table", {8});
  ASSERT_EQ(servers(table), (std::vector<int>{1, 2}));
  VariablePtr beside, also;
  {
    const auto colocation = strategy_->colocate_vars_with(table);
    beside = counting("beside", {6, 2});
    also = counting("also", {4});
  }
  EXPECT_EQ(servers(beside), std::vector<int>{1});
  EXPECT_EQ(servers(also), std::vector<int>{1});
  EXPECT_EQ(values_of(also->value()), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(servers(counting("after", {8})), (std::vector<int>{0, 2})) << "1 has enough";
  optim::SGD(0.1, {.momentum = 0.9}).build({beside});
  EXPECT_EQ(servers(beside), std::vector<int>{1}) << "an optimizer has taken it over";
  const auto colocation = strategy_->colocate_vars_with(also);
  EXPECT_EQ(servers(counting("last", {9})), std::vector<int>{1}) << "colocated with such a one";
}

TEST_F(ColocationTest, OfTheInnermostScopeCounts) {
  const VariablePtr first = counting("first", {1}), second = counting("second", {1});
  ASSERT_NE(servers(first), servers(second));
  const auto outer = strategy_->colocate_vars_with(first);
  {
    const auto inner = strategy_->colocate_vars_with(second);
    EXPECT_EQ(servers(counting("inner", {8})), servers(second));
  }
  EXPECT_EQ(servers(counting("outer", {8})), servers(first));
}

TEST_F(ColocationTest, IsTheSameForTheWeightsOfALayer) {
  const VariablePtr first = counting("first", {1}), second = counting("second", {1});
  const nn::Layer dense = nn::Dense(4);
  {
    const auto colocation = strategy_->colocate_vars_with(second);
    dense.build({{DType::kFloat32, {1, 8}}});
  }
  for (const VariablePtr& weight : dense.variables()) EXPECT_EQ(servers(weight), servers(second));
}

TEST_F(ColocationTest, LeavesAWorkersOwnVariablesThere) {
  const auto colocation = strategy_->colocate_vars_with(counting("v", {8}));
  const VariablePtr own =
      create_variable({.name = "own",
                       .spec = {DType::kFloat32, {2}},
                       .initial_value = [] { return Tensor::zeros(DType::kFloat32, {2}); },
                       .synchronization = Synchronization::kOnRead,
                       .aggregation = Aggregation::kSum});
  EXPECT_EQ(own->devices(), strategy_->devices());
  EXPECT_ERROR((void)strategy_->colocate_vars_with(own), Code::kInvalidArgument, "\"own\"");
}

TEST_F(ColocationTest, RefusesVariablesOfOtherServers) {
  const Job other(1, 1);
  const auto stranger = other.worker(0);
  const VariablePtr v =
      stranger->create_variable({.name = "v", .spec = {DType::kFloat32, {}}, .initial_value = [] {
                                   return Tensor::scalar(0.0F);
                                 }});
  EXPECT_ERROR((void)strategy_->colocate_vars_with(v), Code::kInvalidArgument, "\"v\"");
  EXPECT_ERROR((void)stranger->colocate_vars_with(v), Code::kFailedPrecondition, "scope");
}

}  // namespace
}  // namespace cohort::testing
