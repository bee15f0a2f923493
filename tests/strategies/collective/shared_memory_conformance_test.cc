#include <thread>

#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/collective/host/shared_memory_communicator.h"
#include "tests/collective/conformance.h"

namespace cohort::testing {
namespace {

// Ranks that are threads here, and join as `processes` processes: only those of one see all of each
// other's memory.
Group join(int processes, int ranks_per_process) {
  InMemoryStore store;
  std::vector<Group> groups(static_cast<size_t>(processes));
  std::vector<std::thread> joining;
  for (int p = 0; p < processes; ++p)
    joining.emplace_back([&, p] {
      groups[static_cast<size_t>(p)] =
          make_shared_memory_communicators(store, {.name = "group",
                                                   .process = p,
                                                   .processes = processes,
                                                   .ranks_per_process = ranks_per_process});
    });
  for (std::thread& thread : joining) thread.join();
  Group all;
  for (Group& group : groups) std::move(group.begin(), group.end(), std::back_inserter(all));
  return all;
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, CommunicatorConformanceTest,
                         groups_of({{"Threads", [](int size) { return join(1, size); }},
                                    {"Processes", [](int size) { return join(size, 1); }}}),
                         group_name);

}  // namespace
}  // namespace cohort::testing
