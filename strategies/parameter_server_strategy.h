#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/own_process.h"
#include "core/distribute/strategy.h"
#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/parameter_server/compression.h"
#include "strategies/parameter_server/consistency.h"
#include "strategies/parameter_server/partitioner.h"
#include "strategies/parameter_server/placement.h"
#include "strategies/parameter_server/server_log.h"
#include "strategies/parameter_server/server_variable.h"

namespace cohort {

class LocalReplicas;

// Training in which weights live on parameter servers (tf.distribute's ParameterServerStrategy),
// and every worker runs the program on its own: it pulls what a step reads, and pushes gradients to
// the servers, which run the optimizer.
//
//   const ParameterServerStrategy::Options options{.max_staleness = 4};
//   if (run_parameter_server(options)) return;   // a task ps:0, ps:1, ...: served until the end
//   ParameterServerStrategy strategy(options);
//   const auto scope = strategy.scope();
//
// Chief and workers do the same; the chief is also the one that writes files. Tasks may start in
// any order; one that is killed and started again goes on with the values that the servers have. On
// its own, a program has a server in its own process.
//
// Over the devices of one worker gradients are reduced as under MirroredStrategy, and a batch is
// split; between workers there is no other synchronisation than `max_staleness` asks for. A batch
// is one worker's: fit() and distribute_dataset() give each worker its share of the elements in
// batches of the size that the dataset says, evaluate() and predict() all of them. `iterations` of
// an optimizer counts the updates of all workers.
//
// Variables that are synchronised on read, or not at all, are each worker's own.
class ParameterServerStrategy final : public Strategy {
 public:
  struct Options {
    // Who takes part; null reads the environment (resolve_cluster).
    std::shared_ptr<const ClusterResolver> resolver = {};
    // Device names of this process, as MirroredStrategy takes them; but none means every logical
    // CPU. With a ClusterCoordinator, as many as each worker has (WorkerServerOptions::devices).
    std::vector<std::string> devices = {};
    CommunicationOptions communication = {};  // between these

    // How far workers may run apart, as ConsistencyOptions says: none is asynchronous, 0
    // synchronous, where the mean of the workers' gradients is applied, by the rows of each in
    // fit().
    std::optional<int64_t> max_staleness = {};
    int backup_workers = 0;
    bool scale_learning_rate = false;
    double delay_compensation = 0;
    CompressionOptions compression = {};  // of dense gradients

    // Into how many shards a variable is cut. Empty: one for each server, of 256 KiB at least,
    // and of tables whose rows are made on first use one for each server.
    Partitioner partitioner = {};
    // What a variable asks of its servers, all shards together: by that these are chosen, the same
    // way on every worker. Empty: its size, as memory and as traffic, which is right where a step
    // moves all of it; for a table of which it moves some rows, the traffic is theirs. A shard of a
    // table whose rows are made on first use counts 1 MiB.
    std::function<ShardLoad(const std::string& name, const TensorSpec& spec)> load = {};
    // Which trainable variables make their rows on first use, and how: no memory is taken by rows
    // that nobody has trained, so that a table may have 2^40. The variable's own initializer is not
    // asked then. Each table needs a seed of its own, or row i of one begins as row i of another.
    std::function<std::optional<RowInitializer>(const std::string& name, const TensorSpec& spec)>
        rows_on_first_use = {};

    // Which variables get their initial value shard by shard, and how: so no process has all of it,
    // and the variable's own initializer is not asked. What is returned is called on several
    // threads at a time.
    std::function<std::function<Tensor(const RowRange& rows)>(const std::string& name,
                                                              const TensorSpec& spec)>
        initial_rows = {};

    // How long a call of a worker may take, with waiting for a server that starts again, and for
    // others where it has to.
    std::chrono::milliseconds timeout = std::chrono::seconds(60);
    // Of servers: where ps:N keeps snapshots, in a folder of its own, and looks for one when it
    // starts, of as many servers as there are; empty: nowhere. The server of a program on its own
    // is ps:0.
    std::string snapshot_folder = {};
    std::chrono::milliseconds snapshot_interval = std::chrono::seconds(30);
    // And whether they write down there what they acknowledge in between.
    ServerLog server_log = ServerLog::kNone;
    // A server ends when nobody has been connected for so long; 0: never.
    std::chrono::milliseconds orphaned_after = std::chrono::seconds(60);

    std::string job_id = {};       // as ParameterServerOptions::job_id
    TlsFiles tls = {};             // where empty: COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA
    bool allow_plaintext = false;  // beyond this host
  };

  // kInvalidArgument for a cluster without ps or worker, for a task of another job, and for options
  // that do not go together.
  explicit ParameterServerStrategy(const Options& options);
  ParameterServerStrategy() : ParameterServerStrategy(Options{}) {}
  ~ParameterServerStrategy() override;

  std::string name() const override { return "ParameterServerStrategy"; }
  int num_replicas_in_sync() const override;
  const std::vector<Device>& devices() const override;
  // This one alone: others are not waited for. Its rank is that among all.
  Workers& workers() const override;
  InputContext input_context() const override;
  std::shared_ptr<Variable> create_variable(const VariableOptions& options) override;
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                         const Value& when = {}) override;
  RemoteUpdates* remote_updates() override;
  void end_training() override;
  // kFailedPrecondition while there is a ClusterCoordinator of this strategy.
  void require_shares() const override;
  // ServerSession::take_report().
  StrategyReport take_report() override;
  // Pulls and pushes count as waiting, and what synchronous updates and max_staleness wait for.
  std::optional<StepWaits> waits() const override;

  // How many chiefs and workers there are.
  int num_workers() const;
  // All tasks of the job; empty for a program on its own.
  const ClusterSpec& cluster_spec() const;
  const Options& options() const;
  // Told by a ClusterCoordinator: whether it is there, so that workers execute what it schedules
  // and do not run the program.
  void set_coordinated(bool coordinated);
  // This process's way to the servers.
  const std::shared_ptr<ServerSession>& session() const;
  // All servers write a snapshot now, into folders ps-N of `folder`, which is theirs; then those
  // that more servers have written there before are removed. For the chief. kOutOfRange where a
  // variable has diverged (docs/parameter-server.md): the server's folder stays as it is.
  void snapshot(const std::string& folder);
  // Tells all servers to end. For the chief, when all workers have ended. kPermissionDenied for
  // other tasks than chief:0 and worker:0.
  void shut_down_servers();

 protected:
  PerReplica<std::vector<Tensor>> run_replicas(const Function& function,
                                               const PerReplica<std::vector<Tensor>>& inputs,
                                               const ReplicaGroup& group,
                                               const RunOptions& options) override;
  bool is_home_of(const Variable& variable) const override;
  CrossDeviceOps& cross_device_ops() override;

 private:
  class State;
  const OwnedHere<State> state_;
};

// Where this task is a parameter server: serves until the job asks it to end, or has left it alone,
// and returns true. Elsewhere returns false at once. `options` as for the strategy of the workers.
// When it is asked to stop, those who are connected are served for five more seconds at most, which
// is for those who are to stop as well. kCancelled, after the last snapshot, where SIGTERM or what
// CatchTermination takes for it has ended it before all who have come, and somebody, have said that
// their work is done
// (~ServerSession): by run_main, exit code 42, so that the launcher starts it again, or the job.
// Where the last snapshot cannot be written, the error of that, as core/base/file.h says;
// kOutOfRange where a variable has diverged (docs/parameter-server.md).
bool run_parameter_server(const ParameterServerStrategy::Options& options = {});

}  // namespace cohort
