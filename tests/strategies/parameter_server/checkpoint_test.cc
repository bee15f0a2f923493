// Snapshots of several servers, which are restored by others.
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "strategies/parameter_server/partitioner.h"
#include "strategies/parameter_server/reshard.h"
#include "strategies/parameter_server/service.h"
#include "strategies/parameter_server/snapshot.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

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

// Else the variables that it had would keep their initial values, and nobody would know.
TEST(Checkpoint, IsNotRestoredWithoutTheFolderOfAServer) {
  const TemporaryFolder folder("ps");
  const auto path = [&](int server) { return str(folder.path(), "/ps-", server); };
  const auto write = [&](int server, int num_servers, const std::string& variable) {
    parameter_server::SnapshotWriter writer(path(server), {.num_servers = num_servers});
    writer.add({.spec = whole_shard(variable, kFour), .parts = {floats({1, 2, 3, 4})}});
    writer.commit();
  };
  write(0, 2, "v");
  TestServer server;
  const auto client = server.client();
  for (const char* variable : {"v", "w"})
    client->create(whole_shard(variable, kFour), [] { return floats({0, 0, 0, 0}); });
  EXPECT_ERROR(client->restore(folder.path()), Code::kInvalidArgument,
               str("one of 2 servers, and ", path(1), " is missing"));
  EXPECT_EQ(values_of(fetch(*client, whole_shard("v", kFour))), (std::vector<float>(4)));
  write(1, 3, "w");
  EXPECT_ERROR(client->restore(folder.path()), Code::kInvalidArgument,
               str(path(0), " was written by one of 2 servers, and ", path(1), " by one of 3"));
  write(1, 2, "w");
  EXPECT_EQ(client->restore(folder.path()), 2);
  // A server that has never had a shard has its folder, and perhaps no snapshot there.
  EXPECT_TRUE(parameter_server::remove_snapshot(path(1)));
  std::filesystem::create_directory(path(1));
  EXPECT_EQ(client->restore(folder.path()), 1);
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

// Whether the saved shard has the same rows or others.
TEST(Checkpoint, IsOfTheSameSlotsAndInitializerAndAnyMaxRows) {
  const ShardSpec table = lazy_table(100, 2, {.a = 5, .seed = 1, .max_rows = 2});
  for (const int64_t rows : {100, 50}) {
    SCOPED_TRACE(rows);
    const TemporaryFolder folder("ps");
    {
      parameter_server::SnapshotWriter writer(folder.path());
      writer.add(state_with(table, {1, 2}, 7));
      writer.commit();
    }
    const auto restore_as = [&](ShardSpec wanted) {
      wanted.rows = rows;
      TestServer server;
      const auto client = server.client();
      client->create(wanted, [] { return Tensor(); });
      return client->restore(folder.path());
    };
    ShardSpec other = table;
    other.lazy->max_rows = 10;
    EXPECT_EQ(restore_as(other), 1);
    other = table;
    other.lazy->seed = 2;
    EXPECT_ERROR(restore_as(other), Code::kInvalidArgument, "with seed 1");
    other = table;
    other.update.slots[0].initial = 3;
    EXPECT_ERROR(restore_as(other), Code::kInvalidArgument, "slots");
  }
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

struct Read {
  int64_t shard;  // its first row
  int part;
  int64_t begin, end;
  bool operator==(const Read&) const = default;
};

// A saved shard, not all of which can be loaded: what is read of it is noted. All rows of a table
// are in use; a row has the number of its first element.
parameter_server::SavedShard readable(const ShardSpec& spec, std::vector<Read>& reads) {
  parameter_server::SavedShard saved{.about = {.spec = spec}, .rows = spec.rows, .load = nullptr};
  if (spec.lazy)
    saved.load_row_ids = [rows = spec.rows] {
      std::vector<int64_t> ids(static_cast<size_t>(rows));
      std::iota(ids.begin(), ids.end(), 0);
      return ids;
    };
  saved.read_rows = [spec, &reads](int part, const RowRange& rows, char* target) {
    reads.push_back({spec.begin, part, rows.begin, rows.end});
    std::vector<float> numbers(static_cast<size_t>(rows.rows() * spec.columns()));
    std::iota(numbers.begin(), numbers.end(),
              static_cast<float>((spec.begin + rows.begin) * spec.columns()));
    std::memcpy(target, numbers.data(), numbers.size() * sizeof(float));
  };
  return saved;
}

// However large the saved shards are, no more than the new one is in memory, and each row is read
// once.
TEST(Checkpoint, IsReadByTheRowsThatAShardHas) {
  const ShardSpec table = lazy_table(10, 2, {}),
                  dense = whole_shard("w", {DType::kFloat32, {10, 2}}, optim::Adagrad(1.0));
  for (ShardSpec spec : {table, dense}) {
    SCOPED_TRACE(spec.variable);
    std::vector<Read> reads;
    std::vector<parameter_server::SavedShard> saved;
    for (const RowRange& rows : {RowRange{7, 10}, RowRange{0, 4}, RowRange{4, 7}}) {
      spec.begin = rows.begin;
      spec.rows = rows.rows();
      saved.push_back(readable(spec, reads));
    }
    spec.begin = 3;
    spec.rows = 5;
    const auto assembled = parameter_server::assemble(spec, saved);
    ASSERT_TRUE(assembled);
    EXPECT_EQ(assembled->rows, 5);
    EXPECT_TRUE(reads.empty());
    const parameter_server::ShardState state = assembled->load();
    EXPECT_EQ(
        reads,
        (std::vector<Read>{
            {0, 0, 3, 4}, {0, 1, 3, 4}, {4, 0, 0, 3}, {4, 1, 0, 3}, {7, 0, 0, 1}, {7, 1, 0, 1}}));
    for (const Tensor& part : state.parts)
      EXPECT_EQ(values_of(part), (std::vector<float>{6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
    if (spec.lazy) {
      EXPECT_EQ(state.row_ids, (std::vector<int64_t>{0, 1, 2, 3, 4}));
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

}  // namespace
}  // namespace cohort::testing
