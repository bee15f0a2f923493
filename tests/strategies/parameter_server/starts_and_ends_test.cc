// How a server starts, comes back and ends, and what it has to itself meanwhile.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/file.h"
#include "strategies/parameter_server/client.h"
#include "strategies/parameter_server/server.h"
#include "strategies/parameter_server/snapshot.h"
#include "tests/strategies/parameter_server/raw_requests.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"
#include "tests/testing/file_size_limit.h"

namespace cohort::testing {
namespace {

TEST(ParameterServer, WorksInAnyOrderOfStarting) {
  TestServer server;
  server.stop();
  const auto client = server.client();
  const ShardSpec spec = whole_shard("w", kFour);
  std::thread early([&] { client->create(spec, [] { return floats({1, 2, 3, 4}); }); });
  server.start();
  early.join();
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>{1, 2, 3, 4}));
}

// Each client comes by gRPC first, and now and then its call is open when the server ends.
TEST(ParameterServer, WhoComesWhileItEndsWaitsUntilItIsStartedAgain) {
  TestServer server;
  std::atomic<bool> ending = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      while (!ending) EXPECT_NO_THROW(server.client(str("worker:", t))->statistics());
    });
  for (int round = 0; round < 30; ++round) {
    server.client("chief:0")->statistics();  // so that it serves
    server.stop();
    server.start();
  }
  ending = true;
  for (std::thread& thread : threads) thread.join();
}

// It has neither a snapshot nor a log: what it had is an error, until each makes it again.
TEST(ParameterServer, WhoComesBackWithNothingHasLostItsShardsAndSaysSo) {
  TestServer server;
  const auto first = server.client(), second = server.client("worker:1");
  const ShardSpec spec = whole_shard("w", kFour);
  const ShardPush push{.shard = "w", .gradient = floats({-1, -1, -1, -1}), .learning_rate = 1};
  first->create(spec, [] { return floats({1, 2, 3, 4}); });
  first->push(push);
  server.stop();
  server.start();
  EXPECT_ERROR(first->push(push), Code::kNotFound, "the server has lost it");
  EXPECT_ERROR(fetch(*second, spec), Code::kNotFound, "the server has lost it");
  EXPECT_ERROR(first->assign("w", floats({0, 0, 0, 0})), Code::kNotFound, "\"w\"");
  EXPECT_EQ(server->statistics().shards, 0u);
  EXPECT_TRUE(second->create(spec, [] { return floats({5, 5, 5, 5}); }));
  EXPECT_ERROR(first->push(push), Code::kNotFound, "made anew");
  EXPECT_EQ(values_of(fetch(*second, spec)), (std::vector<float>(4, 5))) << "nothing was applied";
  EXPECT_FALSE(first->create(spec, [] { return floats({1, 2, 3, 4}); }));
  const ShardPushed pushed = first->push(push);
  EXPECT_EQ(pushed.outcome, PushOutcome::kApplied);
  EXPECT_EQ(pushed.lost, 1u) << "what was acknowledged before";
  EXPECT_EQ(values_of(fetch(*first, spec)), (std::vector<float>(4, 6)));
}

// However it has used a shard, and whatever it asks for now.
TEST(ParameterServer, WhoHasUsedAShardThatWasLostIsToldThatTheNewOneIsAnother) {
  TestServer server;
  const auto maker = server.client("worker:0"), finder = server.client("worker:1"),
             reader = server.client("worker:2"), writer = server.client("worker:3"),
             pusher = server.client("worker:4"), stranger = server.client("worker:5");
  const ShardSpec spec = whole_shard("w", kFour);
  const Tensor ones = floats({1, 1, 1, 1});
  const ShardPush push{.shard = "w", .gradient = ones, .learning_rate = 1};
  maker->create(spec, [&] { return ones; });
  finder->create(spec, [&] { return ones; });
  fetch(*reader, spec);
  writer->assign("w", ones);
  pusher->push(push);
  server.stop();
  server.start();
  ASSERT_TRUE(server.client("worker:6")->create(spec, [&] { return ones; }));
  const std::string told = str(
      "parameter server ", server.address().text(),
      ": this server has a shard \"w\", but not the one that this task has used: the server has "
      "lost it, and it has been made anew since");
  for (ParameterClient* client :
       {maker.get(), finder.get(), reader.get(), writer.get(), pusher.get()}) {
    EXPECT_ERROR(fetch(*client, spec), Code::kNotFound, told);
    EXPECT_ERROR(client->push(push), Code::kNotFound, told);
    EXPECT_ERROR(client->assign("w", ones), Code::kNotFound, told);
  }
  EXPECT_EQ(server->statistics().pushes_applied, 0u);
  EXPECT_EQ(values_of(fetch(*stranger, spec)), values_of(ones)) << "who has used none";
}

TEST(ParameterServer, WhoHasUsedATableThatWasLostIsToldThatTheNewOneIsAnother) {
  using Rows = std::vector<int64_t>;
  TestServer server;
  const auto client = server.client();
  const ShardSpec table = lazy_table(8, 1, {});
  const Tensor row = Tensor::full(DType::kFloat32, {1, 1}, 1),
               none = Tensor(DType::kFloat32, {0, 1});
  client->create(table, [] { return Tensor(); });
  client->assign_rows("table", {3}, row, 0, false);
  server.stop();
  server.start();
  ASSERT_TRUE(server.client("worker:1")->create(table, [] { return Tensor(); }));
  const char* told = "made anew";
  for (const Tensor& some : {row, none}) {
    const Rows rows(static_cast<size_t>(some.shape()[0]), 3);
    EXPECT_ERROR(client->pull({.shard = "table", .target = some, .rows = rows}), Code::kNotFound,
                 told);
    EXPECT_ERROR(
        client->push({.shard = "table", .gradient = some, .learning_rate = 1, .rows = rows}),
        Code::kNotFound, told);
    EXPECT_ERROR(client->assign_rows("table", rows, some, 0, true), Code::kNotFound, told);
    EXPECT_ERROR(client->add_missing_rows("table", rows, some), Code::kNotFound, told);
  }
  EXPECT_ERROR(client->rows_in_use("table"), Code::kNotFound, told);
  EXPECT_EQ(server->statistics().rows, 0u);
  EXPECT_FALSE(client->create(table, [] { return Tensor(); }));
  EXPECT_EQ(client->rows_in_use("table"), Rows()) << "it is the new one from now on";
}

// What is restored by its name has other values, and is no other shard.
TEST(ParameterServer, WhoHasUsedAShardThatIsRestoredGoesOnWithIt) {
  const TemporaryFolder folder("ps");
  TestServer server;
  const auto first = server.client("worker:0"), second = server.client("worker:1");
  const ShardSpec spec = whole_shard("w", kFour);
  const std::vector<float> saved = {1, 2, 3, 4};
  first->create(spec, [&] { return floats(saved); });
  first->snapshot(folder.path());
  fetch(*second, spec);
  first->assign("w", floats({0, 0, 0, 0}));
  EXPECT_EQ(first->restore(folder.path()), 1);
  EXPECT_EQ(values_of(fetch(*second, spec)), saved);
  server.stop();
  server.start();
  EXPECT_EQ(first->restore(folder.path()), 1) << "made of the snapshot";
  EXPECT_EQ(values_of(fetch(*second, spec)), saved);
}

TEST(ParameterServer, EndsWhenAsked) {
  TestServer server;
  std::thread waiting([&] { server->wait(); });
  EXPECT_ERROR(server.client("worker:1")->shut_down(), Code::kPermissionDenied, "worker:1");
  server.client("chief:0")->shut_down();
  waiting.join();
}

TEST(ParameterServer, EndsWhenNobodyIsLeft) {
  TestServer server({.orphaned_after = milliseconds(100)});
  std::thread waiting([&] { server->wait(); });
  server.client()->statistics();
  waiting.join();
  EXPECT_NE(server.line("nobody has been connected"), "");
}

TEST(ParameterServer, MayWaitForEver) {
  TestServer server(
      {.orphaned_after = milliseconds::max(), .unclaimed_after = milliseconds::max()});
  TestServer other({.unclaimed_after = milliseconds(200)});
  std::thread waiting([&] { server->wait(); });
  other->wait();  // meanwhile the first one looks whether it is to end
  EXPECT_EQ(server.line("ending"), "");
  server.client("chief:0")->shut_down();
  waiting.join();
}

TEST(ParameterServer, TakesTheLongestTimesForNoLimits) {
  constexpr milliseconds kLongest = milliseconds::max();
  const TemporaryFolder folder("ps");
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2},
                     .snapshot_folder = folder.path(),
                     .snapshot_interval = kLongest,
                     .worker_grace = kLongest});
  const auto client_of = [&](const std::string& task) {
    return std::make_unique<ParameterClient>(server.address(),
                                             ParameterClientOptions{.task = task,
                                                                    .job_id = "job",
                                                                    .timeout = kLongest,
                                                                    .patience = kLongest,
                                                                    .transport = transport()},
                                             no_environment);
  };
  const auto stays = client_of("worker:0");
  auto goes = client_of("worker:1");
  const ShardSpec spec = whole_shard("w", kOne);
  stays->create(spec, [] { return floats({0}); });
  const auto push = [&](ParameterClient& client) {
    fetch(client, spec);
    return client.push({.shard = "w", .gradient = floats({-1}), .learning_rate = 1}).outcome;
  };
  EXPECT_EQ(push(*stays), PushOutcome::kCounted);
  EXPECT_EQ(push(*goes), PushOutcome::kApplied);
  goes.reset();
  EXPECT_TRUE(eventually([&] { return server->statistics().sessions == 1; }));
  EXPECT_EQ(push(*stays), PushOutcome::kCounted) << "the other one is waited for";
}

TEST(ParameterServer, TakesASnapshotWhenNobodyIsLeft) {
  const TemporaryFolder folder("ps");
  TestServer server({.snapshot_folder = folder.path(), .orphaned_after = milliseconds(100)},
                    TestServer::Stopped::kEnded);
  const ShardSpec spec = whole_shard("w", kOne);
  std::thread waiting([&] { server->wait(); });
  server.client()->create(spec, [] { return floats({3}); });
  waiting.join();
  server.stop();
  server.start();
  EXPECT_EQ(values_of(fetch(*server.client(), spec)), (std::vector<float>{3}));
}

// Whether somebody asks it to end, or it is destroyed, and though nobody waits for it.
TEST(ParameterServer, TakesASnapshotAtItsEnd) {
  const ShardSpec spec = whole_shard("w", kOne);
  for (const bool is_asked : {false, true}) {
    const TemporaryFolder folder("ps");
    TestServer server({.snapshot_folder = folder.path()}, TestServer::Stopped::kEnded);
    server.client()->create(spec, [] { return floats({3}); });
    if (is_asked) server->end();
    server.stop();
    server.start();
    EXPECT_EQ(values_of(fetch(*server.client(), spec)), (std::vector<float>{3}));
  }
}

TEST(ParameterServer, TakesNoSnapshotWhenTheJobHasEndedIt) {
  const TemporaryFolder folder("ps");
  TestServer server({.snapshot_folder = folder.path()}, TestServer::Stopped::kEnded);
  const auto client = server.client();
  client->create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
  client->shut_down();
  server.stop();
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/" + parameter_server::kSnapshotFile));
}

TEST(ParameterServer, SaysWhereItsLastSnapshotCannotBeWritten) {
  for (const bool is_asked : {false, true}) {
    const TemporaryFolder folder("ps");
    TestServer server({.snapshot_folder = folder.path()}, TestServer::Stopped::kEnded);
    server.client()->create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
    const FileSizeLimit full(8);
    if (is_asked) EXPECT_ERROR(server->end(), Code::kResourceExhausted, folder.path());
    server.stop();
    EXPECT_EQ(server.lines("no snapshot: "), is_asked ? 0 : 1) << "once, to whom it may concern";
  }
}

TEST(ParameterServer, EndsWhenNobodyEverCame) {
  TestServer server({.unclaimed_after = milliseconds(100)});
  server->wait();
  EXPECT_NE(server.line("nobody has ever come"), "");
}

// Whoever has begun a new start since would be missed by its old number.
TEST(ParameterServer, BelievesNoLedgerThatCouldNotBeWrittenOn) {
  const TemporaryFolder folder("ps");
  TestServer server({.snapshot_folder = folder.path()});
  const ShardSpec spec = whole_shard("w", kFour);
  const auto push = [](ParameterClient& client, int times) {
    for (int i = 0; i < times; ++i)
      client.push({.shard = "w", .gradient = floats({1, 1, 1, 1}), .learning_rate = 1});
  };
  const auto first = server.client("worker:0"), second = server.client("worker:1");
  for (ParameterClient* client : {first.get(), second.get()})
    client->create(spec, [] { return floats({0, 0, 0, 0}); });
  push(*first, 3);
  {
    const FileSizeLimit full(512);  // a record, of several
    push(*second, 1);
  }
  EXPECT_NE(server.line("will not be known"), "");
  push(*server.client("worker:0"), 2);
  server->snapshot();
  server.stop();
  server.start();
  const auto client = server.client();
  client->leave();
  EXPECT_EQ(server->statistics().pushes_lost, 0u) << server.line("lost=");
}

TEST(ParameterServer, RefusesAnOldStartOfATaskAlsoWhenItIsStartedAgainItself) {
  const ShardSpec spec = whole_shard("w", kFour);
  const ShardPush push{.shard = "w", .gradient = floats({-1, -1, -1, -1}), .learning_rate = 1};
  for (const bool both_have_pushed : {true, false}) {
    const TemporaryFolder folder("ps");
    TestServer server({.snapshot_folder = folder.path()});
    const auto old = server.client(), young = server.client();
    old->create(spec, [] { return floats({0, 0, 0, 0}); });
    old->push(push);
    if (both_have_pushed)
      young->push(push);
    else
      young->statistics();
    server->snapshot();
    server.stop();
    server.start();
    EXPECT_ERROR(old->push(push), Code::kFailedPrecondition, "started again since");
    young->push(push);
    EXPECT_EQ(values_of(fetch(*young, spec)), (std::vector<float>(4, both_have_pushed ? 3 : 2)));
  }
}

TEST(ParameterServer, RefusesThePortOfAnother) {
  TestServer server;
  EXPECT_ERROR(ParameterServer(server.address(), {}, no_environment), Code::kFailedPrecondition,
               "in use");
}

// As where somebody starts it twice.
TEST(ParameterServer, LeavesItsFolderToWhoHasItsPort) {
  const TemporaryFolder folder("ps");
  const ParameterServerOptions options{.snapshot_folder = folder.path()};
  TestServer server(options);
  const auto client = server.client();
  client->create(whole_shard("w", kFour), [] { return floats({0, 0, 0, 0}); });
  client->push({.shard = "w", .gradient = floats({1, 1, 1, 1}), .learning_rate = 1});
  const auto acknowledged = [&] { return read_file(folder.path() + "/pushes"); };
  const std::string before = acknowledged();
  EXPECT_FALSE(before.empty());
  EXPECT_ERROR(ParameterServer(server.address(), options, no_environment),
               Code::kFailedPrecondition, "in use");
  EXPECT_EQ(acknowledged(), before);
}

TEST(ParameterServer, HasItsFolderToItself) {
  const TemporaryFolder folder("ps");
  const ParameterServerOptions options{.snapshot_folder = folder.path()};
  TestServer first(options);
  EXPECT_ERROR(TestServer{options}, Code::kFailedPrecondition, folder.path());
  first.stop();
  const TestServer second(options);
}

TEST(ParameterServer, HasCallersWaitWhileItReadsItsSnapshot) {
  const TemporaryFolder folder("ps");
  const launcher::ReservedPort port;
  const Address address = Address::parse(port.address());
  ParameterClient client(address, {.task = "worker:0", .job_id = "job", .transport = transport()},
                         no_environment);
  std::string early;  // what is said to who comes before it is ready
  const ParameterServerOptions options{
      .job_id = "job", .snapshot_folder = folder.path(), .notice = [&](const std::string& line) {
        if (line.find("1 shards from the snapshot") == std::string::npos) return;
        parameter_server::Link link(
            grpc::CreateChannel(address.text(), grpc::InsecureChannelCredentials()),
            parameter_server::Link::Unconnected::kWait);
        EXPECT_TRUE(link.connect(soon()));
        const Error error = error_of([&] {
          link.send({.header = request("worker:1").SerializeAsString(), .payload = {}}, soon());
          link.receive(
              {.begin = [](const std::string&, size_t) {}, .take = [](const char*, size_t) {}},
              soon());
        });
        EXPECT_EQ(error.code(), Code::kUnavailable);
        early = error.message();
      }};
  {
    ParameterServer server(address, options, no_environment);
    client.create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
    server.snapshot();
  }
  ParameterServer server(address, options, no_environment);
  EXPECT_NE(early.find("reads its snapshot"), std::string::npos) << early;
  EXPECT_EQ(client.statistics().shards, 1u);
  EXPECT_EQ(client.statistics().requests_refused, 0u);
}

TEST(ParameterServer, IsDoneWhenAllWhoHaveComeSayThatTheyAre) {
  TestServer server;
  const auto first = server.client(), second = server.client("worker:1");
  first->say_done();
  EXPECT_FALSE(server->is_done()) << "nobody has come";
  for (ParameterClient* client : {first.get(), second.get()}) client->statistics();
  EXPECT_FALSE(server->is_done());
  first->say_done();
  EXPECT_FALSE(server->is_done());
  EXPECT_EQ(server->unfinished(), std::vector<std::string>{"worker:1"});
  second->say_done();
  EXPECT_TRUE(server->is_done());
  server.client("worker:1")->statistics();
  EXPECT_FALSE(server->is_done()) << "it was started again, and has ended without a word";
}

TEST(ParameterServer, IsDoneWhenTheJobEndsIt) {
  TestServer server;
  const auto client = server.client();
  client->shut_down();
  EXPECT_TRUE(server->is_done());
}

TEST(ParameterServer, WaitsForCallersUntilTheyEnd) {
  using Client = std::unique_ptr<ParameterClient>;
  constexpr std::chrono::milliseconds kMoment(20);
  constexpr std::chrono::seconds kLong(60);
  const std::vector<void (*)(Client&)> ends = {[](Client& client) { client = nullptr; },
                                               [](Client& client) { client->say_done(); },
                                               [](Client& client) { client->shut_down(); }};
  for (const auto& end : ends) {
    TestServer server;
    server->wait_for_callers(kLong);  // nobody is there
    Client client = server.client();
    client->statistics();
    const auto begin = std::chrono::steady_clock::now();
    server->wait_for_callers(kMoment);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kMoment);
    auto waited = std::async(std::launch::async, [&] { server->wait_for_callers(kLong); });
    EXPECT_EQ(waited.wait_for(kMoment), std::future_status::timeout);
    end(client);
    EXPECT_EQ(waited.wait_for(kLong / 2), std::future_status::ready);
  }
}

}  // namespace
}  // namespace cohort::testing
