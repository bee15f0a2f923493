#include "strategies/collective/make_communicators.h"

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strategies/cluster/coordination/in_memory_store.h"
#include "tests/collective/ranks.h"

namespace cohort::testing {
namespace {

// What threads get that stand for the processes of a group; `change` sets what is special to one.
std::vector<ConnectedGroup> connect(int processes, int ranks_per_process,
                                    const std::function<void(int, GroupOptions&)>& change) {
  InMemoryStore store;
  std::vector<ConnectedGroup> groups(static_cast<size_t>(processes));
  std::vector<std::thread> threads;
  for (int p = 0; p < processes; ++p)
    threads.emplace_back([&, p] {
      GroupOptions options{.store = &store,
                           .name = "group",
                           .process = p,
                           .processes = processes,
                           .ranks_per_process = ranks_per_process};
      change(p, options);
      try {
        groups[static_cast<size_t>(p)] = make_communicators(options);
      } catch (const Error& error) {
        ADD_FAILURE() << "process " << p << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return groups;
}

// All ranks add up; the connection that they tell.
void expect_sums(std::vector<ConnectedGroup> groups, const std::string& connection) {
  Group ranks;
  for (ConnectedGroup& group : groups) {
    EXPECT_EQ(group.connection, connection);
    for (auto& communicator : group.communicators) {
      EXPECT_EQ(communicator->rank(), static_cast<int>(ranks.size()));
      ranks.push_back(std::move(communicator));
    }
  }
  ASSERT_EQ(ranks.size(), 4u);
  on_ranks(ranks, [](int rank, Communicator& communicator) {
    std::vector<float> values(50000, static_cast<float>(rank + 1));
    const Segment segment{values.data(), values.data(), 50000};
    communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(values, std::vector<float>(50000, 10.0f));
  });
}

TEST(MakeCommunicatorsTest, ConnectsProcessesOverTcpWhereAsked) {
  expect_sums(connect(2, 2, [](int, GroupOptions& o) { o.backend = CommunicationBackend::kTcp; }),
              "TCP");
}

TEST(MakeCommunicatorsTest, ConnectsHostsOverTcp) {
  expect_sums(
      connect(4, 1, [](int p, GroupOptions& o) { o.host = "host" + std::to_string(p / 2); }),
      "TCP");
}

TEST(MakeCommunicatorsTest, RefusesPlaintextBeyondTheHost) {
  InMemoryStore store;
  const Error error = error_of([&] {
    make_communicators({.store = &store,
                        .name = "group",
                        .processes = 2,
                        .backend = CommunicationBackend::kTcp,
                        .address = "192.0.2.1:0"});
  });
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_NE(error.message().find("192.0.2.1"), std::string::npos) << error.message();
}

}  // namespace
}  // namespace cohort::testing
