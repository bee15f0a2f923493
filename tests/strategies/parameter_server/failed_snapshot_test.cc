#include <filesystem>

#include "strategies/parameter_server/snapshot.h"
#include "tests/strategies/parameter_server/saved_shards.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"
#include "tests/testing/file_size_limit.h"

namespace cohort::testing {
namespace {

// A server that takes snapshots by itself, of a shard of 16 bytes.
class FailedSnapshots : public ::testing::Test {
 protected:
  FailedSnapshots() {
    client_->create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
  }
  bool has_snapshot() const { return saved_shards(folder_.path()) == 1; }
  auto written() const {
    return std::filesystem::last_write_time(folder_.path() + "/" + parameter_server::kSnapshotFile);
  }

  const TemporaryFolder folder_{"ps"};
  TestServer server_{
      {.snapshot_folder = folder_.path(), .snapshot_interval = std::chrono::milliseconds(5)}};
  std::unique_ptr<ParameterClient> client_ = server_.client();
};

TEST_F(FailedSnapshots, AreSaidAndCountedAndFollowedByOthers) {
  ASSERT_TRUE(eventually([&] { return has_snapshot(); }));
  EXPECT_EQ(client_->statistics().snapshots_failed, 0u);
  {
    const FileSizeLimit full(8);
    ASSERT_TRUE(eventually([&] { return !server_.line("no snapshot: ").empty(); }));
    EXPECT_NE(server_.line(" s ago, is still there"), "") << server_.line("no snapshot");
    EXPECT_TRUE(has_snapshot());
    EXPECT_ERROR(server_->snapshot(), Code::kResourceExhausted, folder_.path() + "/shards-");
  }
  EXPECT_GE(client_->statistics().snapshots_failed, 2u);
  const auto before = written();
  EXPECT_TRUE(eventually([&] { return written() != before; }));
  EXPECT_TRUE(eventually([&] { return has_snapshot(); }));
}

TEST_F(FailedSnapshots, AreSaidOnceForEachReason) {
  ASSERT_TRUE(eventually([&] { return has_snapshot(); }));
  {
    const FileSizeLimit full(64);  // enough for the values, and not for what names them
    ASSERT_TRUE(eventually([&] { return server_->statistics().snapshots_failed >= 5; }));
  }
  EXPECT_LE(server_.lines("no snapshot: "), 2) << "of snapshot.json, if at all, and previous.json";
}

}  // namespace
}  // namespace cohort::testing
