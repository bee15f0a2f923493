#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/environment.h"

namespace cohort {

struct WorkerServerOptions {
  // What the tasks of this job have in common and no other job has; where empty, COHORT_JOB_ID.
  // Coordinators of another job are refused.
  std::string job_id = {};
  // The worker's devices, as ParameterServerStrategy::Options::devices names those of the
  // coordinator's strategy: a replica on each of them executes every function. Empty: every logical
  // CPU, of which there is one by default. For a coordinator without a strategy it has to be one.
  std::vector<std::string> devices = {};
  // "worker:1": a coordinator that takes this worker for another one is refused. Empty: any.
  std::string task = {};
  // Who may schedule; others are refused. Empty: "chief:0", and for run_worker_server() worker:0
  // where the cluster has no chief.
  std::string coordinator = {};
  // wait() returns when there has been no coordinator for so long, after there was one; 0: never.
  std::chrono::milliseconds orphaned_after = std::chrono::seconds(60);
  // The same when there never was one.
  std::chrono::milliseconds unclaimed_after = std::chrono::minutes(10);
  // How long a function waits for a parameter server that is away, before that is its error.
  std::chrono::milliseconds server_timeout = std::chrono::seconds(60);
  // Of the tensors in one message, so that no function may be given more, nor have more in its
  // constants, nor a variable that each worker has; of arguments that wait for their functions
  // twice as many.
  size_t max_bytes = size_t{4} << 30;
  // Where empty: COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA.
  TlsFiles tls = {};
  // Plain text beyond this host; also COHORT_ALLOW_PLAINTEXT=1.
  bool allow_plaintext = false;
  // Gets lines for people, without a newline; where empty, they go to standard error. May be called
  // from any thread.
  std::function<void(const std::string& line)> notice = {};
};

// Executes what a ClusterCoordinator schedules: graph functions that it is sent, over datasets that
// this program has registered (register_dataset). It knows nothing else of the job, so that the
// same program can serve any. From its making to its destruction it serves, on threads of its own;
// closures are executed one after the other. What a coordinator keeps here (functions, variables,
// passes over datasets) goes when its connection ends. Of several coordinators, the last that has
// come counts; an earlier start of it is refused.
class WorkerServer {
 public:
  // Listens at `address`. For devices as resolve_devices says. kFailedPrecondition when the port is
  // in use, the address is not of this host, or plain text would go beyond this host without
  // permission; kInvalidArgument for certificates.
  explicit WorkerServer(const Address& address, const WorkerServerOptions& options = {},
                        const Environment& environment = process_environment);
  // Waits for the closure that is being executed.
  ~WorkerServer();
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;

  // Returns when the coordinator has asked the worker to end, or left it alone (orphaned_after), or
  // cohort::init() has seen an interrupt.
  void wait();
  // Closures executed so far.
  uint64_t executed() const;
  // Calls refused so far: strangers, other jobs, bytes that are no message.
  uint64_t refused() const;

 private:
  class Network;
  std::unique_ptr<Network> network_;
};

// Where this task is a worker that another task gives functions, by the cluster that the
// environment describes (resolve_cluster): serves until the job ends, and returns true. Elsewhere
// returns false at once: to a chief, a server and an evaluator, to a program on its own, and to
// worker:0 of a cluster without a chief, whose ClusterCoordinator executes as well as schedules.
// kFailedPrecondition for a worker of a cluster that has neither chief:0 nor worker:0.
[[nodiscard]] bool run_worker_server(WorkerServerOptions options = {},
                                     const Environment& environment = process_environment);

}  // namespace cohort
