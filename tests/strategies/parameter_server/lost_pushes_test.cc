// Pushes that a server acknowledged and its snapshot does not have.
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/base/file.h"
#include "strategies/parameter_server/push_ledger.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

using parameter_server::Mark;
using parameter_server::PushLedger;
using Starts = std::map<PushLedger::Key, std::vector<Mark>>;

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
    eventually([&] { return server_->statistics().pushes_lost >= pushes; });
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
  EXPECT_TRUE(
      eventually([&] { return server_.lines("lost=3 pushes of worker:1 to 2 shards") == 1; }));
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

// Whether it is the same start that pushes again, or the next one.
TEST_F(Lost, IsSaidOnceOfAllShardsThatARequestPushesTo) {
  const auto push_to_both = [&] {
    std::vector<ShardPush> pushes;
    for (const char* name : {"v", "w"})
      pushes.push_back({.shard = name, .gradient = floats({1, 1, 1, 1}), .learning_rate = 1});
    worker_->update(pushes, {});
  };
  for (const int64_t lines : {1, 2}) {
    push_to_both();
    EXPECT_EQ(server_->statistics().pushes_lost, 3u) << "of this start of the server";
    EXPECT_EQ(server_.lines("lost=3 pushes of worker:1 to 2 shards ("), lines);
    EXPECT_EQ(server_.lines("lost="), lines);
    server_->snapshot();
    for (const char* name : {"w", "v", "v"}) push(*worker_, name);
    server_.stop();
    server_.start();
    worker_ = server_.client("worker:1");
  }
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

// Nine pushes of a worker, of which the snapshot has three, and seven of its next start.
class LostOfTwoStarts : public ::testing::Test {
 protected:
  LostOfTwoStarts() {
    worker_->create(spec_, [] { return floats({0, 0, 0, 0}); });
    push(3);
    server_->snapshot();
    push(6);
    worker_ = server_.client("worker:1");
    push(7);
    kill_server();
  }
  void push(int times) {
    for (int i = 0; i < times; ++i)
      worker_->push({.shard = "w", .gradient = floats({1, 1, 1, 1}), .learning_rate = 1});
  }
  void kill_server() {
    server_.stop();
    server_.start();
  }
  uint64_t lost() { return server_->statistics().pushes_lost; }

  const TemporaryFolder folder_{"ps"};
  const ShardSpec spec_ = whole_shard("w", kFour);
  TestServer server_{{.snapshot_folder = folder_.path()}};
  std::unique_ptr<ParameterClient> worker_ = server_.client("worker:1");
};

TEST_F(LostOfTwoStarts, IsCountedOfBothWhenTheWorkerLeaves) {
  worker_->leave();
  EXPECT_EQ(lost(), 13u);
  EXPECT_NE(server_.line("lost=13 pushes of worker:1"), "");
}

TEST_F(LostOfTwoStarts, IsCountedOfBothWhenTheSecondGoesOn) {
  push(1);
  EXPECT_EQ(lost(), 13u);
}

TEST_F(LostOfTwoStarts, IsCountedOnceWhenAThirdComes) {
  worker_ = server_.client("worker:1");
  push(2);
  EXPECT_EQ(lost(), 13u);
  kill_server();
  worker_->leave();
  EXPECT_EQ(lost(), 2u);
}

TEST(PushLedger, GoesOnWhereAnotherHasEnded) {
  const TemporaryFolder folder("ps");
  const PushLedger::Key one{"w", "worker:0"}, two{std::string("w\0x", 3), "worker:1"};
  {
    PushLedger ledger(folder.path(), true);
    ledger.write(one, {.incarnation = 1, .sequence = 2});
    ledger.write(two, {.incarnation = 3, .sequence = 4});
    ledger.write(one, {.incarnation = 1, .sequence = 9});
  }
  EXPECT_EQ(PushLedger(folder.path(), false).marks(), (Starts{{one, {{1, 9}}}, {two, {{3, 4}}}}));
  std::string text = read_file(folder.path() + "/pushes");
  text[512 + 40] ^= 1;  // a name
  write_file_atomically(folder.path() + "/pushes", text);
  PushLedger damaged(folder.path(), false);
  EXPECT_EQ(damaged.marks(), (Starts{{one, {{1, 9}}}}));
  damaged.write(two, {.incarnation = 3, .sequence = 5});
  EXPECT_EQ(PushLedger(folder.path(), false).marks().at(two), (std::vector<Mark>{{3, 5}}));
  EXPECT_TRUE(PushLedger(folder.path(), true).marks().empty());
}

TEST(PushLedger, HasNamesOfAnyLength) {
  const TemporaryFolder folder("ps");
  Starts written;
  {
    PushLedger ledger(folder.path(), true);
    for (const size_t bytes : {4096, 471, 472, 473, 984, 1, 985})
      for (const Mark mark : {Mark{1, bytes}, Mark{2, 1}, Mark{1, bytes + 1}})
        ledger.write({std::string(bytes, 'x'), "worker:0"}, mark);
    written = ledger.marks();
  }
  ASSERT_EQ(written.size(), 7u);
  EXPECT_EQ(written.begin()->second, (std::vector<Mark>{{1, 2}, {2, 1}}));
  EXPECT_EQ(PushLedger(folder.path(), false).marks(), written);
  std::filesystem::resize_file(folder.path() + "/pushes", 512);
  EXPECT_TRUE(PushLedger(folder.path(), false).marks().empty()) << "of a record that is cut off";
}

TEST(PushLedger, HasTheLastStartsOfATaskInTheirOrder) {
  const TemporaryFolder folder("ps");
  const PushLedger::Key key{"w", "worker:0"};
  PushLedger ledger(folder.path(), true);
  for (const Mark mark : {Mark{7, 2}, Mark{5, 4}, Mark{7, 3}, Mark{5, 1}}) ledger.write(key, mark);
  const Starts two = {{key, {{7, 3}, {5, 4}}}};
  EXPECT_EQ(ledger.marks(), two);
  EXPECT_EQ(PushLedger(folder.path(), false).marks(), two);
  std::vector<Mark> last;
  for (uint64_t i = 0; i <= PushLedger::kMaxStarts; ++i) {
    last.push_back({100 - i, 1 + i});
    ledger.write(key, last.back());
  }
  last.erase(last.begin());
  EXPECT_EQ(ledger.marks().at(key), last);
  EXPECT_EQ(PushLedger(folder.path(), false).marks().at(key), last);
  EXPECT_EQ(read_file(folder.path() + "/pushes").size(), 512 * PushLedger::kMaxStarts);
  ledger.keep_only(key, last.back().incarnation);
  for (Mark& mark : last)
    if (mark != last.back()) mark.sequence = 0;
  EXPECT_EQ(PushLedger(folder.path(), false).marks().at(key), last);
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
  for (const auto& [key, starts] : marks)
    EXPECT_EQ(starts, (std::vector<Mark>{{1, kPushes}})) << key.task;
}

}  // namespace
}  // namespace cohort::testing
