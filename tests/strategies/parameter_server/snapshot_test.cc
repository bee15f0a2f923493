#include "strategies/parameter_server/snapshot.h"

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "core/base/crc32c.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "strategies/parameter_server/service.h"
#include "tests/strategies/parameter_server/damage.h"
#include "tests/strategies/parameter_server/saved_shards.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"
#include "tests/testing/resources.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

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
  EXPECT_NE(server.line("lost=1 pushes of worker:0 to shard \"w\": "), "") << server.line("lost");
  EXPECT_EQ(values_of(fetch(*client, spec)), wanted);
  EXPECT_EQ(server->statistics().pushes_lost, 1u);
}

TEST(Snapshot, IsForAsManyServersAsTheJobHad) {
  const TemporaryFolder folder("ps");
  const std::string own = folder.path() + "/ps-0";
  const auto one_of = [&](int num_servers) {
    return ParameterServerOptions{.snapshot_folder = own, .num_servers = num_servers};
  };
  {
    TestServer server(one_of(2));
    server.client()->create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
    server->snapshot();
  }
  for (const int others : {1, 3})
    EXPECT_ERROR(TestServer refused(one_of(others)), Code::kFailedPrecondition,
                 str("what is in ", own, " was written by one of 2 servers, and this is one of ",
                     others, ", "));
  for (const int same_or_unknown : {2, 0})
    EXPECT_NE(TestServer(one_of(same_or_unknown)).line("1 shards from the snapshot"), "");
  // Others may have its values when they ask for them.
  TestServer other({.num_servers = 3});
  EXPECT_EQ(other.client()->restore(own), 1);
}

TEST(Snapshot, ThatDoesNotSayHowManyServersThereWereIsForAnyNumber) {
  const TemporaryFolder folder("ps");
  {
    TestServer server(keeping(folder));
    server.client()->create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
    server->snapshot();
  }
  ParameterServerOptions options = keeping(folder);
  options.num_servers = 3;
  EXPECT_NE(TestServer(options).line("1 shards from the snapshot"), "");
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

TEST(Snapshot, BringsBackInfiniteNumbersToBeginWith) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const TemporaryFolder folder("ps");
  TestServer server(keeping(folder));
  const auto client = server.client();
  ShardSpec spec = whole_shard("w", kFour, optim::Adagrad(1.0));
  spec.update.slots[0].initial = kInfinity;
  const ShardSpec table = lazy_table(1000, 1, {.a = -kInfinity});
  client->create(spec, [] { return floats({1, 2, 3, 4}); });
  client->create(table, [] { return Tensor(); });
  client->snapshot(folder.path() + "/ps-0");
  server.stop();
  server.start();
  EXPECT_EQ(values_of(fetch(*client, spec, 1)),
            (std::vector<float>(4, static_cast<float>(kInfinity))));
  EXPECT_FALSE(client->create(table, [] { return Tensor(); })) << "it is the same";
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

// One that is killed before the first interval has passed comes back.
TEST(Snapshot, IsTakenAtOnceWhenThereAreShards) {
  const TemporaryFolder folder("ps");
  TestServer server({.snapshot_folder = folder.path(), .snapshot_interval = std::chrono::hours(1)});
  const auto client = server.client();
  for (const char* name : {"a", "b"}) {
    client->create(whole_shard(name, {DType::kFloat32, {2}}), [] { return floats({1, 2}); });
    const size_t shards = client->statistics().shards;
    EXPECT_TRUE(eventually([&] { return saved_shards(folder.path()) == shards; })) << name;
  }
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

// A server whose variable a gradient makes NaN, and the snapshot of before.
class Diverged : public ::testing::Test {
 protected:
  Diverged() {
    client_->create(spec_, [] { return floats({1, 2, 3, 4}); });
    server_->snapshot();
    push(std::numeric_limits<float>::quiet_NaN());
  }
  void push(float gradient) {
    client_->push({.shard = "w", .gradient = floats({gradient, 0, 0, 0}), .learning_rate = 1});
  }

  const TemporaryFolder folder_{"ps"};
  const ShardSpec spec_ = whole_shard("w", kFour);
  TestServer server_{
      {.snapshot_folder = folder_.path(), .snapshot_interval = std::chrono::milliseconds(5)},
      TestServer::Stopped::kEnded};
  const std::unique_ptr<ParameterClient> client_ = server_.client();
};

TEST_F(Diverged, DoesNotReplaceTheLastSnapshot) {
  ASSERT_TRUE(eventually([&] { return server_->statistics().snapshots_failed >= 3; }));
  EXPECT_ERROR(client_->snapshot(folder_.path()), Code::kOutOfRange,
               "shard \"w\" of variable \"w\" has diverged");
  server_.stop();
  EXPECT_EQ(server_.lines("no snapshot: "), 1) << "once, also at its end";
  EXPECT_NE(server_.line("shard \"w\" of variable \"w\" has diverged"), "");
  server_.start();
  EXPECT_EQ(values_of(fetch(*client_, spec_)), (std::vector<float>{1, 2, 3, 4}));
  push(-1);
  server_->snapshot();
}

TEST_F(Diverged, IsSavedAgainOnceItHasOtherValues) {
  EXPECT_ERROR(server_->snapshot(), Code::kOutOfRange, "has diverged");
  client_->assign("w", floats({5, 6, 7, 8}));
  server_->snapshot();
  EXPECT_EQ(values_of(parameter_server::read_snapshot(folder_.path())[0].load().parts[0]),
            (std::vector<float>{5, 6, 7, 8}));
}

TEST(Snapshot, OfATableWithADivergedRowIsRefused) {
  const TemporaryFolder folder("ps");
  TestServer server(keeping(folder));
  const auto client = server.client();
  client->create(lazy_table(1000, 1, {}), [] { return Tensor(); });
  const auto push = [&](int64_t row, float gradient) {
    client->push({.shard = "table",
                  .gradient = Tensor::full(DType::kFloat32, {1, 1}, gradient),
                  .learning_rate = 1,
                  .rows = std::vector<int64_t>{row}});
  };
  push(7, 1);
  server->snapshot();
  push(900, std::numeric_limits<float>::infinity());
  EXPECT_ERROR(server->snapshot(), Code::kOutOfRange, "shard \"table\"");
}

TEST(Snapshot, HasWhatWasNeverFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const TemporaryFolder folder("ps");
  TestServer server(keeping(folder));
  const auto client = server.client();
  const ShardSpec spec = whole_shard("w", kFour);
  client->create(spec, [] { return floats({-kInfinity, 2, 3, 4}); });
  client->create(lazy_table(1000, 1, {.a = -kInfinity}), [] { return Tensor(); });
  server->snapshot();
  client->push({.shard = "w", .gradient = floats({1, 1, 1, 1}), .learning_rate = 1});
  client->push({.shard = "table",
                .gradient = Tensor::full(DType::kFloat32, {1, 1}, 1),
                .learning_rate = 1,
                .rows = std::vector<int64_t>{7}});
  server->snapshot();
  server.stop();
  server.start();
  server->snapshot();
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>{-kInfinity, 1, 2, 3}));
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
  const auto [seed, count] = trials(99, 2000);
  RandomStream random(seed);
  const auto code = [&] {
    return error_of([&] { parameter_server::read_snapshot(folder_.path()); }).code();
  };
  ASSERT_EQ(files_.size(), 2u);
  for (const std::string& file : files_) {
    const std::string whole = read_file(file);
    for (size_t length = whole.size(); length-- > 0;) {
      std::filesystem::resize_file(file, length);
      ASSERT_EQ(code(), Code::kDataLoss) << file << " cut to " << length;
    }
    write_file_atomically(file, whole);
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](size_t place, char byte) {
      bytes.seekp(static_cast<std::streamoff>(place)).put(byte).flush();
    };
    for (uint64_t i = 0; i < count; ++i) {
      const size_t place = random.below(whole.size()), bit = random.below(8);
      put(place, static_cast<char>(whole[place] ^ (1 << bit)));
      ASSERT_EQ(code(), Code::kDataLoss) << file << ", bit " << bit << " of byte " << place;
      put(place, whole[place]);
    }
  }
  EXPECT_EQ(parameter_server::read_snapshot(folder_.path()).size(), 1u);
}

// A server that was killed after three pushes: one, a snapshot, one, a snapshot, one.
class TwoSnapshots {
 public:
  TwoSnapshots() {
    client_->create(spec_, [] { return floats({0, 0, 0, 0}); });
    push();
    for (int i = 0; i < 2; ++i) {
      server->snapshot();
      push();
    }
    server.stop();
  }
  void push() {
    client_->push({.shard = "w", .gradient = floats({-1, -1, -1, -1}), .learning_rate = 1});
  }
  // How many pushes the value has.
  float value() { return values_of(fetch(*client_, spec_))[0]; }
  std::string path(const std::string& file) const { return folder_.path() + "/" + file; }

 private:
  const TemporaryFolder folder_{"ps"};
  const ShardSpec spec_ = whole_shard("w", kFour);

 public:
  TestServer server{{.snapshot_folder = folder_.path()}};

 private:
  const std::unique_ptr<ParameterClient> client_ = server.client();
};

TEST(TwoSnapshots, LeaveTheOneBeforeADamagedOne) {
  for (const char* file : {"shards-2", "snapshot.json"}) {
    SCOPED_TRACE(file);
    TwoSnapshots two;
    damage(two.path(file));
    two.server.start();
    EXPECT_NE(two.server.line("the last snapshot is damaged: ").find(two.path(file)),
              std::string::npos);
    EXPECT_EQ(two.value(), 1);
    two.push();
    EXPECT_EQ(two.value(), 2);
    EXPECT_EQ(two.server->statistics().pushes_lost, 2u);
    two.server->snapshot();
    damage(two.path("snapshot.json"));
    two.server.stop();
    two.server.start();
    EXPECT_EQ(two.value(), 1) << "still the one before";
  }
}

TEST(TwoSnapshots, AreRefusedWhereBothAreDamaged) {
  TwoSnapshots two;
  damage(two.path("snapshot.json"));
  damage(two.path("shards-1"));
  const Error error = error_of([&] { two.server.start(); });
  EXPECT_EQ(error.code(), Code::kDataLoss);
  for (const char* file : {"snapshot.json", "shards-1"})
    EXPECT_NE(error.message().find(two.path(file)), std::string::npos) << error.what();
  damage(two.path("shards-1"));  // as it was
  two.server.start();
  EXPECT_EQ(two.value(), 1);
}

TEST(Snapshot, ThatIsDamagedIsRefusedWhereThereIsNoneBefore) {
  const TemporaryFolder folder("ps");
  TestServer server({.snapshot_folder = folder.path()});
  server.client()->create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
  server->snapshot();
  server.stop();
  damage(folder.path() + "/shards-1");
  EXPECT_ERROR(server.start(), Code::kDataLoss, "its checksum differs");
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

TEST(Snapshot, OfOtherNamesIsRefusedByAServerThatHasShards) {
  const TemporaryFolder folder("ps");
  const auto make = [](ParameterClient& client, const std::string& name, float value) {
    client.create(whole_shard(name, kFour),
                  [value] { return Tensor::full(DType::kFloat32, {4}, value); });
  };
  {
    TestServer server;
    for (const char* name : {"a", "b", "c", "d"}) make(*server.client(), name, 1);
    server.client()->snapshot(folder.path());
  }
  TestServer server;
  const auto client = server.client();
  make(*client, "dense_1", 2);
  EXPECT_ERROR(client->restore(folder.path()), Code::kNotFound,
               R"(it has "a", "b", "c" and 1 more, and the server "dense_1")");
  EXPECT_EQ(server->statistics().shards, 1u) << "none is made that nobody uses";
  make(*client, "a", 2);
  EXPECT_EQ(client->restore(folder.path()), 1);
  EXPECT_EQ(values_of(fetch(*client, whole_shard("a", kFour))), (std::vector<float>(4, 1)));
  EXPECT_EQ(values_of(fetch(*client, whole_shard("dense_1", kFour))), (std::vector<float>(4, 2)));
  EXPECT_EQ(TestServer().client()->restore(folder.path()), 4) << "one without shards makes them";
}

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

TEST(Snapshot, IsNotReplacedByOneThatCouldNotBeReadAgain) {
  const TemporaryFolder folder("ps");
  const auto write = [&](uint64_t max_manifest_bytes) {
    parameter_server::SnapshotWriter writer(folder.path(), {}, max_manifest_bytes);
    writer.add({.spec = whole_shard("w", kFour), .version = 1, .parts = {floats({1, 2, 3, 4})}});
    writer.commit();
  };
  write(parameter_server::kMaxManifestBytes);
  const uint64_t size = std::filesystem::file_size(folder.path() + "/snapshot.json");
  EXPECT_ERROR(write(size / 2), Code::kResourceExhausted, "would be read again");
  EXPECT_EQ(parameter_server::read_snapshot(folder.path()).size(), 1u);
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
  for (const float value : {5.0f, 6.0f, 7.0f}) {
    write(value, true);
    EXPECT_EQ(values_of(parameter_server::read_snapshot(folder.path())[0].load().parts[0])[0],
              value);
    EXPECT_EQ(files().size(), 4u) << "the one before stays, others are removed";
  }
  EXPECT_TRUE(parameter_server::remove_snapshot(folder.path()));
  EXPECT_FALSE(std::filesystem::exists(folder.path()));
}

}  // namespace
}  // namespace cohort::testing
