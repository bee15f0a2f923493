#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/parameter_server/client.h"
#include "strategies/parameter_server/consistency.h"
#include "strategies/parameter_server/push_counts.h"
#include "strategies/parameter_server/task_pool.h"

namespace cohort {

// A process's way to all servers of a job: a client for each, and calls to several of them side by
// side. Server variables (server_variable.h) share one. Thread-safe.
class ServerSession {
 public:
  // `client` is the same for all servers, but for what they are called; `consistency` must be what
  // these were started with, which they compare: then calls are kFailedPrecondition with both
  // values. None: whatever these have, what they do is taken for asynchronous. kInvalidArgument
  // without servers.
  ServerSession(const std::vector<Address>& servers, ParameterClientOptions client,
                const std::optional<ConsistencyOptions>& consistency,
                const Environment& environment = process_environment);
  // Says to all servers that the task has done its work (ParameterClient::say_done), unless the
  // process has been asked to stop, or an error ends this: then the job is to go on.
  ~ServerSession();
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  int num_servers() const { return static_cast<int>(clients_.size()); }
  ParameterClient& client(int server) { return *clients_[static_cast<size_t>(server)]; }
  const ConsistencyOptions& consistency() const { return consistency_; }

  // Calls work(server) for these servers, at the same time where threads are free, and waits for
  // all. `work` may do the same. Throws what the first of those that failed has thrown.
  void on_servers(const std::vector<int>& servers, const std::function<void(int)>& work);
  void on_all_servers(const std::function<void(int)>& work);

  // What goes to one server: gradients, then values wanted. A pull that waits (ShardPull::at_least)
  // does so for the server of the epoch in `awaited_epoch`, by pull: another one, which has been
  // started again, may count anew, and gives what it has.
  struct Call {
    std::vector<ShardPush> pushes;
    std::vector<ShardPull> pulls;
    std::vector<uint64_t> awaited_epochs;
  };
  // One call for each server that has something to do; `calls` and the result are by server.
  std::vector<UpdateResult> update(const std::vector<Call>& calls);

  // ParameterClient::mark_pushes, for all servers.
  void mark_pushes(const std::optional<ParameterClient::Source>& source);
  // Whether they are marked now.
  bool marks_pushes() const { return marks_pushes_; }

  // What became of all pushes since the last time.
  PushCounts take_counts();
  // PushCounts::report() of them, with "late_updates" where updates are synchronous.
  StrategyReport take_report();

  // All calls, now and later, end with kCancelled, until resume().
  void cancel();
  void resume();

 private:
  UpdateResult update_one(int server, const Call& call);
  void count(int server, const Call& call, const UpdateResult& result);

  const std::vector<Address> servers_;
  const ConsistencyOptions consistency_;
  const std::string task_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::unique_ptr<ParameterClient>> clients_;
  std::atomic<bool> marks_pushes_ = false;
  std::mutex mutex_;  // guards what follows
  PushCounts counts_;
  parameter_server::TaskPool pool_;  // last: its threads use what is above
};

}  // namespace cohort
