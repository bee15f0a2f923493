// Cases 43 to 53 of tf_distribute_cases_test.cc.
#include <algorithm>
#include <cmath>

#include "tests/strategies/tf_distribute_testing.h"

namespace cohort {
namespace {

using data::range;

using Parts = std::vector<std::vector<int64_t>>;  // of a step, by replica
using Steps = std::vector<Parts>;

Steps steps_of(Strategy& strategy, const data::Dataset& dataset) {
  Steps steps;
  for (const auto& batch : strategy.distribute_dataset(dataset)) {
    steps.emplace_back();
    for (const data::Batch& part : batch) {
      const auto values = part["value"].values<int64_t>();
      steps.back().emplace_back(values.begin(), values.end());
    }
  }
  return steps;
}

// That this holds for all sizes: tests/distribute/input_options_test.cc.
TEST_P(TfDistribute, Case43) {
  using Sizes = std::vector<int64_t>;
  for (const int worker : {0, 1}) EXPECT_EQ(rebatch_sizes(8, 2, 2, worker), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(rebatch_sizes(4, 3, 1, 0), (Sizes{2, 1, 1}));
  EXPECT_EQ(rebatch_sizes(4, 3, 1, 1), (Sizes{1, 1, 2}));
  EXPECT_EQ(rebatch_sizes(4, 3, 1, 2), (Sizes{1, 2, 1}));
  EXPECT_EQ(rebatch_sizes(7, 1, 3, 0), (Sizes{3, 2, 2}));
  EXPECT_EQ(rebatch_sizes(4, 1, 5, 0), (Sizes{1, 1, 1, 1, 0}));
  EXPECT_EQ(rebatch_sizes(10, 2, 2, 0), (Sizes{3, 3, 2, 2}));
  EXPECT_EQ(rebatch_sizes(10, 2, 2, 1), (Sizes{2, 2, 3, 3}));
  EXPECT_EQ(rebatch_sizes(5, 2, 1, 0), (Sizes{3, 2}));
  EXPECT_EQ(rebatch_sizes(5, 2, 1, 1), (Sizes{2, 3}));
}

// Balanced, where tf.distribute leaves the third replica without rows.
TEST_P(TfDistribute, Case44) {
  const auto three = with_replicas(3);
  const auto unknown = range(8).batch(4).map([](const data::Element& e) { return e; });
  EXPECT_EQ(steps_of(*three, unknown), (Steps{{{0, 1}, {2}, {3}}, {{4, 5}, {6}, {7}}}));
}

TEST_P(TfDistribute, Case45) {
  EXPECT_EQ(steps_of(*strategy_, range(9).batch(4)),
            (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {}}}));
  EXPECT_EQ(steps_of(*strategy_, range(9).batch(4, {.drop_remainder = true})).size(), 2u);
}

// What each of two workers reads.
std::vector<Steps> read_by_two(const std::vector<std::string>& devices,
                               const data::Dataset& dataset) {
  std::vector<Steps> read(2);
  testing::on_good_workers(2,
                           [&](MultiWorkerMirroredStrategy& strategy) {
                             read[static_cast<size_t>(strategy.workers().rank())] =
                                 steps_of(strategy, dataset);
                           },
                           {.devices = devices});
  return read;
}

TEST_P(TfDistribute, Case46) {
  scope_.exit();
  EXPECT_EQ(read_by_two({"cpu:0"}, range(9).batch(2)),
            (std::vector<Steps>{{{{0}}, {{2}}, {{4}}, {{6}}, {{8}}},
                                {{{1}}, {{3}}, {{5}}, {{7}}, {{}}}}));
  for (const Steps& steps : read_by_two({"cpu:0"}, range(9).batch(2, {.drop_remainder = true})))
    EXPECT_EQ(steps.size(), 4u);
}

TEST_P(TfDistribute, Case47) {
  scope_.exit();
  EXPECT_EQ(read_by_two({"cpu:0", "cpu:1"}, range(15).batch(4)),
            (std::vector<Steps>{{{{0}, {2}}, {{4}, {6}}, {{8}, {10}}, {{12}, {14}}},
                                {{{1}, {3}}, {{5}, {7}}, {{9}, {11}}, {{13}, {}}}}));
}

TEST_P(TfDistribute, Case48) {
  EXPECT_EQ(strategy_->input_context().get_per_replica_batch_size(8), 4);
  error_of(Code::kInvalidArgument,
           [&] { strategy_->input_context().get_per_replica_batch_size(7); });
}

TEST_P(TfDistribute, Case49) {
  auto iterator = strategy_->distribute_dataset(range(8).batch(4)).iterate();
  error_of(Code::kFailedPrecondition, [&] { run([&](Value x) { return iterator.next(), x; }, 1); });
  EXPECT_TRUE(contains(
      error_of(Code::kInvalidArgument, [&] { strategy_->distribute_dataset(range(8)); }), "batch"));
}

// The numbers of `count` files, from `first` on: each has its own only, or three.
data::Dataset files(int first, int count, int64_t rows, int64_t cycle) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(std::to_string(first + i * rows));
  const auto open = [rows](const std::string& name) {
    return range(rows).map([start = int64_t{std::stoll(name)}](const data::Element& e) {
      return data::Element{{"value", Tensor::scalar(start + *e["value"].data<int64_t>())}};
    });
  };
  return data::from_files(names, open, {.cycle_length = cycle});
}

std::vector<int64_t> read(const data::Dataset& dataset) {
  std::vector<int64_t> values;
  for (const auto& element : dataset) values.push_back(*element["value"].data<int64_t>());
  return values;
}

TEST_P(TfDistribute, Case50) {
  using Values = std::vector<int64_t>;
  const auto ten = files(0, 10, 1, 1);
  EXPECT_EQ(read(auto_shard(ten, AutoShardPolicy::kFile, 5, 3)), (Values{3, 8}));
  EXPECT_EQ(read(auto_shard(ten, AutoShardPolicy::kAuto, 5, 0)), (Values{0, 5}));
  EXPECT_EQ(read(auto_shard(ten, AutoShardPolicy::kFile, 500, 499)), Values());
  EXPECT_EQ(read(auto_shard(range(4), AutoShardPolicy::kData, 2, 0)), (Values{0, 2}));
  EXPECT_EQ(read(auto_shard(range(4), AutoShardPolicy::kOff, 2, 0)), (Values{0, 1, 2, 3}));
  error_of(Code::kNotFound, [] { auto_shard(range(4), AutoShardPolicy::kFile, 2, 0); });
  // An empty share, where tf.distribute has an error.
  EXPECT_EQ(read(auto_shard(range(5), AutoShardPolicy::kAuto, 10, 9)), Values());
}

TEST_P(TfDistribute, Case51) {
  for (const auto& dataset : {range(23), range(23).shuffle(9, {.seed = 3}), files(0, 8, 3, 2)}) {
    std::vector<int64_t> all;
    for (const int64_t index : {0, 1, 2})
      for (const int64_t value : read(auto_shard(dataset, AutoShardPolicy::kAuto, 3, index)))
        all.push_back(value);
    auto whole = read(dataset);
    std::sort(all.begin(), all.end());
    std::sort(whole.begin(), whole.end());
    EXPECT_EQ(all, whole);
  }
}

TEST_P(TfDistribute, Case52) {
  EXPECT_EQ(read(auto_shard(files(1, 3, 3, 3), AutoShardPolicy::kAuto, 2, 0)),
            (std::vector<int64_t>{1, 7, 2, 8, 3, 9}));
}

// What a network with a batch normalisation learns from batches of these rows, in steps or in fit:
// losses and weights.
Numbers learned(bool in_fit, bool synchronized, const std::vector<int64_t>& batches) {
  set_global_seed(1);
  Model model = nn::Sequential(
      {nn::Dense(4), nn::BatchNormalization({.momentum = 0.5, .synchronized = synchronized}),
       nn::Dense(1)});
  model.compile({.optimizer = optim::SGD(0.1), .loss = losses::MeanSquaredError()});
  Numbers numbers;
  int64_t first = 0;
  const auto batch_of = [&](int64_t rows) {
    std::vector<float> x, y;
    for (int64_t i = first; i < first + rows; ++i) {
      for (int64_t k = 0; k < 3; ++k)
        x.push_back(std::sin(1 + 1.7f * static_cast<float>(3 * i + k)));
      y.push_back(std::cos(static_cast<float>(i)));
    }
    first += rows;
    return data::Batch{{"x", Tensor::from(x, {rows, 3})}, {"label", Tensor::from(y, {rows, 1})}};
  };
  Strategy& strategy = current_strategy();
  model.build({{DType::kFloat32, {1, 3}}});
  const auto optimizer = optim::SGD(0.1);
  const auto step = strategy.function([&](const BatchValues& batch) {
    const Value y = model(batch["x"], {.training = true});
    const Value loss =
        losses::compute_average_loss(losses::MeanSquaredError().per_example(batch["label"], y));
    optimizer.minimize(loss, model.trainable_variables());
    return loss;
  });
  for (const int64_t rows : batches) {
    const data::Batch batch = batch_of(rows);
    const auto one = data::from_tensor_slices(batch).batch(rows);
    if (in_fit) {
      numbers.push_back(model.fit(one, {.epochs = 1, .verbose = Verbose::kSilent})["loss"][0]);
      continue;
    }
    for (const auto& parts : strategy.distribute_dataset(one))
      numbers.push_back(strategy.reduce("sum", strategy.run(step, parts)).item());
  }
  for (const auto& variable : model.variables())
    for (const double value : to_doubles(variable->value())) numbers.push_back(value);
  return numbers;
}

// Each share is normalised by its own statistics, so the numbers of one device come with a single
// share that has rows, or with SyncBatchNormalization.
TEST_P(TfDistribute, Case53) {
  scope_.exit();
  for (const bool in_fit : {false, true})
    for (const bool synchronized : {false, true}) {
      SCOPED_TRACE(str("in fit ", in_fit, " synchronized ", synchronized));
      const std::vector<int64_t> batches =
          synchronized ? std::vector<int64_t>{1, 3, 2, 5, 1} : std::vector<int64_t>{1, 1, 1};
      const auto expected = learned(in_fit, synchronized, batches);
      const auto scope = strategy_->scope();
      const auto found = learned(in_fit, synchronized, batches);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-5) << i;
    }
  set_global_seed(0);
}

}  // namespace
}  // namespace cohort
