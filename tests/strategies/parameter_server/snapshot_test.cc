#include "strategies/parameter_server/snapshot.h"

#include <atomic>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "core/base/crc32c.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "strategies/parameter_server/partitioner.h"
#include "strategies/parameter_server/push_ledger.h"
#include "strategies/parameter_server/reshard.h"
#include "strategies/parameter_server/service.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/resources.h"

namespace cohort::testing {
namespace {

using parameter_server::Mark;
using parameter_server::PushLedger;
const TensorSpec kFour{DType::kFloat32, {4}};

ParameterServerOptions keeping(const TemporaryFolder& folder) {
  return {.snapshot_folder = folder.path() + "/ps-0"};
}

TEST(Snapshot, BringsBackValuesSlotsAndMarks) {
  const TemporaryFolder folder("ps");
  TestServer server(keeping(folder));
  const auto client = server.client();
  const ShardSpec spec = whole_shard("w", kFour, optim::Adam(0.1));
  client->create(spec, [] { return floats({1, 2, 3, 4}); });
  const ShardPush push{.shard = "w", .gradient = floats({1, -1, 2, 0}), .learning_rate = 0.1};
  for (int i = 0; i < 3; ++i) client->push(push);
  client->snapshot(folder.path() + "/ps-0");
  client->push(push);
  const auto wanted = values_of(fetch(*client, spec));

  server.stop();
  server.start();
  EXPECT_NE(server.line("1 shards from the snapshot"), "");
  // Of the four acknowledged pushes, three came back. The step of Adam goes on where it was.
  client->push(push);
  EXPECT_NE(server.line("lost=1 "), "") << server.line("lost");
  EXPECT_EQ(values_of(fetch(*client, spec)), wanted);
  EXPECT_EQ(server->statistics().pushes_lost, 1u);
}

TEST(Snapshot, BringsBackEveryDtype) {
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    const TensorSpec some{static_cast<DType>(dtype), {3}};
    SCOPED_TRACE(dtype_name(some.dtype));
    const TemporaryFolder folder("ps");
    TestServer server(keeping(folder));
    const auto client = server.client();
    ShardSpec spec = whole_shard("w", {DType::kFloat32, {3}});
    spec.whole = some;
    spec.update = {};
    client->create(spec, [&] { return Tensor::full(some.dtype, some.shape, 1); });
    client->snapshot(folder.path() + "/ps-0");
    server.stop();
    server.start();
    EXPECT_NE(server.line("1 shards from the snapshot"), "");
    const Tensor back = fetch(*client, spec), ones = Tensor::full(some.dtype, some.shape, 1);
    EXPECT_EQ(std::memcmp(back.raw(), ones.raw(), ones.bytes()), 0);
  }
}

TEST(Snapshot, HasTableRowsOnly) {
  const TemporaryFolder folder("ps");
  TestServer server(keeping(folder));
  const auto client = server.client();
  ShardSpec spec = whole_shard("table", {DType::kFloat32, {8, 2}}, optim::SGD(1.0));
  spec.whole.shape = Shape{int64_t{1} << 33, 2};
  spec.rows = int64_t{1} << 33;
  spec.update.dense.clear();
  spec.lazy = RowInitializer{.a = 5};
  client->create(spec, [] { return Tensor(); });
  client->push({.shard = "table",
                .gradient = Tensor::full(DType::kFloat32, {2, 2}, 1),
                .learning_rate = 1,
                .rows = std::vector<int64_t>{7, 1'000'000'000}});
  client->snapshot(folder.path() + "/ps-0");
  server.stop();
  server.start();
  Tensor target(DType::kFloat32, {3, 2});
  client->pull(
      {.shard = "table", .target = target, .rows = std::vector<int64_t>{7, 8, 1'000'000'000}});
  EXPECT_EQ(values_of(target), (std::vector<float>{4, 4, 5, 5, 4, 4}));
  EXPECT_EQ(server->statistics().rows, 2u);
}

// A retry that comes after the restart is still the same push.
TEST(Snapshot, KeepsPushesExactlyOnce) {
  const TemporaryFolder folder("ps");
  parameter_server::BufferCache buffers(0);
  parameter_server::Shard shard(whole_shard("w", kFour), floats({0, 0, 0, 0}),
                                {.epoch = 1, .buffers = &buffers});
  const auto push = [&](parameter_server::Shard& to, uint64_t sequence, uint64_t incarnation = 5) {
    return to.push({.task = "worker:0",
                    .mark = {.incarnation = incarnation, .sequence = sequence},
                    .acknowledged = sequence - 1,
                    .learning_rate = 1,
                    .gradient = floats({-1, -1, -1, -1})});
  };
  EXPECT_EQ(push(shard, 1).outcome, PushOutcome::kApplied);
  EXPECT_EQ(push(shard, 1).outcome, PushOutcome::kRepeated);
  EXPECT_EQ(push(shard, 2).outcome, PushOutcome::kApplied);
  parameter_server::SnapshotWriter writer(folder.path());
  writer.add(shard.state());
  writer.commit();
  const auto saved = parameter_server::read_snapshot(folder.path());
  ASSERT_EQ(saved.size(), 1u);
  parameter_server::Shard restored(saved[0].load(), {.epoch = 2, .buffers = &buffers});
  EXPECT_EQ(push(restored, 2).outcome, PushOutcome::kRepeated);
  EXPECT_EQ(push(restored, 3).outcome, PushOutcome::kApplied);
  EXPECT_EQ(push(restored, 1, 6).outcome, PushOutcome::kApplied) << "another start of the task";
  EXPECT_EQ(values_of(restored.part(0)), (std::vector<float>(4, 4)));
}

// Three pushes of a server that ends without having been asked to, after its snapshot.
class Lost : public ::testing::Test {
 protected:
  Lost() {
    for (const char* name : {"v", "w"})
      worker_->create(whole_shard(name, kFour), [] { return floats({0, 0, 0, 0}); });
    push(*worker_, "w");
    server_->snapshot();
    for (const char* name : {"w", "v", "v"}) push(*worker_, name);
    server_.stop();
    server_.start();
  }
  static void push(ParameterClient& client, const std::string& shard) {
    client.push({.shard = shard, .gradient = floats({1, 1, 1, 1}), .learning_rate = 1});
  }
  bool is_lost(uint64_t pushes) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (server_->statistics().pushes_lost < pushes &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(1));
    return server_->statistics().pushes_lost == pushes;
  }

  const TemporaryFolder folder_{"ps"};
  TestServer server_{{.consistency = {.max_staleness = 3, .num_workers = 2},
                      .snapshot_folder = folder_.path(),
                      .worker_grace = milliseconds(50)}};
  std::unique_ptr<ParameterClient> worker_ = server_.client("worker:1");
};

TEST_F(Lost, IsCountedOfAWorkerThatDoesNotComeBack) {
  worker_ = nullptr;
  EXPECT_TRUE(is_lost(3));
  EXPECT_NE(server_.line("lost=3 pushes of worker:1 to 2 shards"), "");
  server_->snapshot();
  server_.stop();
  server_.start();
  server_.client("worker:1")->leave();
  EXPECT_EQ(server_->statistics().pushes_lost, 0u) << "once";
}

TEST_F(Lost, IsCountedWhenItsWorkerLeaves) {
  worker_->leave();
  EXPECT_EQ(server_->statistics().pushes_lost, 3u);
}

TEST_F(Lost, IsCountedOnceOfAWorkerThatComesBackLate) {
  EXPECT_TRUE(is_lost(3));
  for (const char* name : {"v", "w"}) push(*worker_, name);
  EXPECT_EQ(server_->statistics().pushes_lost, 3u);
  EXPECT_EQ(values_of(fetch(*worker_, whole_shard("w", kFour))), (std::vector<float>(4, -2)));
}

TEST_F(Lost, IsCountedOfAWorkerThatIsStartedAgain) {
  worker_ = server_.client("worker:1");
  for (const char* name : {"v", "w"}) push(*worker_, name);
  worker_->leave();
  EXPECT_EQ(server_->statistics().pushes_lost, 3u);
}

TEST_F(Lost, IsNothingWhereTheServerWasAskedToEnd) {
  worker_->leave();
  push(*worker_, "w");
  server_.client()->shut_down();
  server_.stop();
  server_.start();
  server_.client("worker:1")->leave();
  EXPECT_EQ(server_->statistics().pushes_lost, 0u);
}

TEST(PushLedger, GoesOnWhereAnotherHasEnded) {
  const TemporaryFolder folder("ps");
  const PushLedger::Key one{"w", "worker:0"}, two{std::string("w\0x", 3), "worker:1"};
  {
    PushLedger ledger(folder.path(), true);
    ledger.write(one, {.incarnation = 1, .sequence = 2});
    ledger.write(two, {.incarnation = 3, .sequence = 4});
    ledger.write(one, {.incarnation = 1, .sequence = 9});
    ledger.write({std::string(500, 'x'), "worker:0"}, {.incarnation = 1, .sequence = 1});
  }
  const std::map<PushLedger::Key, Mark> expected = {{one, {1, 9}}, {two, {3, 4}}};
  EXPECT_EQ(PushLedger(folder.path(), false).marks(), expected);
  std::string text = read_file(folder.path() + "/pushes");
  text[512 + 40] ^= 1;  // a name
  write_file_atomically(folder.path() + "/pushes", text);
  PushLedger damaged(folder.path(), false);
  EXPECT_EQ(damaged.marks(), (std::map<PushLedger::Key, Mark>{{one, {1, 9}}}));
  damaged.write(two, {.incarnation = 3, .sequence = 5});
  EXPECT_EQ(PushLedger(folder.path(), false).marks().at(two), (Mark{3, 5}));
  EXPECT_TRUE(PushLedger(folder.path(), true).marks().empty());
}

TEST(PushLedger, HasTheLastOfEachWhoeverWritesBeside) {
  const TemporaryFolder folder("ps");
  constexpr int kShards = 100, kWriters = 4;
  constexpr uint64_t kPushes = 50;
  {
    PushLedger ledger(folder.path(), true);
    std::vector<std::thread> writers;
    for (int w = 0; w < kWriters; ++w)
      writers.emplace_back([&, w] {
        for (uint64_t i = 1; i <= kPushes; ++i)
          for (int shard = 0; shard < kShards; ++shard)
            ledger.write({str("w", shard), str("worker:", w)}, {.incarnation = 1, .sequence = i});
      });
    for (std::thread& writer : writers) writer.join();
  }
  const auto marks = PushLedger(folder.path(), false).marks();
  EXPECT_EQ(marks.size(), static_cast<size_t>(kShards * kWriters));
  for (const auto& [key, mark] : marks) EXPECT_EQ(mark, (Mark{1, kPushes})) << key.task;
}

// Gradients that wait for others are not part of a snapshot, nor are their marks.
TEST(Snapshot, LeavesOpenRoundsOut) {
  parameter_server::BufferCache buffers(0);
  parameter_server::Shard shard(
      whole_shard("w", kFour), floats({0, 0, 0, 0}),
      {.epoch = 1, .consistency = {.max_staleness = 0, .num_workers = 2}, .buffers = &buffers});
  shard.push({.task = "worker:0",
              .mark = {.incarnation = 5, .sequence = 1},
              .computed_at = {1, 1},
              .learning_rate = 1,
              .gradient = floats({1, 1, 1, 1})});
  EXPECT_TRUE(shard.state().marks.empty());
}

class Damaged : public ::testing::Test {
 protected:
  Damaged() {
    TestServer server;
    const auto client = server.client();
    client->create(whole_shard("w", kFour, optim::Adagrad(1.0)), [] {
      return floats({1, 2, 3, 4});
    });
    client->snapshot(folder_.path());
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      files_.push_back(entry.path().string());
  }
  const TemporaryFolder folder_{"ps"};
  std::vector<std::string> files_;
};

TEST_F(Damaged, IsFoundByteByByte) {
  constexpr uint64_t kSeed = 99;
  RandomStream random(kSeed);
  ASSERT_EQ(files_.size(), 2u);
  for (const std::string& file : files_) {
    const std::string whole = read_file(file);
    for (size_t length = 0; length < whole.size(); length += 1 + random.below(60)) {
      write_file_atomically(file, whole.substr(0, length));
      ASSERT_EQ(error_of([&] { parameter_server::read_snapshot(folder_.path()); }).code(),
                Code::kDataLoss)
          << file << " cut to " << length;
    }
    for (int i = 0; i < 60; ++i) {
      std::string flipped = whole;
      const size_t place = random.below(whole.size());
      flipped[place] = static_cast<char>(flipped[place] ^ (1 << random.below(8)));
      write_file_atomically(file, flipped);
      const Error error = error_of([&] { parameter_server::read_snapshot(folder_.path()); });
      ASSERT_EQ(error.code(), Code::kDataLoss) << file << " at " << place << ": " << error.what();
    }
    write_file_atomically(file, whole);
  }
  EXPECT_EQ(parameter_server::read_snapshot(folder_.path()).size(), 1u);
}

TEST(Snapshot, NeedsAFolderThatCanBeHad) {
  const TemporaryFolder folder("ps");
  const std::string file = folder.path() + "/file";
  write_file_atomically(file, "");
  const Error error = error_of([&] { TestServer({.snapshot_folder = file + "/ps-0"}); });
  EXPECT_NE(error.message().find(file), std::string::npos) << error.what();
}

TEST(Snapshot, IsNotFoundWhereThereIsNone) {
  const TemporaryFolder folder("ps");
  TestServer server;
  EXPECT_ERROR(server.client()->restore(folder.path() + "/none"), Code::kNotFound, "none");
}

// Saved by some servers with some shards, restored by others with others, Adam's slots too.
TEST(Checkpoint, FitsAnyNumberOfShardsAndServers) {
  struct Layout {
    int64_t shards, servers;
  };
  const TensorSpec whole{DType::kFloat32, {13, 3}};
  const auto make = [&](int64_t shards, int64_t part) {
    const RowRange rows = shard_rows(13, shards)[static_cast<size_t>(part)];
    ShardSpec spec{.name = str("w/part_", part),
                   .variable = "w",
                   .whole = whole,
                   .begin = rows.begin,
                   .rows = rows.rows()};
    spec.update = trace_update(optim::Adam(0.1).rule(), spec.spec());
    return spec;
  };
  const std::vector<Layout> layouts = {{4, 2}, {1, 1}, {5, 3}, {2, 2}};
  for (const Layout& from : layouts)
    for (const Layout& to : layouts) {
      SCOPED_TRACE(str(from.shards, " -> ", to.shards));
      const TemporaryFolder folder("ps");
      const auto value_at = [](int64_t i, int part) { return static_cast<float>(100 * part + i); };
      {
        std::vector<std::unique_ptr<TestServer>> servers;
        for (int64_t s = 0; s < from.servers; ++s)
          servers.push_back(std::make_unique<TestServer>());
        for (int64_t n = 0; n < from.shards; ++n) {
          const ShardSpec spec = make(from.shards, n);
          const auto client = servers[static_cast<size_t>(n % from.servers)]->client();
          client->create(spec, [&] { return Tensor::zeros(DType::kFloat32, spec.spec().shape); });
          for (int part = 0; part < 3; ++part) {
            Tensor value(DType::kFloat32, spec.spec().shape);
            for (int64_t i = 0; i < value.num_elements(); ++i)
              value.data<float>()[i] = value_at(3 * spec.begin + i, part);
            client->assign(spec.name, value, part);
          }
        }
        for (int64_t s = 0; s < from.servers; ++s)
          servers[static_cast<size_t>(s)]->client()->snapshot(str(folder.path(), "/ps-", s));
      }
      std::vector<std::unique_ptr<TestServer>> servers;
      for (int64_t s = 0; s < to.servers; ++s) servers.push_back(std::make_unique<TestServer>());
      for (int64_t n = 0; n < to.shards; ++n) {
        const ShardSpec spec = make(to.shards, n);
        const auto client = servers[static_cast<size_t>(n % to.servers)]->client();
        client->create(spec, [&] { return Tensor::zeros(DType::kFloat32, spec.spec().shape); });
        EXPECT_EQ(client->restore(folder.path()), n / to.servers + 1);
        for (int part = 0; part < 3; ++part) {
          const auto values = values_of(fetch(*client, spec, part));
          for (size_t i = 0; i < values.size(); ++i)
            ASSERT_EQ(values[i], value_at(3 * spec.begin + static_cast<int64_t>(i), part));
        }
      }
    }
}

TEST(Checkpoint, IsNotMadeOfSnapshotsOfDifferentTimes) {
  const TemporaryFolder folder("ps");
  const std::string first = folder.path() + "/ps-0", second = folder.path() + "/ps-1";
  const ShardSpec spec = whole_shard("w", kFour);
  parameter_server::ShardState half{.spec = spec, .parts = {floats({7, 8})}};
  half.spec.name = "w/part_1";
  half.spec.begin = half.spec.rows = 2;
  const auto write = [](const std::string& path, const parameter_server::ShardState& state) {
    parameter_server::SnapshotWriter writer(path);
    writer.add(state);
    writer.commit();
  };
  write(first, {.spec = spec, .parts = {floats({1, 2, 3, 4})}});
  write(second, half);
  TestServer server;
  const auto client = server.client();
  client->create(spec, [] { return floats({0, 0, 0, 0}); });
  EXPECT_ERROR(client->restore(folder.path()), Code::kInvalidArgument,
               str(first, " and ", second, " both have row 2 of variable \"w\""));
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>(4)));
  EXPECT_TRUE(parameter_server::remove_snapshot(second));
  EXPECT_FALSE(std::filesystem::exists(second));
  EXPECT_FALSE(parameter_server::remove_snapshot(second));
  client->restore(folder.path());
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Checkpoint, SaysWhichRowsItLacks) {
  ShardSpec spec = whole_shard("w", kFour);
  parameter_server::SavedShard half{.about = {.spec = spec}, .rows = 2, .load = nullptr};
  half.about.spec.rows = 2;
  EXPECT_ERROR(parameter_server::assemble(spec, {half}), Code::kInvalidArgument, "lacks row 2");
  EXPECT_FALSE(parameter_server::assemble(whole_shard("v", kFour), {half}));
  half.about.spec.whole.shape = Shape{5};
  EXPECT_ERROR(parameter_server::assemble(spec, {half}), Code::kInvalidArgument, "[5]");
}

// Tables, some of whose rows are in use, are cut anew as well.
TEST(Checkpoint, HasTheRowsInUseOfTablesThatAreCutAnew) {
  const TemporaryFolder folder("ps");
  const auto make = [](const std::string& name, int64_t begin, int64_t rows) {
    ShardSpec spec = lazy_table(100, 2, {.a = 5});
    spec.name = name;
    spec.begin = begin;
    spec.rows = rows;
    return spec;
  };
  {
    TestServer server;
    const auto client = server.client();
    for (const int64_t begin : {0, 50}) {
      const std::string name = str("from ", begin);
      client->create(make(name, begin, 50), [] { return Tensor(); });
      client->assign_rows(name, {1, 20, 49}, Tensor::full(DType::kFloat32, {3, 2}, 1.0 + begin), 0,
                          false);
      client->assign_rows(name, {1, 20, 49}, Tensor::full(DType::kFloat32, {3, 2}, 2.0 + begin), 1,
                          false);
    }
    client->snapshot(folder.path() + "/ps-0");
  }
  TestServer server;
  const auto client = server.client();
  client->create(make("middle", 10, 61), [] { return Tensor(); });  // rows 10 to 70
  EXPECT_EQ(client->restore(folder.path()), 1);
  EXPECT_EQ(client->rows_in_use("middle"), (std::vector<int64_t>{10, 39, 41, 60}));
  const std::vector<int64_t> rows = {10, 39, 41, 60, 0};
  for (const int part : {0, 1}) {
    Tensor target(DType::kFloat32, {5, 2});
    client->pull({.shard = "middle", .target = target, .rows = rows, .part = part});
    const auto values = values_of(target);
    const auto one = static_cast<float>(1 + part), other = static_cast<float>(51 + part);
    EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 8),
              (std::vector<float>{one, one, one, one, other, other, other, other}));
    if (part == 0) {
      EXPECT_EQ(values[8], 5) << "of a row that nobody has used";
    }
  }
}

// Two tables: as they were saved, and as parts of larger ones.
class SavedTables : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kRowBytes = 2 << 20;  // value and slot
  using Rows = std::vector<int64_t>;

  SavedTables() {
    parameter_server::SnapshotWriter writer(folder_.path());
    writer.add(state_with(saved("a"), {1, 2}, 5));
    writer.add(state_with(saved("b"), {1, 2, 3}, 5));
    writer.commit();
  }
  static ShardSpec saved(const std::string& name) {
    ShardSpec spec = wide_table(name);
    if (GetParam()) spec.name += "/whole";
    return spec;
  }
  static ShardSpec present(const std::string& name) {
    ShardSpec spec = wide_table(name);
    if (GetParam()) spec.rows /= 2;
    return spec;
  }
  // A server with memory for so many rows, and one row of each table.
  static std::unique_ptr<parameter_server::Service> server_with(size_t rows) {
    auto service = std::make_unique<parameter_server::Service>(
        ParameterServerOptions{.max_bytes = rows * kRowBytes + kRowBytes / 2,
                               .notice = [](const std::string&) {}},
        [] {});
    for (const char* name : {"a", "b"}) {
      service->create(present(name), Tensor());
      service->shard(name)->restore(state_with(present(name), {7}, 6));
    }
    return service;
  }
  static float number_in(const parameter_server::Shard& shard, int64_t row) {
    std::vector<float> values(kRowBytes / 2 / sizeof(float));
    shard.pull_rows(0, Rows{row}, reinterpret_cast<char*>(values.data()));
    return values.back();
  }

  const TemporaryFolder folder_{"ps"};
};

TEST_P(SavedTables, AreRestoredTogether) {
  const auto server = server_with(5);
  EXPECT_EQ(server->restore(folder_.path()), 2);
  EXPECT_EQ(server->shard("a")->rows_after(-1, 10), (Rows{1, 2}));
  EXPECT_EQ(server->shard("b")->rows_after(-1, 10), (Rows{1, 2, 3}));
  EXPECT_EQ(number_in(*server->shard("b"), 3), 5);
  EXPECT_LT(server->memory_left(), kRowBytes);
}

TEST_P(SavedTables, StayAsTheyAreWhereOneDoesNotFit) {
  const auto server = server_with(4);
  const size_t left = server->memory_left();
  EXPECT_ERROR(server->restore(folder_.path()), Code::kResourceExhausted, "shard \"b\"");
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(server->shard(name)->rows_after(-1, 10), Rows{7}) << name;
    EXPECT_EQ(number_in(*server->shard(name), 7), 6) << name;
  }
  EXPECT_EQ(server->memory_left(), left);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, SavedTables, ::testing::Bool());

// --- What a snapshot takes beside the values

class LargeServer : public ::testing::Test {
 protected:
  static constexpr int kShards = 16;
  static constexpr int64_t kShardBytes = 8 << 20;

  struct Memory {
    int64_t before = 0, most = 0, after = 0;
  };
  // Of this process, while something is done.
  static Memory memory_during(const std::function<void()>& work) {
    Memory memory{.before = resources_of().resident_bytes};
    std::atomic<bool> ended = false;
    std::thread watching([&] {
      while (!ended) memory.most = std::max(memory.most, resources_of().resident_bytes);
    });
    work();
    ended = true;
    watching.join();
    memory.after = resources_of().resident_bytes;
    return memory;
  }
  static std::unique_ptr<parameter_server::Service> make_service() {
    return std::make_unique<parameter_server::Service>(
        ParameterServerOptions{.notice = [](const std::string&) {}}, [] {});
  }
};

TEST_F(LargeServer, NeedsNoMoreThanAShardBesidesForASnapshot) {
  const TemporaryFolder folder("ps");
  const TensorSpec spec{DType::kFloat32, {kShardBytes / 4}};
  [[maybe_unused]] Memory saving, restoring;
  {
    const auto service = make_service();
    for (int i = 0; i < kShards; ++i)
      service->create(whole_shard(str("w", i), spec), Tensor::full(spec.dtype, spec.shape, i));
    saving = memory_during([&] { service->snapshot(folder.path()); });
  }
  const auto service = make_service();
  restoring = memory_during([&] { EXPECT_EQ(service->restore(folder.path()), kShards); });
  for (int i = 0; i < kShards; ++i)
    EXPECT_EQ(values_of(service->shard(str("w", i))->part(0).slice_rows(0, 1))[0],
              static_cast<float>(i));
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which keep what was freed
  // One, and what the allocator keeps of those before: less than half of them all.
  EXPECT_LT(saving.most, saving.before + kShards / 2 * kShardBytes);
  EXPECT_LT(restoring.most, restoring.after + kShards / 2 * kShardBytes);
#endif
}

// --- Snapshots that say of themselves what is not so

class HostileSnapshot : public Damaged {
 protected:
  // With `from` replaced by `to` wherever the manifest has it, and the right checksum.
  Error error_with(const std::vector<std::pair<std::string, std::string>>& changes) const {
    const std::string path = folder_.path() + "/snapshot.json";
    const std::string whole = read_file(path);
    std::string text = whole.substr(0, whole.find('\n'));
    for (const auto& [from, to] : changes) {
      EXPECT_NE(text.find(from), std::string::npos) << from << " in " << text;
      for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    }
    write_file_atomically(path, str(text, "\n", crc32c(text), "\n"));
    Error error = error_of([&] { parameter_server::read_snapshot(folder_.path()); });
    write_file_atomically(path, whole);
    return error;
  }
};

TEST_F(HostileSnapshot, TakesNoMemoryForSizesThatTheFileDoesNotHave) {
  const std::string huge = "1099511627776";
  const std::pair<std::string, std::string> rows{"\"rows\":4", "\"rows\":" + huge},
      shape{"\"shape\":[4]", "\"shape\":[" + huge + "]"}, more{"\"rows\":4", "\"rows\":3"},
      size{"\"bytes\":32", "\"bytes\":" + huge}, checks{"\"crc32c\":[", "\"crc32c\":[0,"},
      text{"\"bytes\":32", "\"bytes\":\"32\""}, minus{"\"rows\":4", "\"rows\":-4"},
      file{"\"file\":\"", "\"file\":\"../"}, format{"\"format\":2", "\"format\":1"};
  EXPECT_EQ(error_with({}).message(), "no error");
  for (const auto& changes : std::vector<std::vector<std::pair<std::string, std::string>>>{
           {rows, shape}, {more}, {size}, {checks}, {text}, {minus}, {file}, {format}}) {
    const Error error = error_with(changes);
    EXPECT_EQ(error.code(), Code::kDataLoss) << changes[0].second;
    EXPECT_NE(error.message().find(folder_.path()), std::string::npos) << error.what();
  }
}

TEST(HostileTable, TakesNoMemoryForRowsThatTheFileDoesNotHave) {
  const TemporaryFolder folder("ps");
  {
    TestServer server;
    const auto client = server.client();
    client->create(lazy_table(int64_t{1} << 40, 2, {}), [] { return Tensor(); });
    client->assign_rows("table", {3, 7}, Tensor::full(DType::kFloat32, {2, 2}, 1), 0, false);
    client->snapshot(folder.path());
  }
  const std::string path = folder.path() + "/snapshot.json";
  const std::string whole = read_file(path);
  const std::string body = whole.substr(0, whole.find('\n')), wanted = "\"in_use\":2";
  const size_t place = body.find(wanted);
  ASSERT_NE(place, std::string::npos) << body;
  EXPECT_EQ(parameter_server::read_snapshot(folder.path())[0].load().row_ids,
            (std::vector<int64_t>{3, 7}));
  for (const char* rows : {"3", "1", "0", "1000000000000", "18446744073709551615", "-2"}) {
    std::string text = body;
    text.replace(place, wanted.size(), str("\"in_use\":", rows));
    write_file_atomically(path, str(text, "\n", crc32c(text), "\n"));
    EXPECT_EQ(error_of([&] { parameter_server::read_snapshot(folder.path()); }).code(),
              Code::kDataLoss)
        << rows << " rows";
  }
}

// What cannot be written to its end leaves the snapshot of before, and nothing beside it.
TEST(Snapshot, StaysAsItWasWhereTheNextOneIsNotCommitted) {
  const TemporaryFolder folder("ps");
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      names.insert(entry.path().filename().string());
    return names;
  };
  const auto write = [&](float value, bool commits) {
    parameter_server::SnapshotWriter writer(folder.path());
    writer.add(
        {.spec = whole_shard("w", kFour), .version = 1, .parts = {floats({value, 2, 3, 4})}});
    if (commits) writer.commit();
  };
  write(1, false);
  EXPECT_TRUE(files().empty());
  write(1, true);
  const auto before = files();
  write(5, false);
  EXPECT_EQ(files(), before);
  EXPECT_EQ(values_of(parameter_server::read_snapshot(folder.path())[0].load().parts[0])[0], 1);
  write(5, true);
  EXPECT_EQ(values_of(parameter_server::read_snapshot(folder.path())[0].load().parts[0])[0], 5);
  EXPECT_EQ(files().size(), 2u) << "the one before is removed";
}

}  // namespace
}  // namespace cohort::testing
