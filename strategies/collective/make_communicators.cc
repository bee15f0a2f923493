#include "strategies/collective/make_communicators.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "core/base/notice.h"
#include "core/base/start_threads.h"
#include "core/base/time_limits.h"
#include "strategies/collective/flight_recorder.h"
#include "strategies/collective/hierarchical/hierarchical_communicator.h"
#include "strategies/collective/host/gathered_values.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/collective/host/shared_memory_communicator.h"
#include "strategies/collective/in_own_process.h"
#include "strategies/collective/mpi/mpi_communicator.h"
#include "strategies/collective/stall_setting.h"
#include "strategies/collective/tcp/tcp_communicator.h"

namespace cohort {
namespace {

void check(const GroupOptions& o) {
  if (o.ranks_per_process < 1) invalid("a process has at least 1 rank, got ", o.ranks_per_process);
  if (o.processes < 1 || o.process < 0 || o.process >= o.processes)
    invalid("process ", o.process, " of ", o.processes, " cannot be");
  if (!o.tasks.empty() && o.tasks.size() != static_cast<size_t>(o.processes))
    invalid("GroupOptions::tasks names ", o.tasks.size(), " of ", o.processes, " processes");
  if (o.processes > 1 && (o.store == nullptr || o.name.empty()))
    invalid("several processes need a store to meet in, and a name for their group");
}

std::string name_of(const GroupOptions& o, size_t process) {
  return o.tasks.empty() ? str("process ", process) : o.tasks[process];
}

// What the processes say when they meet.
struct Meeting {
  std::vector<std::string> hosts;  // by process
  bool mpi_carries_all = true;     // each is one rank of an MPI job that has no others
};

// All ask for the same backend; kFailedPrecondition else.
Meeting meet(const GroupOptions& o, CommunicationBackend asked_for) {
  Meeting meeting;
  const std::string_view name = backend_name(asked_for);
  const bool has_mpi = o.ranks_per_process == 1 && mpi_world_size() == o.processes;
  GatheredValues values(*o.store, o.name, o.process, o.processes, o.join_limit, o.tasks);
  const auto said = values.gather(
      "host", str(name, has_mpi ? " mpi " : " - ", o.host.empty() ? host_identity() : o.host));
  values.forget({"host"}, {});
  for (size_t p = 0; p < said.size(); ++p) {
    std::istringstream in(said[p]);
    std::string backend, mpi, host;
    in >> backend >> mpi;
    std::getline(in >> std::ws, host);
    if (backend != name)
      fail(Code::kFailedPrecondition, "the processes of a group ask for the same backend, but ",
           name_of(o, static_cast<size_t>(o.process)), " of \"", o.name, "\" asks for ", name,
           " and ", name_of(o, p), " for ", backend,
           " (the option backend, COHORT_COLLECTIVE_BACKEND)");
    meeting.hosts.push_back(host);
    meeting.mpi_carries_all = meeting.mpi_carries_all && mpi == "mpi";
  }
  return meeting;
}

ConnectedGroup connect_mpi(const GroupOptions& o) {
  if (o.ranks_per_process != 1)
    invalid("over MPI a process is one rank, but here it has ", o.ranks_per_process,
            "; start a process for each, or ask for another backend");
  using Seconds = std::chrono::duration<double>;
  const auto world = make_mpi_communicator(
      {.time_limit_seconds = Seconds(o.join_limit).count(), .stall = *o.stall});
  if (world->size() != o.processes)
    fail(Code::kFailedPrecondition, "group \"", o.name, "\" has ", o.processes,
         " processes, but MPI has started ", world->size(), "; over MPI they are the same");
  ConnectedGroup group{{}, "MPI"};
  group.communicators.push_back(reorder_mpi_communicator(
      *world, o.process, o.tasks.empty() ? "" : o.tasks[static_cast<size_t>(o.process)],
      Seconds(o.limit.value_or(kNoTimeLimit)).count()));
  return group;
}

ConnectedGroup connect_memory(const GroupOptions& o) {
  return {make_shared_memory_communicators(*o.store, {.name = o.name + "/memory",
                                                      .process = o.process,
                                                      .processes = o.processes,
                                                      .ranks_per_process = o.ranks_per_process,
                                                      .tasks = o.tasks,
                                                      .join_limit = o.join_limit,
                                                      .limit = o.limit,
                                                      .stall = *o.stall}),
          "shared memory"};
}

// What `make` makes of the ranks of this process, which wait for each other meanwhile, so that each
// has a thread. The first error is thrown: others may be of those that have waited for its rank.
std::vector<std::unique_ptr<Communicator>> on_threads(
    const GroupOptions& o, const std::function<std::unique_ptr<Communicator>(size_t)>& make) {
  const auto ranks = static_cast<size_t>(o.ranks_per_process);
  std::vector<std::unique_ptr<Communicator>> communicators(ranks);
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto make_one = [&](int thread) {
    const auto t = static_cast<size_t>(thread);
    try {
      communicators[t] = make(t);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (first_error == nullptr) first_error = std::current_exception();
    }
  };
  // Ranks that wait for one without a thread do so until their time is over.
  std::vector<std::thread> threads =
      start_threads(o.ranks_per_process, make_one, [](const Error&) {});
  for (std::thread& thread : threads) thread.join();
  if (first_error != nullptr) std::rethrow_exception(first_error);
  return communicators;
}

std::vector<std::string> tasks_of_ranks(const GroupOptions& o) {
  std::vector<std::string> tasks;
  for (const std::string& task : o.tasks)
    tasks.insert(tasks.end(), static_cast<size_t>(o.ranks_per_process), task);
  return tasks;
}

// Of thread `t` of this process.
std::unique_ptr<Communicator> join_tcp(const GroupOptions& o, size_t t,
                                       std::chrono::milliseconds timeout) {
  return make_tcp_communicator(*o.store, o.process * o.ranks_per_process + static_cast<int>(t),
                               o.processes * o.ranks_per_process,
                               {.address = o.address,
                                .address_as_written = o.address_as_written,
                                .tls = o.tls,
                                .job_id = o.job_id,
                                .allow_plaintext = o.allow_plaintext,
                                .tasks = tasks_of_ranks(o),
                                .name = o.name + "/tcp",
                                .join_timeout = o.join_limit,
                                .timeout = timeout,
                                .stall = *o.stall,
                                .on_unreachable = o.on_unreachable,
                                .on_sent = o.on_sent,
                                .check_payloads = o.check_payloads});
}

ConnectedGroup connect_tcp(const GroupOptions& o) {
  return {on_threads(o, [&](size_t t) { return join_tcp(o, t, o.limit.value_or(kNoTimeLimit)); }),
          "TCP"};
}

// The number of each process's host, by its name.
std::vector<int> number_hosts(const std::vector<std::string>& names) {
  std::vector<int> numbers;
  for (const std::string& name : names)
    numbers.push_back(
        static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin()));
  return numbers;
}

int count_hosts(const std::vector<int>& numbers) {
  return static_cast<int>(std::set(numbers.begin(), numbers.end()).size());
}

// Of the ranks of this process, with those of the others of its host; `kind` distinguishes
// attempts.
using HostRanks = std::vector<std::unique_ptr<HostCommunicator>>;
HostRanks join_host(const GroupOptions& o, const std::vector<int>& hosts, const std::string& kind) {
  const auto own = hosts.begin() + o.process;
  std::vector<std::string> tasks;
  for (size_t p = 0; p < o.tasks.size(); ++p)
    if (hosts[p] == *own) tasks.push_back(o.tasks[p]);
  return make_host_communicators(
      *o.store, {.name = str(o.name, "/", kind, "/", *own),
                 .process = static_cast<int>(std::count(hosts.begin(), own, *own)),
                 .processes = static_cast<int>(std::count(hosts.begin(), hosts.end(), *own)),
                 .ranks_per_process = o.ranks_per_process,
                 .tasks = std::move(tasks),
                 .join_limit = o.join_limit,
                 .limit = o.limit,
                 .stall = *o.stall});
}

// An attempt of the processes of each host to share memory.
struct Attempt {
  HostRanks ranks;
  std::vector<std::string> reasons;  // by process, why its host has failed; or ""
  bool failed() const {
    return std::any_of(reasons.begin(), reasons.end(), [](const auto& r) { return !r.empty(); });
  }
};

Attempt try_hosts(const GroupOptions& o, const std::vector<int>& hosts, const std::string& kind) {
  Attempt attempt;
  std::string reason;
  try {
    attempt.ranks = join_host(o, hosts, kind);
  } catch (const Error& error) {
    if (error.code() == Code::kDeadlineExceeded) throw;
    reason = error.what();
  }
  GatheredValues values(*o.store, o.name, o.process, o.processes, o.join_limit, o.tasks);
  attempt.reasons = values.gather(kind + " outcome", reason);
  values.forget({kind + " outcome"}, {});
  return attempt;
}

// Once for each host, by the first of its processes.
void warn(const GroupOptions& o, const std::vector<int>& hosts, const Attempt& attempt) {
  const int own = hosts[static_cast<size_t>(o.process)];
  const std::string& reason = attempt.reasons[static_cast<size_t>(o.process)];
  if (!reason.empty() && std::find(hosts.begin(), hosts.end(), own) == hosts.begin() + o.process)
    print_notice(str("warning: processes of this host cannot share memory and use TCP, which is ",
                     "slower: ", reason, "\n"));
}

// Throws what keeps a group from forming any more: the failure of the job, or that it takes too
// long.
std::function<void()> formation_check(const GroupOptions& o) {
  using Clock = std::chrono::steady_clock;
  return [&o, deadline = Clock::now() + o.join_limit] {
    o.store->check();
    if (Clock::now() >= deadline)
      fail(Code::kDeadlineExceeded, "the ranks of group \"", o.name,
           "\" were connected, but have not become one within ", o.join_limit.count(), " ms");
  };
}

// Why processes have failed to share memory; of several reasons the first.
std::string reason_of(const GroupOptions& o, const Attempt& attempt) {
  const auto first = std::find_if(attempt.reasons.begin(), attempt.reasons.end(),
                                  [](const std::string& reason) { return !reason.empty(); });
  const auto p = static_cast<size_t>(first - attempt.reasons.begin());
  return str(name_of(o, p), " cannot share memory: ", *first);
}

bool are_alone(const GroupOptions& o, const std::vector<int>& hosts) {
  return o.ranks_per_process == 1 && count_hosts(hosts) == o.processes;
}

// `ranks` share the memory of their host.
ConnectedGroup connect_shared(const GroupOptions& o, const std::vector<int>& hosts,
                              HostRanks ranks) {
  if (count_hosts(hosts) == 1)
    return {{std::move_iterator(ranks.begin()), std::move_iterator(ranks.end())}, "shared memory"};
  std::vector<int> of_ranks;
  for (const int host : hosts)
    of_ranks.insert(of_ranks.end(), static_cast<size_t>(o.ranks_per_process), host);
  return {on_threads(o,
                     [&](size_t t) {
                       return make_hierarchical_communicator({.tcp = join_tcp(o, t, kNoTimeLimit),
                                                              .host = std::move(ranks[t]),
                                                              .hosts = of_ranks,
                                                              .limit = o.limit,
                                                              .check = formation_check(o)});
                     }),
          "shared memory within hosts, TCP between them"};
}

// Processes of a host that have failed to share memory become hosts of their own.
ConnectedGroup connect_apart(const GroupOptions& o, std::vector<int> hosts, const Attempt& failed) {
  for (int p = 0; p < o.processes; ++p)
    if (const auto at = static_cast<size_t>(p); !failed.reasons[at].empty())
      hosts[at] = o.processes + p;
  if (are_alone(o, hosts)) return connect_tcp(o);
  Attempt attempt = try_hosts(o, hosts, "less memory");
  return attempt.failed() ? connect_tcp(o) : connect_shared(o, hosts, std::move(attempt.ranks));
}

ConnectedGroup connect_hosts(const GroupOptions& o, const std::vector<int>& hosts) {
  if (are_alone(o, hosts)) return connect_tcp(o);
  Attempt attempt = try_hosts(o, hosts, "memory");
  if (!attempt.failed()) return connect_shared(o, hosts, std::move(attempt.ranks));
  warn(o, hosts, attempt);
  attempt.ranks.clear();
  ConnectedGroup group = connect_apart(o, hosts, attempt);
  group.reason = reason_of(o, attempt);
  return group;
}

ConnectedGroup connect_by(CommunicationBackend backend, const GroupOptions& options) {
  ConnectedGroup group = backend == CommunicationBackend::kSharedMemory ? connect_memory(options)
                         : backend == CommunicationBackend::kTcp        ? connect_tcp(options)
                                                                        : connect_mpi(options);
  group.reason = str(backend_name(backend), " is asked for");
  return group;
}

ConnectedGroup connect(const GroupOptions& options) {
  check(options);
  const auto backend = backend_asked_for(options.backend);
  if (options.processes == 1)
    return {make_in_process_communicators(options.ranks_per_process), "threads"};
  const Meeting meeting = meet(options, backend);
  const auto hosts = number_hosts(meeting.hosts);
  ConnectedGroup group;
  if (backend != CommunicationBackend::kAuto)
    group = connect_by(backend, options);
  else if (meeting.mpi_carries_all && count_hosts(hosts) > 1)
    group = connect_mpi(options);
  else
    group = connect_hosts(options, hosts);
  group.hosts = count_hosts(hosts);
  return group;
}

// Has each warning of a call that waits for long followed by what the ranks of this process did
// last, once they are recorded.
void show_with_warnings(StallWarning& stall, FlightRecorderOptions& flights) {
  flights.show = std::make_shared<std::function<void(const std::string& why)>>();
  stall.notice = [notice = std::move(stall.notice), show = flights.show](const std::string& line) {
    if (notice)
      notice(line);
    else
      print_notice(line + "\n");
    if (*show) (*show)(line);
  };
}

}  // namespace

ConnectedGroup make_communicators(const GroupOptions& given) {
  GroupOptions options = given;
  options.join_limit = clamped(options.join_limit);
  if (options.limit) options.limit = clamped(*options.limit);
  if (!options.stall) options.stall = stall_warning_asked_for();
  FlightRecorderOptions flights = flight_recorder_options(options.name);
  flights.store_on_time_out = options.store_on_time_out;
  if (!flights.file.empty()) show_with_warnings(*options.stall, flights);
  ConnectedGroup group = connect(options);
  group.communicators = in_own_process(record_flights(std::move(group.communicators), flights));
  return group;
}

}  // namespace cohort
