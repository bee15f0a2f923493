#include "strategies/parameter_server/consistency.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

void pushes(ParameterClient& client, float gradient) {
  client.push({.shard = "w", .gradient = floats({gradient}), .learning_rate = 1});
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
  for (const double bad : {-1.0, double{INFINITY}, std::nan("")})
    EXPECT_ERROR(ConsistencyOptions{.delay_compensation = bad}.check(), Code::kInvalidArgument,
                 "delay_compensation must be finite");
}

TEST(ConsistencyOptions, HaveToBeThoseOfTheServerWhereACallerSaysThem) {
  struct Case {
    ConsistencyOptions server, caller;
    const char* what;
  };
  for (const Case& c : std::vector<Case>{
           {{},
            {.max_staleness = 0},
            "max_staleness is none (asynchronous) on this server, and 0 "
            "(synchronous) for worker:0"},
           {{.max_staleness = 0}, {}, "max_staleness is 0 (synchronous) on this server, and none"},
           {{.max_staleness = 3}, {.max_staleness = 4}, "max_staleness is 3 on this server, and 4"},
           {{.max_staleness = 0, .num_workers = 2},
            {.max_staleness = 0, .num_workers = 3},
            "num_workers is 2 on this server, and 3"},
           {{.max_staleness = 0, .num_workers = 2},
            {.max_staleness = 0, .num_workers = 2, .backup_workers = 1},
            "backup_workers is 0 on this server, and 1"},
           {{.scale_learning_rate = true},
            {},
            "scale_learning_rate is true on this server, and "
            "false"},
           {{}, {.delay_compensation = 0.5}, "delay_compensation is 0 on this server, and 0.5"}}) {
    SCOPED_TRACE(c.what);
    TestServer server({.consistency = c.server});
    const auto statistics = [&](const ConsistencyOptions& consistency) {
      return ParameterClient(server.address(),
                             {.task = "worker:0",
                              .job_id = "job",
                              .transport = transport(),
                              .consistency = consistency},
                             no_environment)
          .statistics();
    };
    EXPECT_ERROR(statistics(c.caller), Code::kFailedPrecondition, c.what);
    EXPECT_ERROR(statistics(c.caller), Code::kFailedPrecondition, "run_parameter_server(options)");
    EXPECT_FALSE(server->is_done()) << "nobody has come";
    EXPECT_EQ(statistics(c.server).requests_refused, 2u);
    EXPECT_NO_THROW(server.client()->statistics()) << "who does not say them";
  }
}

TEST(ConsistencyOptions, OfAsynchronousTrainingDoNotCountWorkers) {
  TestServer server;
  ParameterClient client(server.address(),
                         {.task = "worker:0",
                          .job_id = "job",
                          .transport = transport(),
                          .consistency = ConsistencyOptions{.num_workers = 3}},
                         no_environment);
  EXPECT_NO_THROW(client.statistics());
}

TEST(Asynchronous, AWorkerWaitsForNobody) {
  TestServer server({.consistency = {.num_workers = 2}});
  const auto fast = server.client("worker:0"), slow = server.client("worker:1");
  EXPECT_NO_THROW(fast->complete_step(9, milliseconds(5000))) << "the other has not come yet";
  slow->complete_step(1);
  EXPECT_NO_THROW(fast->complete_step(10, milliseconds(5000)));
}

TEST(Asynchronous, AVersionThatDoesNotComeIsNoWorkersFault) {
  TestServer server;
  const auto client = server.client("worker:0");
  client->create(whole_shard("w", kOne), [] { return floats({0}); });
  client->push({.shard = "w", .gradient = floats({-1}), .learning_rate = 1});
  Tensor value(kOne.dtype, kOne.shape);
  const ShardPull pull{.shard = "w", .target = value, .at_least = 1000};
  const Error error = error_of([&] { client->update({}, {&pull, 1}, milliseconds(200)); });
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
  EXPECT_NE(error.message().find("waited for version 1000"), std::string::npos) << error.what();
  EXPECT_EQ(error.message().find("gradients of"), std::string::npos) << error.what();
  EXPECT_EQ(error.peer(), server.address().text());
}

TEST(BoundedStaleness, NamesNoTaskAtFaultWhereSomeHaveNotCome) {
  TestServer server({.consistency = {.max_staleness = 1, .num_workers = 3}});
  const auto client = server.client("worker:0");
  const Error error = error_of([&] { client->complete_step(5, milliseconds(1000)); });
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
  EXPECT_NE(error.message().find("the slowest is 2 of 3 workers (not come yet) at 0"),
            std::string::npos)
      << error.what();
  EXPECT_EQ(error.peer(), server.address().text());
}

// Who had ended before is not waited for again.
TEST(BoundedStaleness, GoesOnWhenTheServerComesBack) {
  const TemporaryFolder folder("ps");
  TestServer server(
      {.consistency = {.max_staleness = 1, .num_workers = 2}, .snapshot_folder = folder.path()});
  const auto first = server.client("worker:0"), second = server.client("worker:1");
  first->create(whole_shard("w", kOne), [] { return floats({0}); });
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
  std::thread waiting([&] { EXPECT_EQ(fast->complete_step(3), 1) << "the other has come so far"; });
  slow->complete_step(1);
  waiting.join();
  slow->leave();
  fast->complete_step(100);
}

// Another client of the same start is what the first attempt was, which comes after all else.
TEST(BoundedStaleness, AnOldCopyOfAStepBringsNobodyBack) {
  TestServer server({.consistency = {.max_staleness = 1, .num_workers = 2}});
  const ParameterClientOptions options{
      .task = "worker:1", .job_id = "job", .incarnation = 7, .transport = transport()};
  ParameterClient leaver(server.address(), options, no_environment),
      first_attempt(server.address(), options, no_environment);
  leaver.complete_step(1);
  leaver.leave();
  first_attempt.complete_step(1);
  EXPECT_EQ(server.client()->complete_step(9, std::chrono::seconds(2)), 9) << "it waits for nobody";
}

TEST(BoundedStaleness, GoesOnWithAWorkerThatIsStartedAgain) {
  TestServer server(
      {.consistency = {.max_staleness = 2, .num_workers = 2}, .worker_grace = milliseconds(50)});
  const auto first = server.client("worker:0");
  auto second = server.client("worker:1");
  for (ParameterClient* client : {first.get(), second.get()}) client->complete_step(1);
  second = nullptr;
  EXPECT_EQ(first->complete_step(1000), 1000);
  second = server.client("worker:1");
  EXPECT_EQ(second->complete_step(1), 1000) << "it begins there";
  EXPECT_EQ(first->complete_step(1002), 1000);
  EXPECT_ERROR(first->complete_step(1003, milliseconds(150)), Code::kDeadlineExceeded, "worker:1");
}

TEST(BoundedStaleness, NamesWhoIsThereAndHoldsTheOthersUp) {
  TestServer server(
      {.consistency = {.max_staleness = 2, .num_workers = 2}, .worker_grace = milliseconds(20)});
  const auto fast = server.client("worker:0"), slow = server.client("worker:1");
  std::thread waiting([&] { EXPECT_EQ(fast->complete_step(3), 1); });
  EXPECT_TRUE(eventually(
      [&] { return !server.line("the slowest is 1 of 2 workers (not come yet) at 0").empty(); }));
  slow->complete_step(0);
  EXPECT_TRUE(eventually([&] {
    return !server
                .line(
                    "worker:0 has completed 3 steps and may not run further ahead "
                    "(max_staleness=2): the slowest is worker:1 at 0; worker:0 has been "
                    "waiting for ")
                .empty();
  }));
  slow->complete_step(1);
  waiting.join();
  EXPECT_EQ(server.lines("the slowest is worker:1"), 1) << "once in a minute";
  EXPECT_EQ(server.line("has gone"), "");
}

TEST(BoundedStaleness, SaysWhoHasGoneAndIsWaitedForNoLonger) {
  TestServer server(
      {.consistency = {.max_staleness = 2, .num_workers = 3}, .worker_grace = milliseconds(20)});
  const auto stays = server.client("worker:0");
  auto dies = server.client("worker:1"), leaves = server.client("worker:2"),
       watches = server.client("worker:3");
  for (ParameterClient* client : {stays.get(), dies.get(), leaves.get()}) client->complete_step(1);
  watches->statistics();
  leaves->leave();
  for (auto* client : {&leaves, &watches, &dies}) *client = nullptr;
  EXPECT_EQ(stays->complete_step(9), 9);
  EXPECT_TRUE(eventually(
      [&] { return !server.line("worker:1 has gone; the others wait for it no longer").empty(); }));
  EXPECT_EQ(server.lines("has gone"), 1) << "nobody waited for the others";
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

TEST(StaleGradients, DivideTheLearningRateByTheirStaleness) {
  constexpr double kRate = 0.3;
  for (const bool scale : {false, true})
    for (const int staleness : {0, 1, 2, 3, 7}) {
      SCOPED_TRACE(str(scale ? "scaled, " : "", "staleness ", staleness));
      TestServer server({.consistency = {.scale_learning_rate = scale}});
      const auto fast = server.client("worker:0"), slow = server.client("worker:1");
      const ShardSpec spec = whole_shard("w", kOne);
      fast->create(spec, [] { return floats({0}); });
      fetch(*slow, spec);
      for (int i = 0; i < staleness; ++i) pushes(*fast, 0);
      const ShardPushed pushed =
          slow->push({.shard = "w", .gradient = floats({-2}), .learning_rate = kRate});
      EXPECT_EQ(pushed.staleness, static_cast<uint64_t>(staleness));
      const double divisor = scale ? std::max(staleness, 1) : 1;
      EXPECT_NEAR(values_of(fetch(*fast, spec))[0], 2 * kRate / divisor, 1e-6);
    }
}

// Of 0, lambda leaves gradients as they are.
TEST(StaleGradients, AreCompensatedByTheWayOfTheWeightsSinceTheirPull) {
  constexpr double kRate = 0.1;
  const std::vector<float> pulled = {1, -2, 0.5, 3}, moves = {0.25, -0.5, 0, 1},
                           gradient = {0.5, -1, 2, 0};
  const TensorSpec four{DType::kFloat32, {4}};
  for (const double lambda : {0.0, 0.5, 2.0, 3.5})
    for (const int updates : {0, 1, 3}) {
      SCOPED_TRACE(str("lambda ", lambda, ", ", updates, " updates since"));
      TestServer server({.consistency = {.delay_compensation = lambda}});
      const auto fast = server.client("worker:0"), slow = server.client("worker:1");
      const ShardSpec spec = whole_shard("w", four);
      slow->create(spec, [&] { return floats(pulled); });
      fetch(*slow, spec);
      for (int i = 0; i < updates; ++i) {
        fetch(*fast, spec);
        fast->push({.shard = "w", .gradient = floats(moves), .learning_rate = 1});
      }
      slow->push({.shard = "w", .gradient = floats(gradient), .learning_rate = kRate});
      const std::vector<float> found = values_of(fetch(*fast, spec));
      for (size_t i = 0; i < found.size(); ++i) {
        const double now = pulled[i] - updates * moves[i], g = gradient[i];
        const double compensated = g + lambda * g * g * (now - pulled[i]);
        EXPECT_NEAR(found[i], now - kRate * compensated, 1e-5) << "element " << i;
      }
    }
}

}  // namespace
}  // namespace cohort::testing
