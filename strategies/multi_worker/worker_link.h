#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/collective/communicator.h"
#include "strategies/cluster/coordination/failure_watch.h"
#include "strategies/cluster/coordination/key_value_store.h"

namespace cohort {

// How the workers of a job reach each other: a membership in the job, and communicators over it.
// What a strategy with several workers stands on. Thread-safe, but for destruction. Without leave()
// before, destruction is a failure for the others.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "worker:1".
  virtual std::string name(int rank) const = 0;

  // This worker's ranks of a new group with `local` ranks of each worker: rank() * local and those
  // that follow. Every worker makes the call, with the same `limit`: how long one may wait for the
  // others in a call, before kDeadlineExceeded names those that have not come; for ever without
  // one. Groups of one name are told apart by their order.
  virtual std::vector<std::unique_ptr<Communicator>> connect(
      const std::string& name, int local, std::optional<std::chrono::milliseconds> limit) = 0;

  // What the programs of the workers tell each other, apart from what Cohort keeps for itself.
  // Lives as long as this, and is usable until leave(); its calls throw the failure of the job.
  virtual KeyValueStore& store() = 0;
  // What the workers tell each other by themselves; likewise.
  virtual KeyValueStore& own_store() = 0;
  // Returns when all workers have called it with this name; a name may be used again. Where
  // somebody has not come within `timeout`, kDeadlineExceeded names all who have not, to those who
  // wait and to those who come later, and the job goes on.
  virtual void barrier(const std::string& name, std::chrono::milliseconds timeout) = 0;

  // For how long what this worker has sent to each other one, by name, has kept the network busy
  // since the last call, as far as its groups know: TcpOptions::on_sent.
  virtual std::map<std::string, std::chrono::nanoseconds> take_sending_times() { return {}; }

  // The failure of the job, once there is one; waits for it for `timeout`.
  virtual std::optional<Error> failure(std::chrono::milliseconds timeout) = 0;
  // Calls `callback` once with it, on any thread. The watch ends that.
  [[nodiscard]] virtual FailureWatch on_failure(std::function<void(const Error&)> callback) = 0;
  // Makes the job fail for all.
  virtual void report(const Error& error) = 0;
  // Ends well; waits for the others. Throws the failure of the job.
  virtual void leave(std::chrono::milliseconds timeout) = 0;
};

// The links of `count` workers that are threads of this process, each with a strategy of its own:
// for trying out programs of several workers. Who waits for a key is not woken by a failure.
std::vector<std::shared_ptr<WorkerLink>> make_in_process_links(int count);

}  // namespace cohort
