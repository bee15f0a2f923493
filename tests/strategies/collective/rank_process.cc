// One process of a group of processes: SCENARIO FOLDER PROCESS PROCESSES RANKS_PER_PROCESS
// [LIMIT_MS].
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "core/base/threads.h"
#include "strategies/collective/host/shared_memory_communicator.h"
#include "tests/strategies/collective/directory_store.h"
#include "tests/strategies/collective/scenarios.h"

namespace cohort::testing {
namespace {

int run(char** arguments, int count) {
  DirectoryStore store(arguments[2]);
  SharedMemoryOptions options{.name = "group",
                              .process = std::atoi(arguments[3]),
                              .processes = std::atoi(arguments[4]),
                              .ranks_per_process = std::atoi(arguments[5])};
  if (count > 6) options.limit = std::chrono::milliseconds(std::atoi(arguments[6]));
  auto group = make_shared_memory_communicators(store, options);
  std::atomic<int> status = 0;
  std::vector<std::thread> threads;
  for (auto& communicator : group)
    threads.emplace_back([&] {
      set_num_threads(1);
      try {
        scenarios().at(arguments[1])(*communicator);
      } catch (const Error& error) {
        std::fprintf(stderr, "rank %d: %s\n", communicator->rank(), error.what());
        communicator->abort(error);
        status = 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace
}  // namespace cohort::testing

int main(int argc, char** argv) {
  if (argc < 6) return 64;
  try {
    return cohort::testing::run(argv, argc);
  } catch (const cohort::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
