// One process of a group of processes: SCENARIO FOLDER PROCESS PROCESSES RANKS_PER_PROCESS LIMIT_MS
// HOSTS DENIAL, where LIMIT_MS may be 0, HOSTS has a letter for the host of each, or nothing, and
// DENIAL is what this process gives up: "memory", "rights" or nothing.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <linux/capability.h>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "core/base/threads.h"
#include "strategies/collective/host/shared_memory_communicator.h"
#include "strategies/collective/make_communicators.h"
#include "tests/strategies/collective/directory_store.h"
#include "tests/strategies/collective/scenarios.h"

namespace cohort::testing {
namespace {

// What the system itself denies from here on.
void give_up(const std::string& denial) {
  if (denial == "memory") {
    const rlimit small{1 << 16, 1 << 16};  // of files, which memory that others can map is one of
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) fail(Code::kInternal, "cannot limit files");
  } else if (denial == "rights") {
    // Whoever has fewer rights than another process may not look at its memory.
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {};
    if (syscall(SYS_capset, &header, none) != 0) fail(Code::kInternal, "cannot give up rights");
  }
}

int run(char** arguments) {
  give_up(arguments[8]);
  DirectoryStore store(arguments[2]);
  const int process = std::atoi(arguments[3]), processes = std::atoi(arguments[4]),
            ranks = std::atoi(arguments[5]), limit_ms = std::atoi(arguments[6]);
  std::optional<std::chrono::milliseconds> limit;
  if (limit_ms > 0) limit = std::chrono::milliseconds(limit_ms);
  const std::string hosts = arguments[7];
  ConnectedGroup group;
  if (hosts.empty())
    group.communicators = make_shared_memory_communicators(store, {.name = "group",
                                                                   .process = process,
                                                                   .processes = processes,
                                                                   .ranks_per_process = ranks,
                                                                   .limit = limit});
  else
    group = make_communicators({.store = &store,
                                .name = "group",
                                .process = process,
                                .processes = processes,
                                .ranks_per_process = ranks,
                                .host = hosts.substr(static_cast<size_t>(process), 1),
                                .limit = limit});
  std::printf("connected by %s\n", group.connection.c_str());
  if (!group.reason.empty()) std::printf("because %s\n", group.reason.c_str());
  std::fflush(stdout);
  std::atomic<int> status = 0;
  std::vector<std::thread> threads;
  for (auto& communicator : group.communicators)
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
  if (argc < 9) return 64;
  try {
    return cohort::testing::run(argv);
  } catch (const cohort::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
