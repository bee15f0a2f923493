#include "strategies/parameter_server/server.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "core/base/program.h"
#include "core/graph/graph.h"
#include "strategies/parameter_server/client.h"
#include "strategies/parameter_server/server_session.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/certificates.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

TEST(ParameterServer, KeepsWhatTheFirstClientGave) {
  TestServer server;
  const auto first = server.client(), second = server.client("worker:1");
  const ShardSpec spec = whole_shard("w", kFour);
  EXPECT_TRUE(first->create(spec, [] { return floats({1, 2, 3, 4}); }));
  bool asked = false;
  EXPECT_FALSE(second->create(spec, [&] { return asked = true, floats({9, 9, 9, 9}); }));
  EXPECT_FALSE(asked);
  EXPECT_EQ(values_of(fetch(*second, spec)), (std::vector<float>{1, 2, 3, 4}));
}

// There need not be memory for what each of them brings.
TEST(ParameterServer, MakesAShardOnceWhereSeveralBringIt) {
  constexpr int kWorkers = 2, kTrials = 5;
  const TensorSpec large{DType::kFloat32, {8 << 20}};
  const ShardSpec spec = whole_shard("w", large);
  for (int trial = 0; trial < kTrials; ++trial) {
    TestServer server({.max_bytes = large.bytes() + large.bytes() / 2});
    std::atomic<int> asked = 0, made = 0;
    std::vector<std::thread> workers;
    for (int worker = 0; worker < kWorkers; ++worker)
      workers.emplace_back([&, worker] {
        const auto client = server.client(str("worker:", worker));
        const Error error = error_of([&] {
          made += client->create(spec, [&] {
            ++asked;
            EXPECT_TRUE(eventually([&] { return asked == kWorkers; }));
            return Tensor::zeros(large.dtype, large.shape);
          });
        });
        EXPECT_EQ(error.message(), "no error");
      });
    for (std::thread& worker : workers) worker.join();
    EXPECT_EQ(made.load(), 1);
  }
}

TEST(ParameterServer, RefusesAnotherShardOfTheSameName) {
  TestServer server;
  const auto client = server.client();
  client->create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
  EXPECT_ERROR(client->create(whole_shard("w", {DType::kFloat32, {5}}), [] { return Tensor(); }),
               Code::kInvalidArgument, "[5]");
  EXPECT_ERROR(fetch(*client, whole_shard("v", kFour)), Code::kNotFound, "\"v\"");
}

TEST(ParameterServer, SaysWhichSlotsAndRowsOnFirstUseDiffer) {
  TestServer server;
  const auto client = server.client();
  const auto none = [] { return Tensor(); };
  const auto adagrad = [](double initial) {
    return whole_shard("w", kFour, optim::Adagrad(1.0, {.initial_accumulator_value = initial}));
  };
  client->create(adagrad(0.1), [] { return floats({1, 2, 3, 4}); });
  EXPECT_ERROR(client->create(whole_shard("w", kFour), none), Code::kInvalidArgument, "no slots");
  for (const char* part : {"\"accumulator\" of 0.1,", "\"accumulator\" of 0.1000001"})
    EXPECT_ERROR(client->create(adagrad(0.1000001), none), Code::kInvalidArgument, part);
  client->create(lazy_table(8, 2, {.a = 1}), none);
  EXPECT_ERROR(client->create(lazy_table(8, 2, {.a = 1, .seed = 7}), none), Code::kInvalidArgument,
               "seed 7");
}

TEST(ParameterServer, RefusesAnOptimizerWithOtherConstants) {
  const TemporaryFolder folder("ps");
  TestServer server({.snapshot_folder = folder.path()});
  const auto shard = [](const optim::SGDOptions& options, double decay = 0) {
    ShardSpec spec = whole_shard("w", kFour);
    spec.update = trace_update(optim::SGD(1.0, options).rule(), kFour, decay);
    return spec;
  };
  const ShardSpec spec = shard({.momentum = 0.5});
  const auto initial = [] { return floats({1, 2, 3, 4}); };
  EXPECT_TRUE(server.client()->create(spec, initial));
  for (int start = 0; start < 2; ++start) {
    const auto client = server.client();
    EXPECT_FALSE(client->create(spec, initial));
    for (const ShardSpec& other :
         {shard({.momentum = 0.25}), shard({.momentum = 0.5, .nesterov = true}),
          shard({.momentum = 0.5}, 0.1)})
      EXPECT_ERROR(client->create(other, initial), Code::kInvalidArgument, folder.path());
    server->snapshot();
    server.stop();
    server.start();
  }
  const NameScope scope("elsewhere");
  const ShardSpec same = shard({.momentum = 0.5});
  EXPECT_NE(same.update.dense, spec.update.dense) << "the names of its nodes";
  EXPECT_FALSE(server.client()->create(same, initial));
}

TEST(ParameterServer, AppliesGradientsWithItsOptimizer) {
  TestServer server;
  const auto client = server.client();
  const ShardSpec spec = whole_shard("w", kFour, optim::SGD(1.0, {.momentum = 0.5}));
  client->create(spec, [] { return floats({1, 2, 3, 4}); });
  for (int i = 0; i < 2; ++i)
    client->push({.shard = "w", .gradient = floats({1, 0, -1, 2}), .learning_rate = 0.5});
  // m = -0.5 g, then -0.75 g; w = w - 1.25 g
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>{-0.25, 2, 4.25, 1.5}));
  EXPECT_EQ(values_of(fetch(*client, spec, 1)), (std::vector<float>{-0.75, 0, 0.75, -1.5}));
}

TEST(ParameterServer, AddsUpWhatEachWorkerPushesToAShardOfItsOwn) {
  constexpr int kWorkers = 3, kPushes = 50;
  TestServer server;
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w)
    workers.emplace_back([&server, w] {
      const auto client = server.client(str("worker:", w));
      const ShardSpec spec = whole_shard(str("w", w), kFour);
      client->create(spec, [] { return floats({0, 0, 0, 0}); });
      const auto own = [w](float times) {
        const float x = times * static_cast<float>(w + 1);
        return std::vector<float>{x, 2 * x, -x, 0};
      };
      Tensor value(DType::kFloat32, {4});
      const ShardPush push{.shard = spec.name, .gradient = floats(own(-1)), .learning_rate = 1};
      const ShardPull pull{.shard = spec.name, .target = value};
      for (int i = 0; i < kPushes; ++i) client->push(push);
      EXPECT_EQ(values_of(fetch(*client, spec)), own(kPushes));
      for (int i = 0; i < kPushes; ++i) client->update({&push, 1}, {&pull, 1});
      EXPECT_EQ(values_of(value), own(2 * kPushes)) << "each call has pulled what it has pushed";
    });
  for (std::thread& worker : workers) worker.join();
}

// The number of the update is counted where it happens.
TEST(ParameterServer, GivesAdamItsStep) {
  TestServer server;
  const auto client = server.client();
  const ShardSpec spec = whole_shard("w", kFour, optim::Adam(0.1));
  client->create(spec, [] { return floats({0, 0, 0, 0}); });
  for (int i = 0; i < 3; ++i)
    client->push({.shard = "w", .gradient = floats({1, -2, 3, -4}), .learning_rate = 0.1});
  const auto values = values_of(fetch(*client, spec));
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(values[i], i % 2 ? 0.3 : -0.3, 1e-5) << i;
}

TEST(ParameterServer, CountsOnFromWhatTheOptimizerSays) {
  TestServer server;
  const auto client = server.client();
  const auto moved = [&](const std::string& name, const std::vector<uint64_t>& steps) {
    const ShardSpec spec = whole_shard(name, kFour, optim::Adam(0.1));
    client->create(spec, [] { return floats({0, 0, 0, 0}); });
    client->assign(name, floats({1, 1, 1, 1}), 1);
    client->assign(name, floats({1, 1, 1, 1}), 2);
    for (const uint64_t step : steps)
      client->push(
          {.shard = name, .gradient = floats({1, -2, 3, -4}), .learning_rate = 0.1, .step = step});
    return values_of(fetch(*client, spec));
  };
  const auto expected = moved("a", {50, 51, 52});
  EXPECT_EQ(moved("b", {50, 0, 0}), expected);
  EXPECT_EQ(moved("c", {50, 50, 49}), expected) << "two workers count the same one";
  EXPECT_NE(moved("d", {0, 0, 0}), expected);
  EXPECT_ERROR(
      client->push({.shard = "a", .gradient = floats({0, 0, 0, 0}), .step = kMaxUpdateNumber + 1}),
      Code::kInvalidArgument, "is update");
}

TEST(ParameterServer, SendsAValueOnlyOnce) {
  TestServer server;
  const auto client = server.client();
  const ShardSpec spec = whole_shard("w", kFour);
  client->create(spec, [] { return floats({1, 2, 3, 4}); });
  Tensor target(DType::kFloat32, {4});
  const ShardPulled first = client->pull({.shard = "w", .target = target});
  EXPECT_FALSE(first.was_current);
  EXPECT_TRUE(client->pull({.shard = "w", .target = target, .at_hand = first.version}).was_current);
  client->push({.shard = "w", .gradient = floats({1, 1, 1, 1}), .learning_rate = 1});
  EXPECT_FALSE(
      client->pull({.shard = "w", .target = target, .at_hand = first.version}).was_current);
  EXPECT_EQ(values_of(target), (std::vector<float>{0, 1, 2, 3}));
}

TEST(ParameterServer, PushesAndPullsInOneCall) {
  TestServer server;
  const auto client = server.client();
  std::vector<ShardPush> pushes;
  std::vector<ShardPull> pulls;
  // Small ones go together, large ones in several messages.
  const std::vector<int64_t> sizes = {1, 7, 1000, 300'000, 0, 700'001, 16};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const TensorSpec spec{DType::kFloat32, {sizes[i]}};
    const std::string name = str("w", i);
    client->create(whole_shard(name, spec),
                   [&] { return Tensor::full(spec.dtype, spec.shape, 10); });
    pushes.push_back({.shard = name,
                      .gradient = Tensor::full(spec.dtype, spec.shape, static_cast<double>(i)),
                      .learning_rate = 1});
    pulls.push_back({.shard = name, .target = Tensor(spec.dtype, spec.shape)});
  }
  const UpdateResult result = client->update(pushes, pulls);
  ASSERT_EQ(result.pushed.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(result.pushed[i].outcome, PushOutcome::kApplied);
    for (const float value : pulls[i].target.values<float>())
      ASSERT_EQ(value, 10 - static_cast<float>(i));
  }
}

TEST(ParameterServer, AssignsValuesAndSlots) {
  TestServer server;
  const auto client = server.client();
  const ShardSpec spec = whole_shard("w", kFour, optim::Adagrad(1.0));
  client->create(spec, [] { return floats({1, 2, 3, 4}); });
  client->assign("w", floats({5, 6, 7, 8}));
  client->assign("w", floats({4, 4, 4, 4}), 1);
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(values_of(fetch(*client, spec, 1)), (std::vector<float>{4, 4, 4, 4}));
  EXPECT_ERROR(client->assign("w", floats({1})), Code::kInvalidArgument, "has to be float32[4]");
  EXPECT_ERROR(client->assign("w", floats({1, 2, 3, 4}), 2), Code::kInvalidArgument, "part 2");
}

// Every worker's pushes are whole in every value that anybody sees.
TEST(ParameterServer, NeverTearsAnUpdate) {
  TestServer server;
  constexpr int kWorkers = 3, kPushes = 30;
  constexpr int64_t kElements = 200'000;
  const TensorSpec spec{DType::kFloat32, {kElements}};
  const ShardSpec shard = whole_shard("w", spec);
  std::atomic<int> torn = 0;
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w)
    workers.emplace_back([&, w] {
      const auto client = server.client(str("worker:", w));
      client->create(shard, [&] { return Tensor::zeros(spec.dtype, spec.shape); });
      const Tensor gradient = Tensor::full(spec.dtype, spec.shape, -1);
      Tensor value(spec.dtype, spec.shape);
      for (int i = 0; i < kPushes; ++i) {
        const ShardPush push{.shard = "w", .gradient = gradient, .learning_rate = 1};
        const ShardPull pull{.shard = "w", .target = value};
        client->update({&push, 1}, {&pull, 1});
        const auto values = values_of(value);
        for (const float x : values) torn += x != values[0];
      }
    });
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(torn, 0);
  const auto client = server.client();
  EXPECT_EQ(values_of(fetch(*client, shard))[0], kWorkers * kPushes);
  const ServerStatistics s = server->statistics();
  EXPECT_EQ(s.pushes_applied, kWorkers * kPushes);
  EXPECT_EQ(std::accumulate(s.staleness.begin(), s.staleness.end(), uint64_t{0}), s.pushes_applied);
}

TEST(ParameterServer, MeasuresStaleness) {
  constexpr size_t kRounds = 5;
  for (const size_t num_workers : {1u, 2u, 3u, 4u, 7u}) {
    SCOPED_TRACE(str(num_workers, " workers"));
    TestServer server;
    std::vector<std::unique_ptr<ParameterClient>> workers;
    const ShardSpec spec = whole_shard("w", kFour);
    for (size_t w = 0; w < num_workers; ++w) {
      workers.push_back(server.client(str("worker:", w)));
      workers.back()->create(spec, [] { return floats({0, 0, 0, 0}); });
      fetch(*workers.back(), spec);
    }
    // Round-robin: between a worker's pull and its push, the others have pushed once each.
    for (size_t round = 0; round < kRounds; ++round)
      for (size_t w = 0; w < num_workers; ++w) {
        const ShardPushed pushed =
            workers[w]->push({.shard = "w", .gradient = floats({1, 1, 1, 1}), .learning_rate = 1});
        EXPECT_EQ(pushed.staleness, round > 0 ? num_workers - 1 : w);
        fetch(*workers[w], spec);
      }
    EXPECT_EQ(server->statistics().staleness[num_workers - 1], num_workers * (kRounds - 1) + 1);
  }
}

TEST(ParameterServer, AppliesWorkThatIsDoneAgainByAnotherOnce) {
  TestServer server;
  const auto first = server.client("worker:0"), second = server.client("worker:1");
  const ShardSpec spec = whole_shard("w", {DType::kFloat32, {2}});
  first->create(spec, [] { return floats({0, 0}); });
  const auto push = [](ParameterClient& client, uint64_t incarnation, uint64_t sequence) {
    client.mark_pushes(ParameterClient::Source{"chief:0/lane-0", incarnation, sequence});
    return client.push({.shard = "w", .gradient = floats({-1, -2}), .learning_rate = 1}).outcome;
  };
  EXPECT_EQ(push(*first, 1, 3), PushOutcome::kApplied);
  EXPECT_EQ(push(*second, 1, 3), PushOutcome::kRepeated);
  EXPECT_EQ(push(*second, 1, 2), PushOutcome::kRepeated) << "of work before, by who was away";
  EXPECT_EQ(push(*first, 1, 5), PushOutcome::kApplied) << "numbers may have gaps";
  EXPECT_EQ(values_of(fetch(*first, spec)), (std::vector<float>{2, 4}));
  EXPECT_EQ(push(*second, 2, 1), PushOutcome::kApplied) << "the source has been started again";
  EXPECT_ERROR(push(*first, 1, 6), Code::kFailedPrecondition, "chief:0/lane-0");
  first->mark_pushes({});
  EXPECT_EQ(first->push({.shard = "w", .gradient = floats({-1, -2}), .learning_rate = 1}).outcome,
            PushOutcome::kApplied);
  EXPECT_EQ(values_of(fetch(*first, spec)), (std::vector<float>{4, 8}));
  EXPECT_EQ(server->statistics().pushes_lost, 0u) << "what was repeated is not missed later";
}

TEST(ParameterServer, NamesTheServerThatIsNotThere) {
  TestServer server;
  const std::string address = server.address().text();
  server.stop();
  EXPECT_ERROR(server.client("worker:0", milliseconds(300))->statistics(), Code::kUnavailable,
               address);
}

TEST(ParameterClient, SaysForWhichServerItHasBeenWaiting) {
  TestServer server;
  const std::string address = server.address().text();
  server.stop();
  std::promise<std::string> promise;
  std::once_flag said;
  ParameterClient client(server.address(),
                         {.task = "worker:1",
                          .job_id = "job",
                          .server = "ps:0",
                          .transport = transport(),
                          .notice =
                              [&](const std::string& line) {
                                std::call_once(said, [&] { promise.set_value(line); });
                              }},
                         no_environment);
  std::thread waiting([&] { EXPECT_THROW(client.statistics(), Error); });
  auto line = promise.get_future();
  const auto status = line.wait_for(std::chrono::seconds(50));
  client.cancel();
  waiting.join();
  ASSERT_EQ(status, std::future_status::ready);
  EXPECT_TRUE(line.get().starts_with(
      str("cohort: worker:1: waiting for parameter server ps:0 at ", address, " since ")));
}

// However requests travel, and whatever is said.
TEST(ParameterServer, IsNamedInWhatItRefuses) {
  TestServer server;
  const auto client_of = [&](const std::string& called) {
    return ParameterClient(server.address(),
                           {.task = "worker:1",
                            .job_id = "job",
                            .server = called,
                            .timeout = std::chrono::seconds(20),
                            .transport = transport()},
                           no_environment);
  };
  Tensor target(DType::kFloat32, {4});
  const ShardPull pull{.shard = "a\nname", .target = target};
  const std::string address = server.address().text();
  const std::string refusal =
      "this server has no shard \"a\nname\": it has not been created, or the server has lost it: "
      "then a new strategy with new variables makes it again, into which a checkpoint can be "
      "loaded";

  const Error of_task = error_of([&] { client_of("ps:3").pull(pull); });
  EXPECT_EQ(of_task.code(), Code::kNotFound);
  EXPECT_EQ(of_task.message(), str("parameter server ps:3 at ", address, ": ", refusal));
  EXPECT_EQ(of_task.peer(), "ps:3");

  const Error of_address = error_of([&] { client_of("").pull(pull); });
  EXPECT_EQ(of_address.message(), str("parameter server ", address, ": ", refusal));
  EXPECT_EQ(of_address.peer(), address);

  ServerSession session({server.address()},
                        {.task = "worker:1", .job_id = "job", .transport = transport()}, {},
                        no_environment);
  EXPECT_EQ(error_of([&] { session.client(0).pull(pull); }).peer(), "ps:0");

  const Error of_caller = error_of([&] { client_of("ps:3").snapshot("/nowhere"); });
  EXPECT_EQ(of_caller.code(), Code::kPermissionDenied);
  EXPECT_EQ(of_caller.peer(), "worker:1") << "who is at fault";
}

// What is longer than gRPC lets through comes shortened, with its code.
TEST(ParameterServer, RefusesInWordsThatFit) {
  TestServer server;
  const ShardSpec spec = whole_shard("w", kFour);
  const auto client = server.client();
  client->create(spec, [] { return floats({1, 2, 3, 4}); });
  ShardSpec other = spec;
  for (int i = 0; i < 2000; ++i) other.variable += "\xc3\xa4";
  EXPECT_ERROR(client->create(other,
                              [] {
                                return floats({1, 2, 3, 4});
                              }),
               Code::kInvalidArgument, "shard \"w\" has been created");
}

TEST(ParameterClient, DoesNotWaitForAServerThatIsAwayWhenItsProcessIsToStop) {
  TestServer server;
  const auto client = server.client();
  client->statistics();
  server.stop();
  request_stop(StopRequest::kTermination);
  EXPECT_ERROR(client->statistics(), Code::kCancelled, server.address().text());
  server.start();
  EXPECT_EQ(client->statistics().shards, 0u) << "it is there";
  init();  // forgets it
}

TEST(ParameterClient, CanBeCancelled) {
  TestServer server;
  const auto client = server.client();
  const ShardSpec spec = whole_shard("w", kFour);
  client->create(spec, [] { return floats({1, 2, 3, 4}); });
  std::thread waiting([&] {
    Tensor target(DType::kFloat32, {4});
    EXPECT_ERROR(client->pull({.shard = "w", .target = target, .at_least = 100}), Code::kCancelled,
                 "cancelled");
  });
  EXPECT_TRUE(eventually([&] { return server->statistics().sessions > 0; }));
  client->cancel();
  waiting.join();
  EXPECT_ERROR(client->statistics(), Code::kCancelled, "cancelled");
}

TEST(ParameterServer, RefusesOptionsThatAreOutOfRange) {
  const auto refused = [](const ParameterServerOptions& options, const char* what) {
    EXPECT_ERROR(TestServer{options}, Code::kInvalidArgument, what);
  };
  refused({.threads = -3}, "threads of a parameter server must be at least 0, got -3");
  refused({.num_servers = -1}, "num_servers of a parameter server must be at least 0, got -1");
  refused({.max_sessions = 0}, "max_sessions of a parameter server must be at least 1, got 0");
  refused({.max_sessions = -1}, "max_sessions of a parameter server must be at least 1, got -1");
  for (const auto& [option, name] :
       {std::pair{&ParameterServerOptions::snapshot_interval, "snapshot_interval"},
        {&ParameterServerOptions::orphaned_after, "orphaned_after"},
        {&ParameterServerOptions::unclaimed_after, "unclaimed_after"},
        {&ParameterServerOptions::worker_grace, "worker_grace"}}) {
    ParameterServerOptions options;
    options.*option = milliseconds(-1);
    const std::string what = str(name, " of a parameter server must be at least 0 ms, got -1 ms");
    refused(options, what.c_str());
  }
}

TEST(ParameterClient, RefusesTimesThatAreOutOfRange) {
  const TestServer server;
  for (const int time : {0, -1}) {
    const std::string range = str("must be more than 0 ms, got ", time, " ms");
    ParameterClientOptions impatient{.task = "worker:0"}, hasty{.task = "worker:0"};
    impatient.patience = hasty.timeout = milliseconds(time);
    EXPECT_ERROR(ParameterClient(server.address(), impatient, no_environment),
                 Code::kInvalidArgument, str("the patience with a parameter server ", range));
    EXPECT_ERROR(ParameterClient(server.address(), hasty, no_environment), Code::kInvalidArgument,
                 str("the timeout with a parameter server ", range));
  }
}

// The table of who may ask for what, by the certificate.
TEST(Certificates, ACallerIsTheTaskThatItsCertificateNames) {
  const Certificates certificates;
  const auto files = [&](const std::string& task) {
    certificates.sign(task, str(Certificates::kNames, ",URI:cohort://job/worker/", task));
    return certificates.files(task);
  };
  TestServer server({.tls = certificates.files()});
  const std::pair<const char*, TlsFiles> callers[] = {
      {"worker:0", files("0")}, {"worker:1", files("1")}, {"", certificates.files()}};
  for (const auto& [owner, tls] : callers)
    for (const std::string task : {"worker:0", "worker:1", "ps:0"}) {
      ParameterClient client(server.address(), {.task = task, .job_id = "job", .tls = tls},
                             no_environment);
      const Error error = error_of([&] { client.statistics(); });
      EXPECT_EQ(error.code() == Code::kPermissionDenied, *owner != 0 && task != owner)
          << owner << " as " << task << ": " << error.what();
    }
}

TEST(Certificates, TheServerTellsOnceWhoSpeaksPlainText) {
  const Certificates certificates;
  TestServer server({.tls = certificates.files()});
  ParameterClient client(server.address(),
                         {.task = "worker:0", .job_id = "job", .timeout = milliseconds(500)},
                         no_environment);
  EXPECT_ERROR(client.statistics(), Code::kUnavailable, "");
  EXPECT_NE(server.line("parameter server: refuses a task at 127.0.0.1: ").find("not speak TLS"),
            std::string::npos);
  EXPECT_EQ(server.lines("refuses a task"), 1);
}

}  // namespace
}  // namespace cohort::testing
