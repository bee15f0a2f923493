#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "core/base/own_process.h"
#include "core/collective/communicator.h"
#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/coordination/membership.h"
#include "strategies/collective/collective.h"  // IWYU pragma: export
#include "strategies/collective/communication_backend.h"
#include "strategies/collective/mixing.h"         // IWYU pragma: export
#include "strategies/collective/weighted_sums.h"  // IWYU pragma: export
#include "strategies/multi_worker/worker_link.h"

namespace cohort::collective {

struct ProcessGroupOptions {
  // Who takes part; null reads the environment (resolve_cluster).
  std::shared_ptr<const ClusterResolver> resolver = {};
  MembershipOptions membership = {};
  // How the processes talk to each other; kAuto leaves it to COHORT_COLLECTIVE_BACKEND.
  CommunicationBackend backend = CommunicationBackend::kAuto;
  // How long one call may wait for the others, 1 ms at least, before kDeadlineExceeded names those
  // that have not come; as long as they live without one.
  std::optional<std::chrono::milliseconds> limit = {};
  // In place of all that but the limit: the link of a strategy
  // (MultiWorkerMirroredStrategy::link()) whose workers these are. The group has connections of its
  // own, and learns of failures as the strategy does; its end is a barrier of its own, and not that
  // of the job. The two may end in either order, the same on all workers. Where an exception ends
  // the group, others get kAborted from it, which names the worker, and the strategy goes on.
  std::shared_ptr<WorkerLink> link = {};
};

// The processes of a job as one group, for programs that want collectives alone:
//
//   collective::ProcessGroup group;  // the cluster is read from the environment
//   Tensor sum = collective::all_reduce(group, Tensor::scalar(group.rank()));
//
// Construction waits until all processes are there, destruction until all have come to it. A
// process on its own is a group of one. When a process dies, falls silent, leaves by an exception,
// or comes to the end, which is a barrier, while others are in another collective, what waits in
// these, or in groups that were made of this one (split), ends with an error that names it. Where
// one is lost, or fails, before all have come to the end, and no call has thrown anything, it is an
// error for run_main() all the same (fail_at_exit). One thread at a time.
class ProcessGroup {
 public:
  // The errors of resolve_cluster(), Membership::join() and make_communicators(); kInvalidArgument
  // for a limit below 1 ms, before it joins.
  explicit ProcessGroup(const ProcessGroupOptions& options);
  ProcessGroup() : ProcessGroup(ProcessGroupOptions{}) {}
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  Communicator& communicator() { return *communicator_; }
  // So that it can be given to the functions of collective.h, mixing.h and weighted_sums.h.
  operator Communicator&() { return *communicator_; }  // NOLINT: a group is its communicator

  // Values by key that all groups of the job have in common, and Cohort keeps nothing of its own in
  // (TCPStore). Keys have 1 to 1019 bytes. From any thread.
  KeyValueStore& store() { return link_->store(); }
  // Returns when all processes have called it with this name (monitored_barrier). Where somebody
  // has not come within `timeout`, kDeadlineExceeded names all who have not, to those who wait and
  // to those who come later; the group goes on, unlike after a call whose limit is over. From any
  // thread.
  void barrier(const std::string& name, std::chrono::milliseconds timeout);

 private:
  // The end where no exception is on its way, and where one is.
  void end_well(bool program_knows);
  void end_badly();

  const OwnProcess process_;
  std::shared_ptr<WorkerLink> link_;
  bool is_beside_strategy_;  // which leaves the job
  // Whether a call of this or of its parts, which may outlive it, has thrown an error or made one:
  // the program knows of what has ended the group.
  std::shared_ptr<std::atomic<bool>> has_thrown_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<Communicator> communicator_;
  int exceptions_;      // on their way when this was made
  FailureWatch watch_;  // last: it uses what is above
};

}  // namespace cohort::collective
