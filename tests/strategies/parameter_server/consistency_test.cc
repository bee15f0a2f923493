#include "strategies/parameter_server/consistency.h"

#include <atomic>
#include <thread>

#include "strategies/parameter_server/clock_table.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

using parameter_server::ClockTable;
constexpr ClockTable::Time kNow{std::chrono::hours(1)};
const TensorSpec kOne{DType::kFloat32, {1}};

void pushes(ParameterClient& client, float gradient, ShardPushed* result = nullptr) {
  const ShardPushed pushed =
      client.push({.shard = "w", .gradient = floats({gradient}), .learning_rate = 1});
  if (result) *result = pushed;
}

TEST(ConsistencyOptions, RefusesWhatDoesNotGoTogether) {
  EXPECT_ERROR(ConsistencyOptions{.max_staleness = -1}.check(), Code::kInvalidArgument, "-1");
  EXPECT_ERROR((ConsistencyOptions{.num_workers = 2, .backup_workers = 1}.check()),
               Code::kInvalidArgument, "max_staleness to 0");
  EXPECT_ERROR(
      (ConsistencyOptions{.max_staleness = 0, .num_workers = 2, .backup_workers = 2}.check()),
      Code::kInvalidArgument, "backup_workers");
  EXPECT_ERROR((ConsistencyOptions{.max_staleness = 0, .delay_compensation = 1}.check()),
               Code::kInvalidArgument, "never stale");
}

TEST(ClockTable, HoldsUpWhoIsTooFarAhead) {
  ClockTable clocks(2, 2, milliseconds(1000));
  for (const char* task : {"a", "b"}) clocks.connected(task);
  clocks.complete("a", 5, kNow);
  EXPECT_FALSE(clocks.may_start("a", kNow)) << "b has not come yet";
  clocks.complete("b", 2, kNow);
  EXPECT_FALSE(clocks.may_start("a", kNow));  // 5 - 2 > 2
  EXPECT_EQ(clocks.holding_up(kNow), "b");
  EXPECT_TRUE(clocks.may_start("b", kNow));
  clocks.complete("b", 3, kNow);
  EXPECT_TRUE(clocks.may_start("a", kNow));
}

TEST(ClockTable, ForgetsWhoHasLeftOrGone) {
  ClockTable clocks(1, 2, milliseconds(1000));
  for (const char* task : {"a", "b"}) {
    clocks.connected(task);
    clocks.complete(task, 0, kNow);
  }
  clocks.complete("a", 4, kNow);
  clocks.disconnected("b", kNow);
  EXPECT_FALSE(clocks.may_start("a", kNow + milliseconds(500))) << "b may be back soon";
  EXPECT_TRUE(clocks.may_start("a", kNow + milliseconds(1500)));
  clocks.connected("b");
  EXPECT_FALSE(clocks.may_start("a", kNow + milliseconds(1500))) << "b is back";
  clocks.leave("b");
  EXPECT_TRUE(clocks.may_start("a", kNow));
}

TEST(ClockTable, WaitsForEachWorkerToComeOnce) {
  ClockTable clocks(1, 3, milliseconds(1000));
  for (const char* task : {"worker:0", "worker:1", "worker:2"}) clocks.connected(task);
  for (int time = 0; time < 2; ++time) {  // trains twice
    clocks.complete("worker:0", 5, kNow);
    clocks.leave("worker:0");
  }
  clocks.complete("worker:1", 5, kNow);
  EXPECT_FALSE(clocks.may_start("worker:1", kNow)) << "worker:2 has not come";
  clocks.leave("worker:2");  // it had nothing to do
  EXPECT_TRUE(clocks.may_start("worker:1", kNow));
}

// Who had ended before is not waited for again.
TEST(BoundedStaleness, GoesOnWhenTheServerComesBack) {
  const Folder folder;
  TestServer server(
      {.consistency = {.max_staleness = 1, .num_workers = 2}, .snapshot_folder = folder.path()});
  const auto first = server.client("worker:0"), second = server.client("worker:1");
  first->create(whole_shard("w", {DType::kFloat32, {1}}), [] { return floats({0}); });
  for (const auto& client : {&first, &second}) {
    (*client)->push({.shard = "w", .gradient = floats({-1}), .learning_rate = 1});
    (*client)->complete_step(1);
  }
  second->leave();
  server->snapshot();
  server.stop();
  server.start();
  EXPECT_EQ(first->complete_step(7, milliseconds(5000)), 7);
}

TEST(BoundedStaleness, MakesAFastWorkerWait) {
  TestServer server({.consistency = {.max_staleness = 2, .num_workers = 2}});
  const auto fast = server.client("worker:0"), slow = server.client("worker:1");
  EXPECT_EQ(slow->complete_step(0, milliseconds(5000)), 0);
  for (int step = 0; step <= 2; ++step) fast->complete_step(step);
  EXPECT_ERROR(fast->complete_step(3, milliseconds(150)), Code::kDeadlineExceeded, "worker:1");
  std::atomic<bool> going_on = false;
  std::thread waiting([&] {
    fast->complete_step(3);
    going_on = true;
  });
  EXPECT_FALSE(going_on);
  slow->complete_step(1);
  waiting.join();
  slow->leave();
  fast->complete_step(100);
}

TEST(Synchronous, AddsUpTheGradientsOfAllWorkers) {
  constexpr int kWorkers = 4, kRounds = 7;
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = kWorkers}});
  const ShardSpec spec = whole_shard("w", kOne);
  std::vector<std::thread> workers;
  std::atomic<int> wrong = 0;
  for (int w = 0; w < kWorkers; ++w)
    workers.emplace_back([&, w] {
      const auto client = server.client(str("worker:", w));
      client->create(spec, [] { return floats({1}); });
      Tensor value(DType::kFloat32, {1});
      ShardPulled pulled = client->pull({.shard = "w", .target = value});
      for (int round = 0; round < kRounds; ++round) {
        // w -= -2 (r + 1), of every worker r
        const ShardPush push{.shard = "w",
                             .gradient = floats({-2.0f * static_cast<float>(w + 1)}),
                             .learning_rate = 1};
        const ShardPull pull{.shard = "w", .target = value, .at_least = pulled.version.version + 1};
        pulled = client->update({&push, 1}, {&pull, 1}).pulled[0];
        const auto n = static_cast<float>(kWorkers), rounds = static_cast<float>(round + 1);
        wrong += values_of(value)[0] != 1 + n * (n + 1) * rounds;
      }
    });
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(server->statistics().pushes_applied, kRounds);
  EXPECT_EQ(server->statistics().pushes_counted, kRounds * (kWorkers - 1));
}

TEST(Synchronous, DropsWhatBackupWorkersBringLate) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 3, .backup_workers = 1}});
  const ShardSpec spec = whole_shard("w", kOne);
  std::vector<std::unique_ptr<ParameterClient>> workers;
  for (int w = 0; w < 3; ++w) {
    workers.push_back(server.client(str("worker:", w)));
    workers.back()->create(spec, [] { return floats({0}); });
    fetch(*workers.back(), spec);
  }
  ShardPushed pushed;
  pushes(*workers[2], -1, &pushed);
  EXPECT_EQ(pushed.outcome, PushOutcome::kCounted);
  pushes(*workers[0], -10, &pushed);
  EXPECT_EQ(pushed.outcome, PushOutcome::kApplied);
  pushes(*workers[1], -100, &pushed);
  EXPECT_EQ(pushed.outcome, PushOutcome::kLate);
  EXPECT_EQ(values_of(fetch(*workers[1], spec)), (std::vector<float>{11}));
  EXPECT_EQ(server->statistics().pushes_late, 1u);
}

TEST(Synchronous, SaysWhatItWaitsFor) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2}});
  const auto client = server.client();
  client->create(whole_shard("w", kOne), [] { return floats({0}); });
  Tensor value(DType::kFloat32, {1});
  const ShardPull pull{.shard = "w", .target = value, .at_least = 2};
  EXPECT_ERROR(client->update({}, {&pull, 1}, milliseconds(200)), Code::kDeadlineExceeded,
               "version 2");
}

TEST(Synchronous, AddsUpRows) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2}});
  const TensorSpec table{DType::kFloat32, {4, 1}};
  const ShardSpec spec = whole_shard("w", table);
  for (int w = 0; w < 2; ++w) {
    const auto client = server.client(str("worker:", w));
    client->create(spec, [&] { return Tensor::zeros(table.dtype, table.shape); });
    fetch(*client, spec);
    client->push({.shard = "w",
                  .gradient = Tensor::full(DType::kFloat32, {2, 1}, -1),
                  .learning_rate = 1,
                  .rows = std::vector<int64_t>{w, 2}});
  }
  const auto client = server.client();
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>{1, 1, 2, 0}));
}

TEST(StaleGradients, GetASmallerLearningRateWhereAsked) {
  TestServer server({.consistency = {.scale_learning_rate = true}});
  const auto fast = server.client("worker:0"), slow = server.client("worker:1");
  const ShardSpec spec = whole_shard("w", kOne);
  fast->create(spec, [] { return floats({0}); });
  fetch(*slow, spec);
  fetch(*fast, spec);
  for (int i = 0; i < 4; ++i) {
    pushes(*fast, 0);
    fetch(*fast, spec);
  }
  ShardPushed pushed;
  slow->push({.shard = "w", .gradient = floats({-1}), .learning_rate = 0.1});
  EXPECT_FLOAT_EQ(values_of(fetch(*fast, spec))[0], 0.025f);
}

TEST(StaleGradients, AreCompensatedWhereAsked) {
  TestServer server({.consistency = {.delay_compensation = 2}});
  const auto fast = server.client("worker:0"), slow = server.client("worker:1");
  const ShardSpec spec = whole_shard("w", kOne);
  slow->create(spec, [] { return floats({1}); });
  fetch(*slow, spec);
  fetch(*fast, spec);
  pushes(*fast, 0.2f);  // w is 0.8 now
  slow->push({.shard = "w", .gradient = floats({0.5}), .learning_rate = 0.1});
  EXPECT_FLOAT_EQ(values_of(fetch(*fast, spec))[0], 0.76f);
}

}  // namespace
}  // namespace cohort::testing
