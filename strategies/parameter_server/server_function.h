#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/distribute/per_replica.h"
#include "core/runtime/function.h"
#include "strategies/parameter_server/server_session.h"

namespace cohort {

// A traced function whose variables live on parameter servers, made ready to run: what it reads is
// pulled before, and what it writes or pushes goes to the servers after it.
//
// Of a server variable whose only use is that rows of axis 0 are looked up, by numbers that follow
// from the function's inputs, the rows that this call needs are pulled, each once; of others the
// shards that have changed. All that a call needs of a server comes in one request, and all that it
// sends there goes in another, side by side with those of other servers.
//
// Writes to a server variable take place in this process's copy while the function runs. Then what
// was only added (assign_add, assign_sub, scatter with kAdd or kSub) is added on the servers, if no
// optimizer moves the variable; else the new value is assigned.
class ServerFunction {
 public:
  // `graphs` has that of each local replica, in order; they may be the same, and must outlive this.
  // Resources that are no server variables are left alone.
  ServerFunction(const std::vector<const GraphFunction*>& graphs,
                 std::shared_ptr<ServerSession> session);
  ~ServerFunction();

  // Runs a function, given the inputs of each local replica, on all of them at the same time.
  using RunReplicas = std::function<PerReplica<std::vector<Tensor>>(
      const Function& function, const PerReplica<std::vector<Tensor>>& inputs)>;
  // One call: the outputs of each replica's graph. One at a time. After an error nothing was
  // pushed, or in part; the next call works again.
  PerReplica<std::vector<Tensor>> run(const PerReplica<std::vector<Tensor>>& inputs,
                                      const RunReplicas& run_replicas);
  // The same for one replica, on cpu:0.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, const StepInfo& step = {},
                          Precision precision = Precision::kFloat32);

  // How often the variable that has been updated most, of those to which the last call has pushed
  // gradients, had been updated then; 0 when there was none.
  uint64_t pushed_version() const;

  // Whether an optimizer has taken one of its variables over since it was made: another one is to
  // be made then.
  bool is_outdated() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace cohort
