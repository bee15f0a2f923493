#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/device/device.h"
#include "core/distribute/per_replica.h"
#include "core/runtime/plan.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/ready_closure.h"
#include "strategies/coordinator/worker_functions.h"
#include "strategies/coordinator/worker_resources.h"
#include "strategies/local_replicas.h"
#include "strategies/parameter_server/server_session.h"
#include "strategies/parameter_server/task_pool.h"

namespace cohort::coordinator {

// What a worker keeps and does for one call of a coordinator: functions, resources, and a thread
// that executes closures one after the other. Commands may be hostile: what does not fit is
// answered with an error, or ends the call.
class ClosureRunner {
 public:
  // Where answers go, on any thread. is_drained: all answers have been handed to the network.
  class Answers {
   public:
    virtual ~Answers() = default;
    virtual void send(const FromWorker& message) = 0;
    virtual bool is_drained() const = 0;
  };

  // `executed` counts closures over all runners. `answers` must stay until stop() has returned.
  // `servers` are the job's parameter servers, null where it has none. Each closure is executed by
  // a replica on each of `devices`. The tensors of all commands that wait have twice
  // `max_message_bytes` at most: a message is taken while another one waits.
  ClosureRunner(const Attach& attach, std::vector<Device> devices, size_t max_message_bytes,
                std::shared_ptr<ServerSession> servers, Answers& answers,
                std::atomic<uint64_t>& executed);
  // Waits for the closure that is being executed.
  ~ClosureRunner();

  // Commands in order; all but ShutDown. Cancel ends the closure that is being executed, too, where
  // it computes, or waits for servers or for elements that a dataset makes ahead; it is then
  // returned. kResourceExhausted when more wait than any coordinator sends, and when the
  // coordinator does not read the answers.
  void take(std::vector<Command> commands);
  // The answers so far have been handed to the network.
  void drained() { flush(); }
  // Drops what has not begun. Nothing is sent any more.
  void stop();
  // Whether the thread has ended, after stop().
  bool has_ended() const { return ended_; }

 private:
  void work();
  void execute(const Define& define);
  void execute(Create create);
  void execute(Drop drop);
  void execute(Run run);
  void execute(Fetch fetch);
  void execute(Cancel);
  void execute(Forget);

  WorkerResources::What make(const Create& create);
  void ask_for(const ReadyClosure& ready);
  // The function of a closure, if it may begin: what sums does not overtake what waits, so that
  // sums have the same calls wherever closures are given in the same order.
  CompiledFunction* find_due(const ReadyClosure& ready, bool others_wait);
  // The results of each replica.
  PerReplica<std::vector<Tensor>> call(CompiledFunction& compiled, const ReadyClosure& ready);
  // Calls `work` for each replica: on this thread where there is one, else on theirs.
  using ReplicaWork = std::function<std::vector<Tensor>(size_t replica, const PlanOptions& plan,
                                                        const StepInfo& step)>;
  PerReplica<std::vector<Tensor>> on_replicas(const RunOptions& options, const ReplicaWork& work);
  int num_replicas() const { return static_cast<int>(devices_.size()); }
  // Calls `f`, whose results or error become the answer to `id`; nothing is none yet.
  template <typename F>
  void answer(uint64_t id, const F& f);
  // Those of the function that was called. Where one cannot be read, that is the result's error.
  void add_counts(Result& result) const;
  // Of a closure that was cancelled, or did not wait because this process is to stop, it is none:
  // that is returned.
  void set_error(Result& result, const Error& error) const;
  void give_back(bool cancelled);
  // All three: REQUIRES mutex_ held.
  void cancel_closures();
  void require_reader();
  void send_answers();
  void forget_cancelling();
  void flush();

  const Attach attach_;
  const std::vector<Device> devices_;
  const size_t max_message_bytes_;
  const size_t max_answer_bytes_;                 // that the coordinator takes in a message
  const std::shared_ptr<ServerSession> servers_;  // null where there are none
  Answers& answers_;
  std::atomic<uint64_t>& executed_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Command> waiting_;
  size_t waiting_bytes_ = 0;
  bool stopping_ = false;
  bool executes_closures_ = false;       // the command that is being executed
  std::atomic<bool> cancelled_ = false;  // its closures are
  FromWorker outgoing_;                  // answers that have not been sent
  size_t unread_ = 0;                    // answers that were, since the network had taken all
  std::atomic<size_t> num_functions_ = 0, num_resources_ = 0;
  std::atomic<bool> ended_ = false;

  // The thread's own.
  WorkerResources resources_;
  WorkerFunctions functions_;
  std::vector<ReadyClosure> unknown_;  // that wait for their function, or for those before them
  const CompiledFunction* called_ = nullptr;  // by the closure that is being answered
  // Of the last Forget: an error of what sums, until one is carried out.
  std::optional<Error> not_forgotten_;
  std::unique_ptr<LocalReplicas> replicas_;    // where there are several
  parameter_server::TaskPool ends_passes_{1};  // over datasets, which have been dropped

  std::thread thread_;
};

}  // namespace cohort::coordinator
