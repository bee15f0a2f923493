#include "tests/strategies/collective/tcp/tcp_group.h"

#include <thread>

#include "strategies/cluster/coordination/in_memory_store.h"

namespace cohort::testing {

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

}  // namespace cohort::testing
