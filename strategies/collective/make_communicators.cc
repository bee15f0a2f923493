#include "strategies/collective/make_communicators.h"

#include <algorithm>

#include "strategies/collective/host/gathered_values.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/collective/host/shared_memory_communicator.h"

namespace cohort {
namespace {

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

}  // namespace

ConnectedGroup make_communicators(const GroupOptions& options) {
  check(options);
  if (options.processes == 1)
    return {make_in_process_communicators(options.ranks_per_process), "threads"};
  if (options.backend == CommunicationBackend::kSharedMemory) return connect_memory(options);
  const auto hosts = gather_hosts(options);
  if (std::all_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h == hosts[0]; }))
    return connect_memory(options);
  fail(Code::kUnimplemented, "the processes of group \"", options.name,
       "\" are on several hosts, which cannot talk to each other yet");
}

}  // namespace cohort
