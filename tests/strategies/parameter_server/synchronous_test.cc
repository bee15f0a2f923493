#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "strategies/parameter_server/consistency.h"
#include "strategies/parameter_server/server_variable.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/strategies/parameter_server/watched_rule.h"
#include "tests/testing/eventually.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/gate.h"

namespace cohort::testing {
namespace {

void pushes(ParameterClient& client, float gradient, ShardPushed* result = nullptr) {
  const ShardPushed pushed =
      client.push({.shard = "w", .gradient = floats({gradient}), .learning_rate = 1});
  if (result) *result = pushed;
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

// A number that begins with 0, in synchronous training of two workers.
std::shared_ptr<ServerVariable> number_on(const TestServer& server,
                                          const ParameterClientOptions& options) {
  const auto session = std::make_shared<ServerSession>(
      std::vector{server.address()}, options,
      ConsistencyOptions{.max_staleness = 0, .num_workers = 2}, no_environment);
  return std::make_shared<ServerVariable>(
      ServerVariable::Options{
          .variable = {.name = "n", .spec = kOne, .initial_value = [] { return floats({0}); }},
          .servers = {0}},
      session);
}

// Another client of the same start is what the first attempt was, whose answer was lost.
TEST(Synchronous, WaitsForTheUpdateOfAPushThatWasSentAgain) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2}});
  const ParameterClientOptions options{
      .task = "worker:0", .job_id = "job", .incarnation = 7, .transport = transport()};
  const auto variable = number_on(server, options);
  variable->move_by(optim::SGD(1.0).rule(), 0, {});
  ServerSession& session = *variable->session();
  ServerVariable::Calls pull(1), push(1), next(1);
  const auto pulled = variable->add_pull(pull);
  variable->pulled(pulled, session.update(pull), true);
  const auto pushed = variable->add_push(push, floats({-1}), {}, {.learning_rate = 1});
  ParameterClient first_attempt(server.address(), options, no_environment);
  EXPECT_EQ(first_attempt.push(push[0].pushes[0]).outcome, PushOutcome::kCounted);
  variable->pushed(pushed, session.update(push));
  EXPECT_EQ(server->statistics().pushes_repeated, 1u);
  variable->add_pull(next);
  EXPECT_EQ(next[0].pulls[0].at_least, 2u);
  server.client("worker:1")->push(push[0].pushes[0]);
  session.update(next);
  EXPECT_EQ(values_of(variable->storage(0)), (std::vector<float>{2}));
}

TEST(Synchronous, APushCountsOnceHoweverLongItsUpdateIsWaitedFor) {
  const ConsistencyOptions synchronous{.max_staleness = 0, .num_workers = 2};
  TestServer server({.consistency = synchronous});
  ServerSession session({server.address()},
                        {.task = "worker:0", .job_id = "job", .transport = transport()},
                        synchronous, no_environment);
  const ShardSpec spec = whole_shard("w", kOne);
  session.client(0).create(spec, [] { return floats({0}); });
  const auto other = server.client("worker:1");
  for (ParameterClient* client : {&session.client(0), other.get()}) fetch(*client, spec);
  const ShardPush push{.shard = "w", .gradient = floats({-1}), .learning_rate = 1};
  const Tensor value(DType::kFloat32, {1});
  const ShardPull pull{.shard = "w", .target = value, .at_least = 2};
  std::jthread slow([&] {
    EXPECT_TRUE(eventually([&] { return server->statistics().requests_refused > 0; }))
        << "the first wait has ended";
    other->push(push);
  });
  session.update({{.pushes = {push}, .pulls = {pull}, .awaited_epochs = {server->epoch()}}});
  slow.join();
  EXPECT_EQ(values_of(value), (std::vector<float>{2}));
  EXPECT_EQ(server->statistics().pushes_counted, 1u);
}

// The same client of before, whose first attempt comes to the server after all that it did later.
TEST(Synchronous, AnOldCopyOfAPushBringsNobodyBack) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2}});
  const ShardSpec spec = whole_shard("w", kOne);
  const ParameterClientOptions options{
      .task = "worker:1", .job_id = "job", .incarnation = 7, .transport = transport()};
  ParameterClient leaver(server.address(), options, no_environment),
      first_attempt(server.address(), options, no_environment);
  const auto stayer = server.client();
  stayer->create(spec, [] { return floats({0}); });
  for (ParameterClient* client : {&leaver, &first_attempt, stayer.get()}) fetch(*client, spec);
  ShardPushed pushed;
  pushes(leaver, -1);
  pushes(*stayer, -1, &pushed);
  EXPECT_EQ(pushed.outcome, PushOutcome::kApplied);
  leaver.leave();
  pushes(first_attempt, -1, &pushed);
  EXPECT_EQ(pushed.outcome, PushOutcome::kRepeated);
  fetch(*stayer, spec);
  pushes(*stayer, -1, &pushed);
  EXPECT_EQ(pushed.outcome, PushOutcome::kApplied) << "it waits for nobody";
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

// Clients of a synchronous server with shard "w", a zero, which they have pulled.
class Rounds {
 public:
  Rounds(int workers, int backups, milliseconds grace = milliseconds(300), std::string folder = {})
      : server_(
            {.consistency = {.max_staleness = 0, .num_workers = workers, .backup_workers = backups},
             .snapshot_folder = std::move(folder),
             .worker_grace = grace}) {
    for (int w = 0; w < workers; ++w) start(w);
  }
  void start(int worker) {
    clients_.resize(std::max(clients_.size(), static_cast<size_t>(worker) + 1));
    auto& client = clients_[static_cast<size_t>(worker)];
    client = server_.client(str("worker:", worker));
    client->create(spec_, [] { return floats({0}); });
    pull(worker);
  }
  void end(int worker) { clients_[static_cast<size_t>(worker)] = nullptr; }
  ParameterClient& operator[](int worker) { return *clients_[static_cast<size_t>(worker)]; }

  float pull(int worker, uint64_t at_least = 0) {
    Tensor value(DType::kFloat32, {1});
    version_ =
        (*this)[worker].pull({.shard = "w", .target = value, .at_least = at_least}).version.version;
    return values_of(value)[0];
  }
  // Adds so much to the sum of the update.
  PushOutcome push(int worker, float amount) {
    ShardPushed pushed;
    pushes((*this)[worker], -amount, &pushed);
    return pushed.outcome;
  }
  // The value after the update that is under way.
  float next(int worker) { return pull(worker, version_ + 1); }
  TestServer& server() { return server_; }

 private:
  const ShardSpec spec_ = whole_shard("w", kOne);
  TestServer server_;
  std::vector<std::unique_ptr<ParameterClient>> clients_;
  uint64_t version_ = 0;
};

// To add is no step: who does so waits for nobody, and nobody for it.
TEST(Synchronous, SumsAreMadeAtOnce) {
  Rounds rounds(2, 0);
  for (const int worker : {0, 1}) rounds.push(worker, 1);
  rounds[1].leave();
  const auto make_sum = [&](int caller) {
    return number_on(
        rounds.server(),
        {.task = str("evaluator:", caller), .job_id = "job", .transport = transport()});
  };
  std::vector<std::thread> threads;
  for (int caller = 0; caller < 3; ++caller)
    threads.emplace_back([&, caller] {
      const auto sum = make_sum(caller);
      for (int i = 0; i < 50; ++i) sum->assign_add(floats({2}));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(values_of(make_sum(3)->value()), (std::vector<float>{300}));
  rounds.pull(0);
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kApplied) << "who adds takes no part in training";
}

TEST(Synchronous, CountsAsLateWhatAnAssignmentDrops) {
  Rounds rounds(2, 0);
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kCounted);
  EXPECT_EQ(rounds.server()->statistics().pushes_counted, 1u);
  rounds[1].assign("w", floats({5}));
  EXPECT_EQ(rounds.server()->statistics().pushes_counted, 0u);
  EXPECT_EQ(rounds.server()->statistics().pushes_late, 1u);
  for (const int worker : {0, 1}) rounds.pull(worker);
  for (const int worker : {0, 1}) rounds.push(worker, 1);
  EXPECT_EQ(rounds.next(0), 7);
  EXPECT_EQ(rounds.server()->statistics().pushes_counted, 1u);
}

TEST(Synchronous, DoesNotWaitForWhoHasOnlyAddedBeforeTheServersRestart) {
  const TemporaryFolder folder("ps");
  Rounds rounds(2, 0, milliseconds(50), folder.path());
  const auto sum = number_on(rounds.server(),
                             {.task = "evaluator:0", .job_id = "job", .transport = transport()});
  sum->assign_add(floats({2}));
  for (const int worker : {0, 1}) rounds.push(worker, 1);
  rounds[1].leave();
  rounds.server()->snapshot();
  rounds.server().stop();
  rounds.server().start();
  EXPECT_EQ(values_of(sum->value()), std::vector<float>{2}) << "it is connected again";
  rounds.pull(0);
  rounds.push(0, 1);
  EXPECT_EQ(rounds.next(0), 2 + 2) << "the mean of one worker's, for two";
}

TEST(Synchronous, GoesOnWithoutWhoLeavesAndKeepsTheMean) {
  Rounds rounds(3, 0);
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kCounted);
  EXPECT_EQ(rounds.push(1, 2), PushOutcome::kCounted);
  rounds[1].leave();  // what it has pushed counts
  EXPECT_EQ(rounds.push(2, 3), PushOutcome::kApplied);
  EXPECT_EQ(rounds.pull(0), 6);
  rounds.pull(2);
  EXPECT_EQ(rounds.push(0, 2), PushOutcome::kCounted);
  EXPECT_EQ(rounds.push(2, 4), PushOutcome::kApplied);
  EXPECT_EQ(rounds.pull(0), 6 + (2 + 4) * 3.0f / 2);
  EXPECT_EQ(rounds.push(0, 5), PushOutcome::kCounted);
  rounds[2].leave();
  EXPECT_EQ(rounds.next(0), 15 + 5 * 3.0f) << "the update that was under way";
  EXPECT_EQ(rounds.server()->statistics().pushes_applied, 3u);
  EXPECT_EQ(rounds.server()->statistics().pushes_counted, 3u);
}

TEST(Synchronous, WaitsAgainForWhoIsBack) {
  Rounds rounds(2, 0);
  rounds.push(0, 1);
  EXPECT_EQ(rounds.push(1, 1), PushOutcome::kApplied);
  rounds[1].leave();
  rounds.pull(0);
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kApplied);
  rounds.pull(0);
  EXPECT_EQ(rounds.push(1, 100), PushOutcome::kLate) << "of an update that has been made";
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kCounted);
  rounds.pull(1);
  EXPECT_EQ(rounds.push(1, 3), PushOutcome::kApplied);
  EXPECT_EQ(rounds.pull(0), 2 + 2 + 4);
}

TEST(Synchronous, TrainingsOfOneLengthStayInStep) {
  Rounds rounds(2, 0);
  for (int training = 1; training <= 3; ++training) {
    for (int step = 0; step < 2; ++step) {
      // The first worker is always ahead: it may push while the other has not left.
      EXPECT_EQ(rounds.push(0, 1), PushOutcome::kCounted);
      if (step == 0 && training > 1) rounds[1].leave();
      EXPECT_EQ(rounds.push(1, 1), PushOutcome::kApplied);
      for (const int worker : {1, 0}) rounds.pull(worker);
    }
    rounds[0].leave();
  }
  EXPECT_EQ(rounds.pull(0), 12);
}

TEST(Synchronous, BackupWorkersStandInForWhoLeaves) {
  Rounds rounds(3, 1);
  rounds[2].leave();
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kCounted);
  EXPECT_EQ(rounds.push(1, 2), PushOutcome::kApplied);
  EXPECT_EQ(rounds.pull(0), 3);
  rounds[1].leave();
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kApplied);
  EXPECT_EQ(rounds.pull(0), 3 + 2) << "the mean of one for two";
}

TEST(Synchronous, GoesOnWithoutWhoHasGone) {
  Rounds rounds(2, 0);
  rounds.push(0, 1);
  rounds.push(1, 1);
  rounds.pull(0);
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kCounted);
  rounds.end(1);
  EXPECT_EQ(rounds.next(0), 4);
  EXPECT_NE(rounds.server().line("worker:1 has gone"), "");
  rounds.start(1);
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kApplied) << "it has done nothing yet";
  EXPECT_EQ(rounds.push(1, 1), PushOutcome::kLate);
  rounds.pull(0);
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kCounted) << "now it has";
  rounds.pull(1);
  EXPECT_EQ(rounds.push(1, 1), PushOutcome::kApplied);
}

// However many have found it so.
TEST(Synchronous, AnUpdateThatCannotBeWrittenDownIsTriedAgainOnceInAGrace) {
  constexpr milliseconds kGrace(100);
  const TemporaryFolder folder("ps");
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2},
                     .snapshot_folder = folder.path(),
                     .snapshot_interval = std::chrono::hours(1),
                     .log = ServerLog::kWritten,
                     .worker_grace = kGrace});
  const auto stayer = server.client("worker:0"), leaver = server.client("worker:1");
  const ShardSpec spec = whole_shard("w", kOne);
  stayer->create(spec, [] { return floats({0}); });
  fetch(*stayer, spec);
  pushes(*stayer, -1);
  leaver->statistics();  // it is connected
  {
    const FileSizeLimit full(8);
    for (int i = 0; i < 20; ++i) leaver->leave();
    const auto attempts = [&] { return server.lines("has to wait"); };
    const int64_t before = attempts();
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(eventually([&] { return attempts() >= before + 5; }));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 3 * kGrace);
  }
  EXPECT_TRUE(eventually([&] { return server->statistics().pushes_applied == 1; }));
  EXPECT_EQ(values_of(fetch(*stayer, spec)), std::vector<float>{2}) << "the mean of one, for two";
}

TEST(Synchronous, WhoIsRefusedTakesNoPart) {
  Rounds rounds(2, 0);
  for (const int worker : {0, 1}) rounds.push(worker, 1);
  const auto stranger = rounds.server().client("worker:2");
  EXPECT_ERROR(stranger->push({.shard = "w",
                               .gradient = Tensor::full(DType::kFloat32, {1}, 1),
                               .learning_rate = 1,
                               .rows = std::vector<int64_t>{5}}),
               Code::kOutOfRange, "row 5");
  rounds[1].leave();
  rounds.pull(0);
  EXPECT_EQ(rounds.push(0, 1), PushOutcome::kApplied) << "it would wait for the stranger's";
}

// A round that an update of its own has begun to settle, as one of its two workers has gone; the
// gate holds that update.
class SettlingRound : public ::testing::Test {
 protected:
  SettlingRound() {
    ShardSpec spec = spec_;
    spec.update = trace_update(WatchedRule(), kOne);
    staying_->create(spec, [] { return floats({0}); });
    staying_->create(whole_shard("other", kOne), [] { return floats({0}); });
    for (ParameterClient* client : {staying_.get(), going_.get()}) fetch(*client, spec_);
    for (ParameterClient* client : {staying_.get(), going_.get()}) pushes(*client, -1);
    fetch(*staying_, spec_);
    ShardPushed pushed;
    pushes(*staying_, -1, &pushed);
    EXPECT_EQ(pushed.outcome, PushOutcome::kCounted);
    gate_.close();
    going_ = nullptr;
    EXPECT_TRUE(eventually([this] { return gate_.holds_somebody(); }));
  }
  ~SettlingRound() override { gate_.open(); }

  const ShardSpec spec_ = whole_shard("w", kOne);
  Gate gate_;
  std::atomic<int> updates_ = 0;
  const UpdateWatch watch_{[this] {
    gate_.pass();
    ++updates_;
  }};
  TestServer server_{{.consistency = {.max_staleness = 0, .num_workers = 2},
                      .threads = 2,
                      .worker_grace = milliseconds(50)}};
  std::unique_ptr<ParameterClient> staying_ = server_.client("worker:0"),
                                   going_ = server_.client("worker:1");
};

TEST_F(SettlingRound, DelaysNoDeadlineElsewhere) {
  Tensor value(DType::kFloat32, {1});
  const ShardPull elsewhere{.shard = "other", .target = value, .at_least = 2};
  // The server's own error: the client's says no version, and comes 0.3 s later, which on a busy
  // machine may be the earlier one.
  EXPECT_TRUE(eventually([&] {
    const Error error = error_of([&] { staying_->update({}, {&elsewhere, 1}, milliseconds(100)); });
    return error.code() == Code::kDeadlineExceeded &&
           std::string(error.what()).find("version 2") != std::string::npos;
  }));
  EXPECT_TRUE(gate_.holds_somebody()) << "the update is under way still";
  gate_.open();
  staying_->pull({.shard = "w", .target = value, .at_least = 3});
  EXPECT_EQ(values_of(value), (std::vector<float>{4})) << "one gradient counts for two, once";
  EXPECT_TRUE(eventually([this] {
    const ServerStatistics statistics = server_->statistics();
    return statistics.pushes_applied == 2 && statistics.pushes_counted == 1;
  }));
}

TEST_F(SettlingRound, KeepsNobodyWaitingWhoAsksForTheSame) {
  const auto leaving = server_.client("worker:2");
  for (int i = 0; i < 3; ++i) leaving->leave(kPatience);
  EXPECT_TRUE(gate_.holds_somebody()) << "the update is under way still";
}

TEST_F(SettlingRound, EndsBeforeItsServer) {
  staying_ = nullptr;
  std::atomic<bool> begun = false, ended = false;
  std::thread ending([&] {
    begun = true;
    server_.stop();
    ended = true;
  });
  EXPECT_TRUE(eventually([&] { return begun.load(); }));
  EXPECT_FALSE(ended) << "an update is under way";
  EXPECT_EQ(updates_, 1);
  gate_.open();
  ending.join();
  EXPECT_EQ(updates_, 2);
}

TEST(Synchronous, RowsOfFewerWorkersKeepTheMean) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 4}});
  const TensorSpec table{DType::kFloat32, {4, 1}};
  const ShardSpec spec = whole_shard("w", table);
  for (int w = 0; w < 4; ++w) {
    const auto client = server.client(str("worker:", w));
    client->create(spec, [&] { return Tensor::zeros(table.dtype, table.shape); });
    fetch(*client, spec);
    if (w < 2)
      client->leave();
    else
      client->push({.shard = "w",
                    .gradient = Tensor::full(DType::kFloat32, {2, 1}, -1),
                    .learning_rate = 1,
                    .rows = std::vector<int64_t>{w, 0}});
  }
  const auto client = server.client();
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>{4, 0, 2, 2}));
}

TEST(Synchronous, NamesWhomTheOthersWaitForWithinTwentySteps) {
  using Clock = std::chrono::steady_clock;
  for (const int slow : {0, 1}) {
    Rounds rounds(2, 0);
    Clock::duration rest{0};  // of the step before
    for (int step = 0; step < 20; ++step) {
      const auto begin = Clock::now();
      const auto nap = milliseconds(5) + 5 * rest;  // slow beside all else, on any machine
      rounds.push(1 - slow, 1);
      std::this_thread::sleep_for(nap);
      rounds.push(slow, 1);
      for (const int worker : {0, 1}) rounds.pull(worker);
      rest = std::max<Clock::duration>(Clock::now() - begin - nap, Clock::duration{0});
    }
    EXPECT_NE(rounds.server().line(str("wait for worker:", slow)), "");
    EXPECT_EQ(rounds.server().line(str("wait for worker:", 1 - slow)), "");
  }
}

TEST(Synchronous, NamesNobodyWhereNobodyIsSlow) {
  Rounds rounds(2, 0);
  for (int step = 0; step < 40; ++step) {
    for (const int worker : {step % 2, 1 - step % 2}) rounds.push(worker, 1);
    for (const int worker : {0, 1}) rounds.pull(worker);
  }
  EXPECT_EQ(rounds.server().line("wait for"), "");
}

TEST(Synchronous, NamesWhoIsThereAndSendsNothing) {
  Rounds rounds(2, 0, milliseconds(20));
  for (const int worker : {0, 1}) rounds.push(worker, 1);
  for (const int worker : {0, 1}) rounds.pull(worker);
  rounds.push(0, 1);
  float value = 0;
  std::thread waiting([&] { value = rounds.next(0); });
  EXPECT_TRUE(eventually([&] { return !rounds.server().line("gradients of worker:1").empty(); }));
  rounds.push(1, 2);
  waiting.join();
  EXPECT_EQ(value, 2 + 3);
  EXPECT_EQ(rounds.server().line("gradients of worker:0"), "");
}

// As a session does, which looks in between whether the server is still the same.
TEST(Synchronous, NamesWhoSendsNothingToThoseWhoAskAgainAndAgain) {
  Rounds rounds(2, 0, milliseconds(60));
  for (const int worker : {0, 1}) rounds.push(worker, 1);
  for (const int worker : {0, 1}) rounds.pull(worker);
  rounds.push(0, 1);
  Tensor value(DType::kFloat32, {1});
  const ShardPull next{.shard = "w", .target = value, .at_least = 3};
  EXPECT_TRUE(eventually([&] {
    EXPECT_ERROR(rounds[0].update({}, {&next, 1}, milliseconds(100)), Code::kDeadlineExceeded,
                 "worker:1");
    return !rounds.server().line("gradients of worker:1").empty();
  }));
}

TEST(Synchronous, SaysWhatItWaitsFor) {
  Rounds rounds(2, 0);
  Tensor value(DType::kFloat32, {1});
  const ShardPull pull{.shard = "w", .target = value, .at_least = 2};
  EXPECT_ERROR(rounds[0].update({}, {&pull, 1}, milliseconds(200)), Code::kDeadlineExceeded,
               "version 2");
  rounds.push(1, 1);
  rounds.push(0, 1);
  rounds.pull(1);
  rounds.push(1, 1);
  const ShardPull next{.shard = "w", .target = value, .at_least = 3};
  EXPECT_ERROR(rounds[1].update({}, {&next, 1}, milliseconds(200)), Code::kDeadlineExceeded,
               "which needs the gradients of 2 workers, and has none yet of worker:0");
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

}  // namespace
}  // namespace cohort::testing
