#include <algorithm>
#include <poll.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/torchrun_resolver.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/tcp_fault_proxy.h"

// The tasks of a job find each other in whatever order they start.
namespace cohort::testing {
namespace {

TorchrunResolver resolver(int rank, int size, int port) {
  return TorchrunResolver(environment({{"RANK", std::to_string(rank)},
                                       {"WORLD_SIZE", std::to_string(size)},
                                       {"MASTER_ADDR", "127.0.0.1"},
                                       {"MASTER_PORT", std::to_string(port)}}));
}

bool listens(const net::InternetAddress& address) {
  try {
    const net::Descriptor caller = net::start_connecting(address);
    pollfd polled{caller.get(), POLLOUT, 0};
    return poll(&polled, 1, 1000) == 1 && net::connection_error(caller.get()) == 0;
  } catch (const Error&) {
    return false;
  }
}

// Starts tasks in the order of these ranks, each when the one before has come to wait for others,
// and has all tell each other who they are. What they throw.
std::vector<std::string> errors_of(const LocalJob& job, const std::vector<int>& order) {
  const int size = static_cast<int>(order.size());
  const auto leader = net::InternetAddress::parse(job.address(0), "the leader");
  std::vector<std::unique_ptr<TcpFaultProxy>> ways;  // to the leader, by rank
  for (int rank = 0; rank < size; ++rank) ways.push_back(std::make_unique<TcpFaultProxy>(leader));
  const auto waits = [&](int rank) {
    return rank == 0 ? listens(leader) : ways[rank]->calls() > 0;
  };
  return on_threads(size, [&](int place) {
    const int rank = order[place];
    if (place > 0 && !eventually([&] { return waits(order[place - 1]); }))
      throw std::runtime_error("the one before has not started");
    const int port = rank == 0 ? job.port(0) : ways[rank]->endpoint().port();
    const auto member = join(resolver(rank, size, port), {.join_timeout = kPlenty});
    member->store().set(str("rank ", rank), member->task_name(rank));
    for (int other = 0; other < size; ++other)
      EXPECT_EQ(member->store().get(str("rank ", other), kPlenty), str("worker:", other));
    member->leave();
  });
}

TEST(StartOrder, EveryOneOfUpToFourTasksEndsWithAllTogether) {
  const LocalJob job(1);  // for its port
  for (const int size : {2, 3, 4}) {
    std::vector<int> order;
    for (int rank = 0; rank < size; ++rank) order.push_back(rank);
    do {
      EXPECT_THAT(errors_of(job, order), ::testing::Each("")) << ::testing::PrintToString(order);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

}  // namespace
}  // namespace cohort::testing
