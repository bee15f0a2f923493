#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/strategies/parameter_server/testing.h"

// What gradients weigh in the mean of a synchronous update.
namespace cohort::testing {
namespace {

// Whoever comes first: what weighs nothing is left out, and of the others it is the mean.
TEST(GradientWeights, AreWhatSendersSay) {
  const std::vector<ShardPush> pushes = {
      {.shard = "w", .gradient = floats({-100}), .learning_rate = 1, .weight = 0},
      {.shard = "w", .gradient = floats({-5}), .learning_rate = 1, .weight = 1},
      {.shard = "w", .gradient = floats({-1}), .learning_rate = 1, .weight = 3}};
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 3}});
  const ShardSpec spec = whole_shard("w", kOne);
  std::vector<std::unique_ptr<ParameterClient>> workers;
  for (int w = 0; w < 3; ++w) workers.push_back(server.client(str("worker:", w)));
  workers[0]->create(spec, [] { return floats({0}); });
  std::vector<size_t> order = {0, 1, 2};
  float moved = 0;
  do {
    for (const size_t w : order) {
      fetch(*workers[w], spec);
      workers[w]->push(pushes[w]);
    }
    moved += 3 * 2;  // a sum of three
    EXPECT_EQ(values_of(fetch(*workers[0], spec)), (std::vector<float>{moved}))
        << order[0] << order[1] << order[2];
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(GradientWeights, DoNotMatterWhereAllAreZero) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2}});
  const ShardSpec spec = whole_shard("w", kOne);
  for (int w = 0; w < 2; ++w) {
    const auto client = server.client(str("worker:", w));
    client->create(spec, [] { return floats({0}); });
    fetch(*client, spec);
    client->push({.shard = "w", .gradient = floats({-1}), .learning_rate = 1, .weight = 0});
  }
  EXPECT_EQ(values_of(fetch(*server.client(), spec)), (std::vector<float>{2}));
}

// A worker without data is not one of the first that are enough.
TEST(GradientWeights, OfZeroDoNotMakeAnUpdateComplete) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 3, .backup_workers = 1}});
  const ShardSpec spec = whole_shard("w", kOne);
  const std::vector<double> weights = {1, 0, 3};
  std::vector<std::unique_ptr<ParameterClient>> workers;
  for (int w = 0; w < 3; ++w) {
    workers.push_back(server.client(str("worker:", w)));
    workers[static_cast<size_t>(w)]->create(spec, [] { return floats({0}); });
    fetch(*workers[static_cast<size_t>(w)], spec);
  }
  for (size_t w = 0; w < 3; ++w) {
    EXPECT_EQ(values_of(fetch(*workers[0], spec)), (std::vector<float>{0})) << w;
    workers[w]->push({.shard = "w",
                      .gradient = floats({w == 0 ? -5.0f : -1.0f}),
                      .learning_rate = 1,
                      .weight = weights[w]});
  }
  EXPECT_EQ(values_of(fetch(*workers[0], spec)), (std::vector<float>{2 * 2}));
}

TEST(GradientWeights, OfRowsAreWhatSendersSay) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 3}});
  const TensorSpec table{DType::kFloat32, {4, 1}};
  const ShardSpec spec = whole_shard("w", table);
  const std::vector<double> weights = {3, 0, 1};
  for (int w = 0; w < 3; ++w) {
    const auto client = server.client(str("worker:", w));
    client->create(spec, [&] { return Tensor::zeros(table.dtype, table.shape); });
    fetch(*client, spec);
    client->push({.shard = "w",
                  .gradient = Tensor::full(DType::kFloat32, {2, 1}, -1),
                  .learning_rate = 1,
                  .weight = weights[static_cast<size_t>(w)],
                  .rows = std::vector<int64_t>{w, 3}});
  }
  const auto client = server.client();
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>{2.25f, 0, 0.75f, 3}));
}

}  // namespace
}  // namespace cohort::testing
