#include "strategies/collective/make_communicators.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "strategies/collective/host/gathered_values.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/collective/host/shared_memory_communicator.h"
#include "strategies/collective/tcp/tcp_communicator.h"

namespace cohort {
namespace {

// Of a call over TCP for which there is no limit: more than any job takes.
constexpr std::chrono::hours kNoLimit{24 * 365};

void check(const GroupOptions& o) {
  if (o.ranks_per_process < 1) invalid("a process has at least 1 rank, got ", o.ranks_per_process);
  if (o.processes < 1 || o.process < 0 || o.process >= o.processes)
    invalid("process ", o.process, " of ", o.processes, " cannot be");
  if (o.processes > 1 && (o.store == nullptr || o.name.empty()))
    invalid("several processes need a store to meet in, and a name for their group");
}

// The host of each process.
std::vector<std::string> gather_hosts(const GroupOptions& o) {
  GatheredValues values(*o.store, o.name, o.process, o.processes, o.join_limit);
  auto hosts = values.gather("host", o.host.empty() ? host_identity() : o.host);
  values.forget({"host"}, {});
  return hosts;
}

ConnectedGroup connect_memory(const GroupOptions& o) {
  return {make_shared_memory_communicators(*o.store, {.name = o.name + "/memory",
                                                      .process = o.process,
                                                      .processes = o.processes,
                                                      .ranks_per_process = o.ranks_per_process,
                                                      .join_limit = o.join_limit,
                                                      .limit = o.limit}),
          "shared memory"};
}

// Ranks wait for each other while they connect, so that each has a thread.
ConnectedGroup connect_tcp(const GroupOptions& o) {
  TcpOptions options{.address = o.address,
                     .allow_plaintext = o.allow_plaintext,
                     .name = o.name + "/tcp",
                     .join_timeout = o.join_limit,
                     .timeout = o.limit.value_or(kNoLimit),
                     .check_payloads = o.check_payloads};
  const auto ranks = static_cast<size_t>(o.ranks_per_process);
  ConnectedGroup group{std::vector<std::unique_ptr<Communicator>>(ranks), "TCP"};
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < ranks; ++t)
    threads.emplace_back([&, t] {
      try {
        group.communicators[t] =
            make_tcp_communicator(*o.store, o.process * o.ranks_per_process + static_cast<int>(t),
                                  o.processes * o.ranks_per_process, options);
      } catch (...) {
        errors[t] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error != nullptr) std::rethrow_exception(error);
  return group;
}

}  // namespace

ConnectedGroup make_communicators(const GroupOptions& options) {
  check(options);
  if (options.processes == 1)
    return {make_in_process_communicators(options.ranks_per_process), "threads"};
  if (options.backend == CommunicationBackend::kSharedMemory) return connect_memory(options);
  if (options.backend == CommunicationBackend::kTcp) return connect_tcp(options);
  const auto hosts = gather_hosts(options);
  if (std::all_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h == hosts[0]; }))
    return connect_memory(options);
  return connect_tcp(options);
}

}  // namespace cohort
