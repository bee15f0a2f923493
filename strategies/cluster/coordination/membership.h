#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/coordination/failure_watch.h"
#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/environment.h"

namespace cohort {

struct MembershipOptions {
  // How long join() waits for the leader and for all others.
  std::chrono::milliseconds join_timeout = std::chrono::seconds(60);
  // A silent member is named after `suspect_after`, and lost by about then where its host does not
  // answer either; else it counts as dead after `dead_after`. Each says something every
  // `heartbeat`. The leader's values hold for all. At least two heartbeats must fit into the first,
  // which must be less than the second.
  std::chrono::milliseconds heartbeat{250};
  std::chrono::milliseconds suspect_after{2500};
  std::chrono::milliseconds dead_after{5000};
  // Where empty: COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA, COHORT_TLS_LEADER_NAME.
  TlsFiles tls = {};
  // Plain text beyond this host, for networks where everybody may be trusted; also
  // COHORT_ALLOW_PLAINTEXT=1.
  bool allow_plaintext = false;
  // What the tasks of this job have in common and no other job has; where empty, COHORT_JOB_ID;
  // where that is not set, the leader chooses 128 random bits.
  std::string job_id = {};
  // Gets lines for people (who is missing, who is silent), without a newline; where empty, they go
  // to standard error. May be called from any thread.
  std::function<void(const std::string& line)> notice = {};
};

// A task's membership in its job: the tasks of rank 0 to size - 1, from the moment when all have
// joined. They watch over each other: when one dies, falls silent, restarts, ends without leave(),
// or reports an error, the job has failed for all of them. Each then gets the same error, which
// names the task at fault (peer()), from every call that waits and every later one, and by
// on_failure(). There is no way back; recovery is a new membership, of all tasks.
//
// The task of rank 0 leads: it serves the others at ClusterResolver::leader(), on threads of its
// membership. A task on its own has a membership too, without any network.
//
// Thread-safe, but for destruction. Several memberships in one process do not touch each other.
class Membership {
 public:
  // Joins, in any order of starting, and returns when all have. Meanwhile a line every 5 s says who
  // is missing, and one at once who had joined and is gone. Errors: kDeadlineExceeded names who is
  // missing; kCancelled after an interrupt (interrupted()); kFailedPrecondition, at once, for a
  // task that does not fit (rank, world size, cluster, job id, version, rank taken; both sides are
  // named), for a port in use, and for plain text where it is not allowed; kPermissionDenied, at
  // once, for a port that the system denies; kInvalidArgument for options and certificates.
  static std::unique_ptr<Membership> join(const ClusterResolver& resolver,
                                          const MembershipOptions& options = {},
                                          const Environment& environment = process_environment);
  // Without leave() before, this is a failure for the others.
  virtual ~Membership() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "worker:1": how errors name a task.
  virtual std::string task_name(int rank) const = 0;
  virtual const std::string& job_id() const = 0;
  // A random number of this membership, unlike that of any other task or restart.
  virtual uint64_t incarnation() const = 0;
  // Counts the changes of membership that the leader has seen: the same for all when they have
  // joined, and greater after a failure.
  virtual int64_t epoch() const = 0;

  // Lives as long as the membership. Its calls also throw the failure of the job, and
  // kFailedPrecondition after leave().
  virtual KeyValueStore& store() = 0;

  // Returns when all tasks have called it with this name; a name may be used again.
  // kDeadlineExceeded names all who have not come; those who wait, and those who come too late,
  // then get it as well.
  virtual void barrier(const std::string& name, std::chrono::milliseconds timeout) = 0;

  // The failure of the job; nothing while it is well.
  virtual std::optional<Error> failure() const = 0;
  // Calls `callback` once with the failure of the job, on a thread of the membership, at once if
  // the job has failed already. The watch ends it. For aborting what waits for peers; must not
  // block for long.
  [[nodiscard]] virtual FailureWatch on_failure(std::function<void(const Error&)> callback) = 0;
  // Tells all tasks of an error, of this task or of the peer that it names: the job has failed. Who
  // reports first is heard; failure() is then the cause that all have. Waits for the leader, as
  // long as a silent one counts as living.
  virtual void report(const Error& error) = 0;

  // Says that this task has to end soon, as after SIGTERM: all tasks will agree on a step to stop
  // after. Returns at once; not from a signal handler.
  virtual void announce_stop() = 0;
  // To be called by every task after each step, with the number of steps that it has done: the
  // number of steps after which all tasks stop, once somebody has announced it. Nobody has done
  // more by then. Costs next to nothing until then; waits for the agreement afterwards.
  virtual std::optional<int64_t> stop_step(int64_t steps_done) = 0;

  // Ends the membership well. Waits until all tasks have called it, and gives up the leader's port;
  // or for `timeout`: then false, and a line names who has not. Throws the failure of the job.
  // Other calls must have returned.
  virtual bool leave(std::chrono::milliseconds timeout = std::chrono::seconds(60)) = 0;
};

}  // namespace cohort
