#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/collective/communicator.h"
#include "core/collective/stall_warning.h"
#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/collective/communication_backend.h"

namespace cohort {

// A group of processes with the same number of ranks each, which are threads: thread t of process p
// is rank p * ranks_per_process + t.
struct GroupOptions {
  // Where the processes meet. Not needed by a process alone.
  KeyValueStore* store = nullptr;
  // Where, as long as it is there, the ranks of a call whose limit is over show each other what
  // they did last: FlightRecorderOptions::store_on_time_out.
  std::weak_ptr<KeyValueStore> store_on_time_out = {};
  // Begins the group's keys in the stores; never used twice in them.
  std::string name;
  int process = 0, processes = 1;
  int ranks_per_process = 1;
  // What errors call the processes: "worker:2"; empty where they have no names.
  std::vector<std::string> tasks = {};
  // kAuto leaves it to COHORT_COLLECTIVE_BACKEND; all processes ask for the same, which they
  // compare first.
  CommunicationBackend backend = CommunicationBackend::kAuto;
  // Processes with equal names may share memory. By default host_identity(), which tells network
  // namespaces and pid namespaces apart.
  std::string host;
  // How long to wait for the others to join.
  std::chrono::milliseconds join_limit{60'000};
  // How long a rank waits for the others in a call; for ever without one. The threads of a process
  // alone take no notice of it, nor of `stall`: with_time_limit() gives them a limit.
  std::optional<std::chrono::milliseconds> limit;
  // Of a rank that waits for others; without one, stall_warning_asked_for().
  std::optional<StallWarning> stall = {};
  // Of TCP, as in TcpOptions: where this process's ranks listen and the others reach them (with
  // several ranks the port must be 0), what errors call that, certificates, the job for which they
  // may be, whether plain text may go beyond this host, and whether payloads carry checks.
  std::string address = "127.0.0.1:0";
  std::string address_as_written = {};
  TlsFiles tls = {};
  std::string job_id = {};
  bool allow_plaintext = false;
  bool check_payloads = false;
  // As TcpOptions', for an error that names a task.
  std::function<void(const Error&)> on_unreachable = {};
  // As TcpOptions', of each rank of this process.
  std::function<void(const std::string& task, std::chrono::microseconds time)> on_sent = {};
};

struct ConnectedGroup {
  std::vector<std::unique_ptr<Communicator>> communicators;  // of this process's ranks
  // For logs: "shared memory", and on how many hosts; 0 for a process alone.
  std::string connection;
  int hosts = 0;
  // Why the connection is not the one that suits ("worker:1 cannot share memory: ..."); empty where
  // it is.
  std::string reason = {};
};

// Connects the processes of a group. All call it together. kDeadlineExceeded names those that have
// not come; kInvalidArgument, kFailedPrecondition for options that do not go together.
ConnectedGroup make_communicators(const GroupOptions& options);

}  // namespace cohort
