// What servers write down between their snapshots.
#include "strategies/parameter_server/change_log.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/strategies/parameter_server/damage.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/few_descriptors.h"
#include "tests/testing/file_size_limit.h"

namespace cohort::testing {
namespace {

// A server with a log, and a client of it.
class Logged {
 public:
  explicit Logged(ConsistencyOptions consistency = {}, ServerLog log = ServerLog::kWritten)
      : server({.consistency = consistency,
                .snapshot_folder = folder_.path(),
                .snapshot_interval = std::chrono::hours(1),
                .log = log}),
        client(server.client()) {}

  // As when it was killed: nothing is saved at the end.
  void restart() {
    server.stop();
    server.start();
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path().filename().string().starts_with("changes-")) files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
  }
  const std::string& folder() const { return folder_.path(); }

 private:
  const TemporaryFolder folder_{"ps"};

 public:
  TestServer server;
  const std::unique_ptr<ParameterClient> client;
};

void push(ParameterClient& client, float gradient) {
  client.push(
      {.shard = "w", .gradient = floats({gradient, -gradient, 2, 0}), .learning_rate = 0.1});
}

// The value and what the rule keeps.
std::vector<std::vector<float>> all_of(ParameterClient& client, const ShardSpec& spec) {
  std::vector<std::vector<float>> parts;
  for (int part = 0; part < spec.num_parts(); ++part)
    parts.push_back(values_of(fetch(client, spec, part)));
  return parts;
}

TEST(ChangeLog, HasAllThatNoSnapshotHas) {
  Logged logged;
  ParameterClient& client = *logged.client;
  const ShardSpec spec = whole_shard("w", kFour, optim::Adam(0.1));
  client.create(spec, [] { return floats({1, 2, 3, 4}); });
  for (int i = 1; i <= 5; ++i) push(client, static_cast<float>(i));
  client.assign("w", floats({7, 7, 7, 7}), 1);
  push(client, 3);
  const auto before = all_of(client, spec);
  for (int times = 0; times < 2; ++times) {
    logged.restart();
    EXPECT_EQ(all_of(client, spec), before);
  }
  push(client, 1);
  EXPECT_EQ(client.statistics().pushes_lost, 0u);
  EXPECT_NE(logged.server.line("7 changes from the log"), "");
}

TEST(ChangeLog, IsForAsManyServersAsTheJobHad) {
  const TemporaryFolder folder("ps");
  const auto one_of = [&](int num_servers) {
    return ParameterServerOptions{.snapshot_folder = folder.path(),
                                  .num_servers = num_servers,
                                  .snapshot_interval = std::chrono::hours(1),
                                  .log = ServerLog::kWritten};
  };
  {
    TestServer server(one_of(2));
    const auto client = server.client();
    client->create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
    push(*client, 1);
  }
  EXPECT_ERROR(TestServer refused(one_of(3)), Code::kFailedPrecondition,
               "was written by one of 2 servers, and this is one of 3");
  EXPECT_NE(TestServer(one_of(2)).line("1 changes from the log"), "");
}

TEST(ChangeLog, GoesOnFromASnapshot) {
  Logged logged;
  ParameterClient& client = *logged.client;
  const ShardSpec spec = whole_shard("w", kFour, optim::Adam(0.1));
  client.create(spec, [] { return floats({1, 2, 3, 4}); });
  push(client, 1);
  for (int times = 0; times < 3; ++times) logged.server->snapshot();
  EXPECT_EQ(logged.files().size(), 1u) << "what the snapshot before has, too, is not kept";
  push(client, 2);
  const auto before = all_of(client, spec);
  logged.restart();
  EXPECT_EQ(all_of(client, spec), before);
  EXPECT_NE(logged.server.line("1 changes from the log"), "");
  client.restore(logged.folder());
  const auto restored = all_of(client, spec);
  EXPECT_NE(restored, before);
  logged.restart();
  EXPECT_EQ(all_of(client, spec), restored);
}

TEST(ChangeLog, GoesOnFromTheSnapshotBeforeADamagedOne) {
  Logged logged;
  ParameterClient& client = *logged.client;
  const ShardSpec spec = whole_shard("w", kFour, optim::Adam(0.1));
  client.create(spec, [] { return floats({1, 2, 3, 4}); });
  push(client, 1);
  for (int i = 2; i <= 3; ++i) {
    logged.server->snapshot();
    push(client, static_cast<float>(i));
  }
  const auto before = all_of(client, spec);
  logged.server.stop();
  damage(logged.folder() + "/shards-2");
  for (int times = 0; times < 2; ++times) {
    logged.server.start();
    EXPECT_EQ(all_of(client, spec), before);
    logged.server.stop();
  }
  EXPECT_NE(logged.server.line("2 changes from the log"), "");
  logged.server.start();
  push(client, 4);
  EXPECT_EQ(client.statistics().pushes_lost, 0u);
}

// What the damaged end of a file has hidden has been done otherwise since.
TEST(ChangeLog, IsNotDoneAgainWhereASnapshotHasComeAfterIt) {
  Logged logged;
  ParameterClient& client = *logged.client;
  const ShardSpec spec = whole_shard("w", kFour);
  client.create(spec, [] { return floats({0, 0, 0, 0}); });
  push(client, -10);
  const auto damaged = logged.files().back();
  logged.restart();
  for (int i = 0; i < 2; ++i) push(client, -10);
  logged.server.stop();
  std::filesystem::resize_file(damaged, std::filesystem::file_size(damaged) - 1);
  logged.server.start();
  push(client, -20);
  logged.server->snapshot();
  const auto before = all_of(client, spec);
  logged.restart();
  EXPECT_EQ(all_of(client, spec), before);
}

TEST(ChangeLog, BringsBackWhatHasDivergedAndMayBeRemoved) {
  Logged logged;
  ParameterClient& client = *logged.client;
  const ShardSpec spec = whole_shard("w", kFour);
  client.create(spec, [] { return floats({0, 0, 0, 0}); });
  push(client, -10);
  logged.server->snapshot();
  push(client, std::numeric_limits<float>::quiet_NaN());
  logged.restart();
  EXPECT_TRUE(std::isnan(fetch(client, spec).data<float>()[0]));
  EXPECT_ERROR(logged.server->snapshot(), Code::kOutOfRange,
               str("remove ", logged.folder(), "/changes-* before"));
  logged.server.stop();
  for (const auto& file : logged.files()) std::filesystem::remove(file);
  logged.server.start();
  EXPECT_EQ(fetch(client, spec).data<float>()[0], 1);
  push(client, -20);
  const auto before = all_of(client, spec);
  logged.restart();
  EXPECT_EQ(all_of(client, spec), before);
}

TEST(ChangeLog, HasRowsThatAreMadeOnFirstUse) {
  Logged logged;
  ParameterClient& client = *logged.client;
  const ShardSpec spec =
      lazy_table(1'000'000, 2, {.kind = RowInitializer::Kind::kConstant, .a = 1});
  client.create(spec, [] { return Tensor(); });
  const auto rows = [&] {
    Tensor values(DType::kFloat32, {3, 2});
    client.pull(
        {.shard = "table", .target = values, .rows = std::vector<int64_t>{5, 70'000, 999'999}});
    return values_of(values);
  };
  client.push({.shard = "table",
               .gradient = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2}),
               .learning_rate = 0.5,
               .rows = std::vector<int64_t>{5, 70'000, 5}});
  client.assign_rows("table", {999'999}, Tensor::from(std::vector<float>{8, 9}, {1, 2}), 0, false);
  const std::vector<float> before = rows();
  logged.restart();
  EXPECT_EQ(rows(), before);
  EXPECT_EQ(client.rows_in_use("table"), (std::vector<int64_t>{5, 70'000, 999'999}));
}

TEST(ChangeLog, HasSynchronousUpdates) {
  Logged logged({.max_staleness = 0, .num_workers = 2});
  const auto second = logged.server.client("worker:1");
  const ShardSpec spec = whole_shard("w", kFour);
  logged.client->create(spec, [] { return floats({0, 0, 0, 0}); });
  for (ParameterClient* client : {logged.client.get(), second.get()}) fetch(*client, spec);
  for (ParameterClient* client : {logged.client.get(), second.get()}) push(*client, -10);
  const std::vector<float> before = values_of(fetch(*second, spec));
  EXPECT_EQ(before[0], 2);
  logged.restart();
  EXPECT_EQ(values_of(fetch(*second, spec)), before);
}

TEST(ChangeLog, EndsWhereAnEntryIsCutOffOrDamaged) {
  for (const bool cut : {true, false}) {
    Logged logged;
    ParameterClient& client = *logged.client;
    const ShardSpec spec = whole_shard("w", kFour);
    client.create(spec, [] { return floats({0, 0, 0, 0}); });
    push(client, -10);
    push(client, -10);
    logged.server.stop();
    const auto file = logged.files().back();
    const auto last = std::filesystem::file_size(file) - 1;
    if (cut) {
      std::filesystem::resize_file(file, last);
    } else {
      std::fstream damaged(file, std::ios::in | std::ios::out | std::ios::binary);
      damaged.seekp(static_cast<std::streamoff>(last)).put('\x7f');
    }
    logged.server.start();
    EXPECT_NE(logged.server.line("cut off, or are damaged"), "");
    EXPECT_EQ(fetch(client, spec).data<float>()[0], 1) << "the first push";
    push(client, -10);
    EXPECT_EQ(client.statistics().pushes_lost, 1u);
    const auto before = all_of(client, spec);
    logged.restart();
    EXPECT_EQ(all_of(client, spec), before) << "what came after it is in another file";
  }
}

// The changes behind it are of another value than the one that can be made.
TEST(ChangeLog, OfAShardEndsWhereSomeOfItIsMissing) {
  Logged logged;
  ParameterClient& client = *logged.client;
  const ShardSpec spec = whole_shard("w", kFour), other = whole_shard("v", kFour);
  for (const ShardSpec& one : {spec, other})
    client.create(one, [] { return floats({0, 0, 0, 0}); });
  push(client, -10);
  push(client, -10);
  const auto file = logged.files().back();
  logged.restart();
  push(client, -10);
  client.push({.shard = "v", .gradient = floats({-1, 0, 0, 0}), .learning_rate = 1});
  logged.server.stop();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  for (int times = 0; times < 2; ++times) {
    logged.server.start();
    EXPECT_EQ(fetch(client, spec).data<float>()[0], 1) << "the first push";
    EXPECT_EQ(fetch(client, other).data<float>()[0], 1) << "of which nothing is missing";
    EXPECT_NE(logged.server.line("shard \"w\" ends at version 2"), "");
    logged.server.stop();
  }
  logged.server.start();
  push(client, -10);
  EXPECT_EQ(client.statistics().pushes_lost, 2u);
  EXPECT_EQ(fetch(client, spec).data<float>()[0], 2);
  logged.restart();
  EXPECT_EQ(fetch(client, spec).data<float>()[0], 2) << "what came after it";
}

TEST(ChangeLog, OnTheDiskIsFoundAgain) {
  Logged logged({}, ServerLog::kSynced);
  ParameterClient& client = *logged.client;
  const ShardSpec spec = whole_shard("w", kFour, optim::Adam(0.1));
  client.create(spec, [] { return floats({1, 2, 3, 4}); });
  for (int i = 1; i <= 3; ++i) push(client, static_cast<float>(i));
  const auto before = all_of(client, spec);
  logged.restart();
  EXPECT_EQ(all_of(client, spec), before);
}

TEST(ChangeLog, KnowsWorkThatIsDoneAgainByAnother) {
  Logged logged;
  const auto other = logged.server.client("worker:1");
  const ShardSpec spec = whole_shard("w", kFour);
  logged.client->create(spec, [] { return floats({0, 0, 0, 0}); });
  for (ParameterClient* client : {logged.client.get(), other.get()})
    client->mark_pushes(ParameterClient::Source{"chief:0/lane-0", 1, 3});
  push(*logged.client, -10);
  logged.restart();
  push(*other, -10);
  EXPECT_EQ(fetch(*other, spec).data<float>()[0], 1) << "once";
}

TEST(ChangeLog, HasTablesThatWereReset) {
  Logged logged;
  ParameterClient& client = *logged.client;
  ShardSpec spec = whole_shard("table", {DType::kFloat32, {8, 1}});
  spec.update.dense.clear();
  spec.lazy = RowInitializer{.kind = RowInitializer::Kind::kConstant, .a = 1};
  client.create(spec, [] { return Tensor(); });
  client.assign_rows("table", {2, 5}, Tensor::from(std::vector<float>{8, 9}, {2, 1}), 0, false);
  client.assign_rows("table", {5}, Tensor::from(std::vector<float>{7}, {1, 1}), 0, true);
  logged.restart();
  Tensor rows(DType::kFloat32, {2, 1});
  client.pull({.shard = "table", .target = rows, .rows = std::vector<int64_t>{2, 5}});
  EXPECT_EQ(values_of(rows), (std::vector<float>{1, 7}));
}

TEST(ChangeLog, HasRowsThatWereMissing) {
  Logged logged;
  ParameterClient& client = *logged.client;
  client.create(lazy_table(8, 1, {.kind = RowInitializer::Kind::kConstant, .a = 1}),
                [] { return Tensor(); });
  const auto push = [&](int64_t row) {
    client.push({.shard = "table",
                 .gradient = Tensor::full(DType::kFloat32, {1, 1}, 1),
                 .learning_rate = 0.5,
                 .rows = std::vector<int64_t>{row}});
  };
  const auto rows = [&] {
    Tensor values(DType::kFloat32, {3, 1});
    client.pull({.shard = "table", .target = values, .rows = std::vector<int64_t>{2, 5, 6}});
    return values_of(values);
  };
  push(2);
  client.add_missing_rows("table", {2, 5, 6}, Tensor::full(DType::kFloat32, {3, 1}, 8));
  logged.server->snapshot();
  push(5);
  client.add_missing_rows("table", {5}, Tensor::full(DType::kFloat32, {1, 1}, 9));
  const std::vector<float> before = rows();
  EXPECT_LT(before[0], 1);
  EXPECT_LT(before[1], 8);
  EXPECT_EQ(before[2], 8);
  logged.restart();
  EXPECT_EQ(rows(), before);
  push(5);
  client.add_missing_rows("table", {4, 5}, Tensor::full(DType::kFloat32, {2, 1}, 9));
  const std::vector<float> after = rows();
  logged.restart();
  EXPECT_EQ(rows(), after);
  EXPECT_EQ(client.rows_in_use("table"), (std::vector<int64_t>{2, 4, 5, 6}));
}

// A snapshot is tried again and again where the disk is full.
TEST(ChangeLog, HasOneFileForManySnapshotsThatCannotBeWritten) {
  Logged logged;
  ParameterClient& client = *logged.client;
  const ShardSpec spec = whole_shard("w", kFour);
  client.create(spec, [] { return floats({0, 0, 0, 0}); });
  for (int times = 0; times < 3; ++times) {
    const FileSizeLimit full(8);
    EXPECT_ERROR(logged.server->snapshot(), Code::kResourceExhausted, "/shards-1: ");
  }
  EXPECT_EQ(logged.files().size(), 2u) << "that with the shard, and the one to go on in";
  push(client, -10);
  const auto before = all_of(client, spec);
  logged.restart();
  EXPECT_EQ(all_of(client, spec), before);
}

TEST(ChangeLog, IsNotTakenForNoneWhereItCannotBeSeen) {
  if (std::getenv("UBSAN_OPTIONS") != nullptr)
    GTEST_SKIP() << "a sanitizer that looks whether it may read an object needs descriptors";
  const TemporaryFolder folder("ps");
  const parameter_server::ChangeLog log(folder.path(), false);
  EXPECT_FALSE(parameter_server::has_log(folder.path())) << "it says nothing yet";
  const FewDescriptors none(0);
  EXPECT_ERROR(parameter_server::has_log(folder.path()), Code::kResourceExhausted, folder.path());
}

// The next attempt has the same number.
TEST(ChangeLog, BeginsAFileAgainThatItCouldNotBegin) {
  const TemporaryFolder folder("ps");
  parameter_server::ChangeLog log(folder.path(), true);
  log.add(whole_shard("w", kFour), floats({0, 0, 0, 0}));
  const Error error = error_of([&] {
    const FewDescriptors one(1);
    log.begin_file();
  });
  EXPECT_NE(error.message().find(folder.path()), std::string::npos) << error.what();
  EXPECT_EQ(log.begin_file(), 2);
}

TEST(ChangeLog, IsNeitherForgottenNorWithoutAFolder) {
  EXPECT_ERROR(TestServer({.log = ServerLog::kWritten}), Code::kInvalidArgument,
               "a log needs a snapshot_folder");
  const TemporaryFolder folder("ps");
  EXPECT_ERROR(TestServer({.snapshot_folder = folder.path(), .log = ServerLog::kWritten}),
               Code::kInvalidArgument, "a log needs a snapshot_interval");
  Logged logged;
  logged.client->create(whole_shard("w", kFour), [] { return floats({0, 0, 0, 0}); });
  logged.server.stop();
  EXPECT_ERROR(TestServer({.snapshot_folder = logged.folder()}), Code::kFailedPrecondition,
               "has kept a log");
  TestServer synced({.snapshot_folder = logged.folder(),
                     .snapshot_interval = std::chrono::hours(1),
                     .log = ServerLog::kSynced});
  push(*synced.client(), -10);
  EXPECT_EQ(synced->statistics().pushes_applied, 1u);
}

}  // namespace
}  // namespace cohort::testing
