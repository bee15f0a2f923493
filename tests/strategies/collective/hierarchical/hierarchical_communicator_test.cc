#include "strategies/collective/hierarchical/hierarchical_communicator.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <future>
#include <signal.h>

#include "core/collective/reduction.h"
#include "core/tensor/tensor.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "tests/strategies/collective/connected_groups.h"
#include "tests/strategies/collective/processes.h"
#include "tests/strategies/collective/tcp/tcp_group.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;

// Two hosts: what is to be the same on both crosses once in each direction, however many ranks they
// have.
TEST(HierarchicalCommunicatorTest, SendsEverythingBetweenHostsOnce) {
  constexpr int64_t kCount = 2'600'000;  // more than a window
  constexpr int64_t kBytes = kCount * 4;
  constexpr double kMore = 0.02;  // what agreements and frames add
  for (const std::vector<int>& hosts : {std::vector{0, 0, 1, 1}, {0, 1, 1, 1}}) {
    const Group group = group_on_hosts(hosts);
    std::vector<std::vector<float>> data(hosts.size(), std::vector<float>(kCount, 1));
    const auto of = [&](int rank) { return data[static_cast<size_t>(rank)].data(); };
    const double all_reduce = times_sent(group, kBytes, [&](int rank, Communicator& c) {
      const Segment segment{of(rank), of(rank), kCount};
      c.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kMax);
    });
    EXPECT_NEAR(all_reduce, 2, kMore);
    const double broadcast = times_sent(group, kBytes, [&](int rank, Communicator& c) {
      c.broadcast(of(rank), of(rank), kBytes, 1);
    });
    EXPECT_NEAR(broadcast, 1, kMore);
    // Each host's parts, once to the other one.
    const std::vector<int64_t> parts(4, kBytes / 4);
    const double all_gather = times_sent(group, kBytes, [&](int rank, Communicator& c) {
      c.all_gather(of(rank) + rank * kCount / 4, of(rank), parts);
    });
    EXPECT_NEAR(all_gather, 1, kMore);
    const std::vector<int64_t> counts(4, kCount / 4);
    const double scatter = times_sent(group, kBytes, [&](int rank, Communicator& c) {
      c.reduce_scatter(of(rank), of(rank) + rank * kCount / 4, counts, DType::kFloat32,
                       ReduceOp::kMax);
    });
    EXPECT_NEAR(scatter, 1, kMore);
    // Each host combines a half, and one of these has to go to the root.
    const double reduce = times_sent(group, kBytes, [&](int rank, Communicator& c) {
      c.reduce(of(rank), of(rank), kCount, DType::kFloat32, ReduceOp::kMax, 0);
    });
    EXPECT_NEAR(reduce, 1.5, kMore);
  }
}

// Numbers whose sum depends on the order in which they are added.
Tensor fractions(DType dtype, int rank, int64_t count) {
  Tensor data(DType::kFloat32, {count});
  for (int64_t i = 0; i < count; ++i)
    data.data<float>()[i] = std::sin(static_cast<float>(i * 31 + rank * 17));
  return data.cast(dtype);
}

Tensor combined(const std::vector<Tensor>& values, ReduceOp op) {
  std::vector<const void*> sources;
  for (const Tensor& value : values) sources.push_back(value.raw());
  Tensor result(values[0].dtype(), values[0].shape());
  void* const target = result.raw();
  reduce_elements(op, result.dtype(), sources, {&target, 1}, 0, result.num_elements());
  return result;
}

// What a rank has of a reduction over hosts {0, 1, 0, 2, 1}.
Tensor expected_sum(DType dtype, bool is_mean, int64_t count) {
  std::vector<Tensor> of_hosts;
  for (const std::vector<int>& ranks : {std::vector{0, 2}, {1, 4}, {3}}) {
    std::vector<Tensor> values;
    for (const int r : ranks) values.push_back(fractions(dtype, r, count).cast(DType::kFloat32));
    of_hosts.push_back(combined(values, ReduceOp::kSum));
  }
  Tensor sum = combined(of_hosts, ReduceOp::kSum);
  for (int64_t i = 0; is_mean && i < count; ++i) sum.data<float>()[i] /= 5;
  return sum.cast(dtype);
}

TEST(HierarchicalCommunicatorTest, AddsHostByHostAndRoundsHalfTypesOnce) {
  const Group group = group_on_hosts({0, 1, 0, 2, 1});
  for (const int64_t count : {1, 100, 30'000})
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
        const Tensor expected = expected_sum(dtype, op == ReduceOp::kMean, count);
        on_ranks(group, [&](int rank, Communicator& communicator) {
          Tensor data = fractions(dtype, rank, count);
          const Segment segment{data.raw(), data.raw(), count};
          communicator.all_reduce({&segment, 1}, dtype, op);
          EXPECT_EQ(std::memcmp(data.raw(), expected.raw(), data.bytes()), 0)
              << "rank " << rank << ", " << count << " " << dtype;
        });
      }
}

// The last ranks do not come; the others are told who is missing, on whatever host they are.
void expect_named(const std::vector<int>& hosts, int first_missing, const std::string& name) {
  const Group group =
      group_on_hosts(hosts, 1, [](GroupOptions& options) { options.limit = milliseconds(1000); });
  on_ranks(group, [&](int rank, Communicator& communicator) {
    communicator.barrier();
    if (rank >= first_missing) return;
    const Error error = error_of([&] { communicator.barrier(); });
    EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
    EXPECT_NE(error.message().find("a barrier took longer than 1000 ms"), std::string::npos)
        << error.message();
    EXPECT_NE(error.message().find(name), std::string::npos) << error.message();
  });
  EXPECT_EQ(error_of([&] { group.back()->barrier(); }).code(), Code::kDeadlineExceeded);
}

TEST(HierarchicalCommunicatorTest, ARankThatDoesNotComeIsNamedOnAllHosts) {
  expect_named({0, 0, 1, 1}, 3, ": not called by rank 3 at 127.0.0.1:");
  expect_named({1, 0, 0, 1}, 3, ": not called by rank 3 at 127.0.0.1:");
}

TEST(HierarchicalCommunicatorTest, AHostThatDoesNotComeIsNamedOnAllHosts) {
  expect_named({0, 0, 1, 1}, 2, ": not called by rank 2 at 127.0.0.1:");
}

TEST(HierarchicalCommunicatorTest, AMessageThatDoesNotComeEndsTheGroupOnAllLevels) {
  const Group group = group_on_hosts(
      {0, 0, 1, 1}, 1, [](GroupOptions& options) { options.limit = milliseconds(300); });
  std::promise<void> failed;
  const std::shared_future<void> has_failed = failed.get_future().share();
  on_ranks(group, [&](int rank, Communicator& communicator) {
    char byte = 0;
    if (rank == 3) {
      EXPECT_EQ(error_of([&] { communicator.receive(&byte, 1, 0, 5); }).code(),
                Code::kDeadlineExceeded);
      failed.set_value();
    } else {
      EXPECT_EQ(has_failed.wait_for(kHangLimit), std::future_status::ready);
    }
    const Error error = error_of([&] { communicator.barrier(); });
    EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
    EXPECT_NE(error.message().find("for a message from rank 0"), std::string::npos)
        << error.message();
  });
}

TEST(HierarchicalCommunicatorTest, ARankThatLeavesIsNamedByItsTaskOnAllHosts) {
  Group group = group_on_hosts({0, 0, 1, 1}, 1, [](GroupOptions& options) {
    options.tasks = {"worker:0", "worker:1", "worker:2", "worker:3"};
  });
  ASSERT_EQ(group.size(), 4u);
  group.erase(group.begin() + 2);
  on_ranks(group, [](int /*rank*/, Communicator& communicator) {
    const Error error = error_of([&] { communicator.barrier(); });
    EXPECT_EQ(error.code(), Code::kUnavailable) << error.what();
    EXPECT_EQ(error.peer(), "worker:2") << error.what();
    EXPECT_NE(error.message().find("worker:2 (rank 2"), std::string::npos) << error.what();
  });
}

// Rank 4 is on the second host.
TEST(HierarchicalCommunicatorTest, AProcessThatDiesIsNamedOnAllHosts) {
  for (const int ranks : {1, 2}) {
    Processes group(
        {.scenario = "wait", .processes = 5, .ranks_per_process = ranks, .hosts = "01011"});
    group.await_output(0, "ready");
    kill(group.pid(4), SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(group.wait(4), -1);
    for (int p = 0; p < 4; ++p) {
      EXPECT_EQ(group.wait(p), 0) << group.output(p);
      const std::string output = group.output(p);
      EXPECT_TRUE(output.find(str("UNAVAILABLE: rank ", 4 * ranks, " ")) != std::string::npos ||
                  output.find(str("UNAVAILABLE: rank ", 4 * ranks + ranks - 1, " ")) !=
                      std::string::npos)
          << output;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
}

TEST(HierarchicalCommunicatorTest, AStoppedProcessIsNamedOnAllHosts) {
  Processes group({.scenario = "wait", .processes = 4, .limit_ms = 500, .hosts = "0101"});
  group.await_output(0, "ready");
  kill(group.pid(3), SIGSTOP);
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(group.wait(p), 0) << group.output(p);
    EXPECT_NE(group.output(p).find(": no answer from rank 3 at "), std::string::npos)
        << group.output(p);
  }
  kill(group.pid(3), SIGCONT);
  EXPECT_EQ(group.wait(3), 0) << group.output(3);
}

// Rank 2, on a host of its own, is connected and then comes no further.
TEST(HierarchicalCommunicatorTest, AGroupThatCannotFormAnyMoreIsGivenUp) {
  Group tcp = make_tcp_group(3, {.timeout = kNoTimeLimit});
  ASSERT_EQ(tcp.size(), 3u);
  InMemoryStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const Error error = error_of([&] {
        auto host =
            make_host_communicators(store, {.name = "host", .process = rank, .processes = 2});
        make_hierarchical_communicator(
            {.tcp = std::move(tcp[static_cast<size_t>(rank)]),
             .host = std::move(host[0]),
             .hosts = {0, 0, 1},
             .limit = std::nullopt,
             .check = [] { fail(Code::kUnavailable, "worker:2 counts as dead"); }});
      });
      EXPECT_EQ(error.code(), Code::kUnavailable) << error.what();
      EXPECT_NE(error.message().find("worker:2 counts as dead"), std::string::npos)
          << error.message();
    });
  for (std::thread& thread : threads) thread.join();
}

// A host whose rank splits it and then comes no further until it may, as if it were stopped.
class StoppedInSplit final : public HostCommunicator {
 public:
  StoppedInSplit(std::unique_ptr<HostCommunicator> inner, std::promise<void>& stopped,
                 std::future<void> may_go_on)
      : inner_(std::move(inner)), stopped_(stopped), may_go_on_(std::move(may_go_on)) {}
  ~StoppedInSplit() override { end_queue(); }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_->split(color, key);
  }
  std::unique_ptr<HostCommunicator> split_host(int color, int key) override {
    auto part = inner_->split_host(color, key);
    stopped_.set_value();
    may_go_on_.wait_for(kHangLimit);
    return part;
  }
  void renumber(std::vector<int> numbers, int size) override {
    inner_->renumber(std::move(numbers), size);
  }
  void agree(const Call& call, uint64_t collective) override { inner_->agree(call, collective); }
  void abort(const Error& error) override { inner_->abort(error); }

 private:
  void run_now(const Call& call) override { inner_->run(call); }
  // Messages go over TCP.
  int64_t post(const SendCall&) override { fail(Code::kUnimplemented, "no messages"); }
  int64_t post(const ReceiveCall&) override { fail(Code::kUnimplemented, "no messages"); }
  Received wait_for_message(int64_t) override { fail(Code::kUnimplemented, "no messages"); }
  bool is_message_done(int64_t) override { fail(Code::kUnimplemented, "no messages"); }

  const std::unique_ptr<HostCommunicator> inner_;
  std::promise<void>& stopped_;
  const std::future<void> may_go_on_;
};

// Two hosts are split while the last rank is stopped, which it is until the others have the error
// `what`; then it gets that, too. `work` is done meanwhile with the first rank.
void expect_split_ends(std::optional<milliseconds> limit,
                       const std::function<void(Communicator&)>& work, const std::string& what) {
  Group tcp = make_tcp_group(4, {.timeout = kNoTimeLimit});
  ASSERT_EQ(tcp.size(), 4u);
  InMemoryStore store;
  std::promise<void> stopped, may_go_on;
  Group group(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      auto host = std::move(make_host_communicators(
          store,
          {.name = str("host", rank / 2), .process = rank % 2, .processes = 2, .limit = limit})[0]);
      if (rank == 3)
        host = std::make_unique<StoppedInSplit>(std::move(host), stopped, may_go_on.get_future());
      group[r] = make_hierarchical_communicator({.tcp = std::move(tcp[r]),
                                                 .host = std::move(host),
                                                 .hosts = {0, 0, 1, 1},
                                                 .limit = limit});
    });
  for (std::thread& thread : threads) thread.join();
  std::thread working([&] {
    stopped.get_future().wait_for(kHangLimit);
    work(*group[0]);
  });
  std::atomic<int> waiting = 3;
  on_ranks(group, [&](int rank, Communicator& communicator) {
    const std::string error = error_of([&] { communicator.split(0); }).what();
    EXPECT_NE(error.find(what), std::string::npos) << error;
    if (rank < 3 && --waiting == 0) may_go_on.set_value();
  });
  working.join();
}

TEST(HierarchicalCommunicatorTest, ASplitWithAStoppedRankEndsWithItsLimit) {
  expect_split_ends(
      milliseconds(1000), [](Communicator&) {},
      "DEADLINE_EXCEEDED: the ranks of a part were connected, but have not become a group within "
      "1000 ms");
}

TEST(HierarchicalCommunicatorTest, AnAbortEndsASplitWithAStoppedRank) {
  expect_split_ends(
      std::nullopt,
      [](Communicator& communicator) { communicator.abort(Error(Code::kCancelled, "enough")); },
      "CANCELLED: enough");
}

TEST(HierarchicalCommunicatorTest, DifferentCallsInAHostAreRefusedOnAllHosts) {
  Processes group({.scenario = "mismatch", .processes = 5, .hosts = "01201"});
  for (int p = 0; p < 5; ++p) {
    EXPECT_EQ(group.wait(p), 0) << group.output(p);
    EXPECT_NE(
        group.output(p).find("INVALID_ARGUMENT: the ranks of a group must make the same calls"),
        std::string::npos)
        << group.output(p);
    EXPECT_NE(group.output(p).find("with 7 elements"), std::string::npos) << group.output(p);
  }
}

TEST(HierarchicalCommunicatorTest, MessagesGoBetweenAllPairsOfProcesses) {
  Processes group({.scenario = "messages", .processes = 2, .ranks_per_process = 2, .hosts = "01"});
  for (int p = 0; p < 2; ++p) EXPECT_EQ(group.wait(p), 0) << group.output(p);
}

}  // namespace
}  // namespace cohort::testing
