#include "tests/strategies/collective/connected_groups.h"

#include <thread>

#include "strategies/cluster/coordination/in_memory_store.h"

namespace cohort::testing {

std::vector<ConnectedGroup> connect_group(int processes, int ranks_per_process,
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

Group ranks_of(std::vector<ConnectedGroup> processes, const std::string& connection) {
  Group ranks;
  for (ConnectedGroup& process : processes) {
    EXPECT_EQ(process.connection, connection);
    for (auto& communicator : process.communicators) {
      EXPECT_EQ(communicator->rank(), static_cast<int>(ranks.size()));
      ranks.push_back(std::move(communicator));
    }
  }
  return ranks;
}

Group group_on_hosts(const std::vector<int>& hosts, int ranks_per_process,
                     const std::function<void(GroupOptions&)>& change) {
  return ranks_of(connect_group(static_cast<int>(hosts.size()), ranks_per_process,
                                [&](int p, GroupOptions& options) {
                                  options.host = str("host", hosts[static_cast<size_t>(p)]);
                                  if (change) change(options);
                                }),
                  "shared memory within hosts, TCP between them");
}

}  // namespace cohort::testing
