#include "tests/strategies/collective/tcp/tcp_group.h"

#include <atomic>
#include <filesystem>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include "strategies/cluster/coordination/in_memory_store.h"

namespace cohort::testing {
namespace {

// What has been sent by all TCP connections that this process has open, which are those of all
// ranks; but for what a busy machine sends again.
int64_t tcp_bytes_sent() {
  int64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    const int fd = std::stoi(entry.path().filename());
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0)
      total += static_cast<int64_t>(info.tcpi_bytes_sent - info.tcpi_bytes_retrans);
  }
  return total;
}

}  // namespace

Group make_tcp_group(int size, const TcpOptions& options) {
  InMemoryStore store;
  Group group(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        group[static_cast<size_t>(rank)] = make_tcp_communicator(store, rank, size, options);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  std::erase(group, nullptr);
  return group;
}

double times_sent(const Group& group, int64_t bytes, const RankWork& call) {
  std::atomic<int64_t> before = 0, after = 0;
  on_ranks(group, [&](int rank, Communicator& communicator) {
    call(rank, communicator);
    communicator.barrier();
    if (rank == 0) before = tcp_bytes_sent();
    communicator.barrier();
    call(rank, communicator);
    communicator.barrier();
    if (rank == 0) after = tcp_bytes_sent();
    communicator.barrier();
  });
  return static_cast<double>(after - before) / static_cast<double>(bytes);
}

}  // namespace cohort::testing
