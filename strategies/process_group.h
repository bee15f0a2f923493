#pragma once

#include <chrono>
#include <memory>
#include <optional>

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
  // How long one call may wait for the others, before kDeadlineExceeded names those that have not
  // come; as long as they live without one.
  std::optional<std::chrono::milliseconds> limit = {};
};

// The processes of a job as one group, for programs that want collectives alone:
//
//   collective::ProcessGroup group;  // the cluster is read from the environment
//   Tensor sum = collective::all_reduce(group, Tensor::scalar(group.rank()));
//
// Construction waits until all processes are there, destruction until all have come to it. A
// process on its own is a group of one. When a process dies, falls silent, leaves by an exception,
// or comes to the end, which is a barrier, while others are in another collective, what waits in
// these ends with an error that names it. One thread at a time.
class ProcessGroup {
 public:
  // The errors of resolve_cluster(), Membership::join() and make_communicators().
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

 private:
  std::shared_ptr<WorkerLink> link_;  // null for a process on its own
  std::unique_ptr<Communicator> communicator_;
  int exceptions_;      // on their way when this was made
  FailureWatch watch_;  // last: it uses what is above
};

}  // namespace cohort::collective
