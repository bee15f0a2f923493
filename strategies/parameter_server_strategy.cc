#include "strategies/parameter_server_strategy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/comma_separated.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/ops/math_ops.h"
#include "core/optim/update_rule.h"
#include "core/runtime/aggregation.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/cluster/resolve_cluster.h"
#include "strategies/local_replicas.h"
#include "strategies/parameter_server/lent_memory.h"
#include "strategies/parameter_server/own_variable.h"
#include "strategies/parameter_server/push_op.h"
#include "strategies/parameter_server/server.h"
#include "strategies/parameter_server/server_function.h"
#include "strategies/parameter_server/snapshot.h"
#include "strategies/parameter_server/variable_placement.h"
#include "strategies/variables/mirrored_variable.h"

namespace cohort {
namespace {

using Options = ParameterServerStrategy::Options;
using Clock = std::chrono::steady_clock;

// For telling servers that this process ends, which they notice without, only later.
constexpr std::chrono::milliseconds kFarewell(2000);
// Whoever is connected to a server that is asked to stop was perhaps asked, too: it is served for
// so long at most while it ends its step and saves.
constexpr std::chrono::milliseconds kTimeForCallers(5000);
constexpr size_t kMaxUnfinished = 8;  // names of tasks in an error

// Who this process is among those of the job.
struct Task {
  std::string job = "worker";
  int index = 0;
  int rank = 0;  // among chief and workers
  int num_workers = 1;
  ClusterSpec cluster;
  std::vector<Address> servers;  // none: a program on its own

  std::string name() const { return str(job, ":", index); }
};

std::vector<Address> addresses(const ClusterSpec& spec, const std::string& job) {
  std::vector<Address> all;
  for (const int id : spec.task_ids(job)) {
    if (id != static_cast<int>(all.size()))
      invalid(
          "ParameterServerStrategy needs all parameter servers, numbered from 0; the cluster has ",
          spec.describe_task_ids(job));
    all.push_back(spec.address(job, id));
  }
  return all;
}

std::shared_ptr<const ClusterResolver> resolver_of(const Options& options) {
  return options.resolver != nullptr ? options.resolver : resolve_own_cluster();
}

Task find_task(const ClusterResolver& resolver) {
  note_use_of_cluster();
  const ClusterSpec& spec = resolver.cluster_spec();
  Task task;
  if (spec.empty() && resolver.world().size == 1) return task;
  task.cluster = spec;
  task.servers = addresses(spec, "ps");
  task.num_workers = spec.num_tasks("chief") + spec.num_tasks("worker");
  if (task.servers.empty())
    invalid("ParameterServerStrategy needs a parameter server, and the cluster of ",
            resolver.launcher(), " has no job ps: cohort-run --ps=1, or \"ps\" in TF_CONFIG");
  if (spec.num_tasks("worker") == 0)
    invalid("ParameterServerStrategy needs a worker, and the cluster of ", resolver.launcher(),
            " has none");
  task.job = resolver.task_type();
  task.index = resolver.task_id().value_or(0);
  if (task.job == "chief" || task.job == "worker") task.rank = resolver.world().rank;
  return task;
}

// What a task is to do that cannot have the strategy of chief and workers.
std::string advice_for(const std::string& job) {
  if (job == "ps") return ": call run_parameter_server()";
  if (job == "evaluator")
    return ": its model needs no strategy, or, for tables of rows on first use, one of its own, "
           "with Options::resolver = std::make_shared<LiteralResolver>(), and neither "
           "snapshot_folder nor server_log";
  return "";
}

ConsistencyOptions consistency_of(const Options& options, int num_workers) {
  ConsistencyOptions consistency{.max_staleness = options.max_staleness,
                                 .num_workers = num_workers,
                                 .backup_workers = options.backup_workers,
                                 .scale_learning_rate = options.scale_learning_rate,
                                 .delay_compensation = options.delay_compensation};
  consistency.check();
  return consistency;
}

std::string folder_of(const std::string& snapshots, int server) {
  return str(snapshots, "/ps-", server);
}

ParameterServerOptions server_options(const Options& options, const Task& task) {
  ParameterServerOptions server{.job_id = options.job_id,
                                .consistency = consistency_of(options, task.num_workers),
                                .log = options.server_log,
                                .orphaned_after = options.orphaned_after,
                                .tls = options.tls,
                                .allow_plaintext = options.allow_plaintext};
  server.num_servers = static_cast<int>(std::max<size_t>(task.servers.size(), 1));
  if (options.snapshot_folder.empty()) return server;
  server.snapshot_folder = folder_of(options.snapshot_folder, task.index);
  server.snapshot_interval = options.snapshot_interval;
  return server;
}

// A server in the process of a program on its own.
struct OwnServer {
  launcher::ReservedPort port;
  ParameterServer server;

  OwnServer(const Options& options, const Task& task)
      : server(Address::parse(port.address()), server_options(options, task)) {}
};

// This worker alone, with its rank among all.
class IndependentWorker final : public Workers {
 public:
  explicit IndependentWorker(const Task& task) : task_(task) {}
  int rank() const override { return task_.rank; }
  std::string name(int rank) const override {
    return rank == task_.rank ? task_.name() : Workers::name(rank);
  }

 private:
  const Task task_;
};

// A batch of another worker may have other shapes: what is traced for one does not depend on them.
ReplicaGroup without_signatures(ReplicaGroup group) {
  group.signatures.clear();
  group.same_input.clear();
  return group;
}

}  // namespace

class ParameterServerStrategy::State final : public RemoteUpdates {
 public:
  State(const Options& options, const Task& given)
      : options(options),
        task(given),
        worker(task),
        replicas(resolve_devices("ParameterServerStrategy", options.devices), nullptr,
                 options.communication) {
    if (task.servers.empty()) {
      own_server = std::make_unique<OwnServer>(options, task);
      task.servers = {Address::parse(own_server->port.address())};
    }
    session = std::make_shared<ServerSession>(
        task.servers,
        ParameterClientOptions{.task = task.name(),
                               .job_id = options.job_id,
                               .timeout = options.timeout,
                               .compression = options.compression,
                               .tls = options.tls,
                               .allow_plaintext = options.allow_plaintext},
        consistency_of(options, task.num_workers));
    placement.emplace(options.partitioner, options.load, session->num_servers());
    // Gradients: a server of this host reads them there.
    replicas.place_outputs(parameter_server::memory_to_lend);
  }
  ~State() override {
    if (began) leave(kFarewell);
  }

  // --- RemoteUpdates

  std::vector<std::shared_ptr<Variable>> attach(
      const std::shared_ptr<Variable>& variable, const optim::UpdateRule& rule, double weight_decay,
      const std::vector<std::string>& slot_names) override {
    return on_servers(variable)->move_by(rule, weight_decay, slot_names);
  }

  bool is_attached(const std::shared_ptr<Variable>& variable) const override {
    const auto target = std::dynamic_pointer_cast<ServerVariable>(variable);
    return target != nullptr && target->num_rules() > 0;
  }

  void keep_apart(const std::shared_ptr<Variable>& variable, KeptApart kept) override {
    const auto own = std::dynamic_pointer_cast<OwnVariable>(variable);
    COHORT_CHECK(own != nullptr);
    own->keep_apart(kept);
  }

  void skip_step() override { complete_step(); }

  bool waits_for_others() const override {
    const ConsistencyOptions& consistency = session->consistency();
    return consistency.synchronous() && consistency.gradients_per_update() > 1;
  }

  void push(const std::shared_ptr<Variable>& variable, const Gradient& gradient,
            const PushOptions& with) override {
    const auto target = on_servers(variable);
    if (target->is_lazy() && !gradient.sparse())
      invalid("the rows of variable \"", variable->name(),
              "\" are made on first use, and its gradient is not that of some rows: it can only be "
              "looked up along axis 0");
    Value values = gradient.values;
    if (waits_for_others() && is_floating(values.dtype()))
      values = values * (1.0 / session->consistency().gradients_per_update());
    parameter_server::add_push(variable, {.learning_rate = with.learning_rate,
                                          .step = with.step,
                                          .weight = with.weight,
                                          .values = values,
                                          .indices = gradient.indices,
                                          .when = with.when});
  }

  // --- Variables

  // On the server of `neighbour`, where there is one.
  std::shared_ptr<Variable> create_variable(const VariableOptions& variable,
                                            const std::shared_ptr<Variable>& neighbour) {
    if (variable.constraint)
      fail(Code::kUnimplemented, "variable \"", variable.name,
           "\" has a constraint, which ParameterServerStrategy cannot keep it to: its updates are "
           "made on servers, shard by shard");
    ServerVariable::Options made{
        .variable = variable, .key = new_key(variable.name), .num_replicas = replicas.count()};
    if (!is_written_together(variable.synchronization)) {
      made.servers = placement->by_name(variable);
      return std::make_shared<OwnVariable>(make_mirrored_variable(variable, replicas.devices()),
                                           made, session);
    }
    if (options.rows_on_first_use && variable.trainable && variable.spec.shape.rank() > 0)
      made.lazy = options.rows_on_first_use(variable.name, variable.spec);
    if (options.initial_rows)
      made.initial_rows = options.initial_rows(variable.name, variable.spec);
    std::optional<int> beside;
    if (neighbour != nullptr) beside = on_servers(neighbour)->first_server();
    made.servers = placement->place(variable, made.lazy.has_value(), beside);
    return std::make_shared<ServerVariable>(made, session);
  }

  // --- Steps

  PerReplica<std::vector<Tensor>> run(const Strategy& strategy, const Function& function,
                                      const PerReplica<std::vector<Tensor>>& inputs,
                                      const ReplicaGroup& group, const RunOptions& run_options) {
    const auto ready = server_function(function, inputs, group);
    const ReplicaGroup own = without_signatures(group);
    const auto begin = Clock::now();
    Clock::duration on_replicas{0};
    auto outputs = ready->run(inputs, [&](const Function& f, const auto& all) {
      const auto replicas_begin = Clock::now();
      auto results = replicas.run(strategy, f, all, own, run_options);
      on_replicas += Clock::now() - replicas_begin;
      return results;
    });
    if (session->consistency().synchronous())
      began = true;  // to push is to take part
    else if (ready->pushed_version() > 0)
      complete_step();
    waited += std::chrono::nanoseconds(Clock::now() - begin - on_replicas).count();
    return outputs;
  }

  std::optional<StepWaits> waits() const {
    std::optional<StepWaits> waits = replicas.waits();
    if (waits) waits->all += std::chrono::nanoseconds(waited.load());
    return waits;
  }

  // Others may wait even for a worker that had nothing to do.
  void leave(std::chrono::milliseconds timeout) noexcept {
    if (!options.max_staleness) return;
    began = false;
    try {
      const auto leave_one = [&](int server) { session->client(server).leave(timeout); };
      // Each has rounds of its own; one has the clocks of bounded staleness.
      if (session->consistency().synchronous())
        session->on_all_servers(leave_one);
      else
        leave_one(0);
    } catch (const std::exception& error) {
      print_notice(str("warning: ", task.name(),
                       " cannot say that it has ended training: ", error.what(), "\n"));
    }
  }

  const Options options;
  Task task;
  IndependentWorker worker;
  LocalReplicas replicas;
  std::unique_ptr<OwnServer> own_server;
  std::shared_ptr<ServerSession> session;
  std::atomic<bool> coordinated = false;

 private:
  std::shared_ptr<ServerVariable> on_servers(const std::shared_ptr<Variable>& variable) const {
    auto found = std::dynamic_pointer_cast<ServerVariable>(variable);
    if (found == nullptr)
      invalid("variable \"", variable->name(),
              "\" is not on the parameter servers; create it in the scope of "
              "ParameterServerStrategy, synchronised on write");
    return found;
  }

  // Every worker makes the same variables in the same order, and gets the same ones.
  std::string new_key(const std::string& name) {
    const std::lock_guard lock(making);
    std::string key = name;
    while (ServerVariableInfo::is_optimizer_key(key) || !keys.try_emplace(key, 1).second)
      key = str(name, "#", ++keys[name]);
    return key;
  }

  bool bounded() const { return options.max_staleness && *options.max_staleness > 0; }

  // One that begins, perhaps in the place of one that was killed, counts from 1: the server knows
  // where the others are.
  void complete_step() {
    if (!bounded()) return;
    clock = began ? clock + 1 : 1;
    began = true;
    session->client(0).complete_step(clock);
  }

  // The graphs of all local replicas, cut where they meet the servers. One set for each combination
  // of signatures.
  std::shared_ptr<ServerFunction> server_function(const Function& function,
                                                  const PerReplica<std::vector<Tensor>>& inputs,
                                                  const ReplicaGroup& group) {
    std::vector<const GraphFunction*> graphs;
    for (const auto& tensors : inputs) graphs.push_back(&trace_of(function, tensors, group));
    const auto known = functions.find(graphs);
    if (known != functions.end() && !known->second.cut->is_outdated()) return known->second.cut;
    Ready ready{function, std::make_shared<ServerFunction>(graphs, session)};
    return functions.insert_or_assign(graphs, std::move(ready)).first->second.cut;
  }

  struct Ready {
    Function function;  // keeps the graphs alive
    std::shared_ptr<ServerFunction> cut;
  };
  std::map<std::vector<const GraphFunction*>, Ready> functions;
  std::optional<parameter_server::VariablePlacement> placement;
  std::mutex making;                // guards the next
  std::map<std::string, int> keys;  // in use, with how many have been made of each
  bool began = false;               // others may wait for this worker
  int64_t clock = 0;                // of bounded staleness: how many steps it has done
  std::atomic<int64_t> waited = 0;  // for servers, in all steps, in nanoseconds
};

ParameterServerStrategy::ParameterServerStrategy(const Options& options)
    : state_(new State(options, [&] {
        Task task = find_task(*resolver_of(options));
        if (task.job != "chief" && task.job != "worker")
          invalid("ParameterServerStrategy is for chief and workers, and this is ", task.name(),
                  advice_for(task.job));
        return task;
      }())) {}

ParameterServerStrategy::~ParameterServerStrategy() = default;

int ParameterServerStrategy::num_replicas_in_sync() const { return state_->replicas.count(); }
const std::vector<Device>& ParameterServerStrategy::devices() const {
  return state_->replicas.devices();
}
Workers& ParameterServerStrategy::workers() const { return state_->worker; }
int ParameterServerStrategy::num_workers() const { return state_->task.num_workers; }
const ClusterSpec& ParameterServerStrategy::cluster_spec() const { return state_->task.cluster; }
const Options& ParameterServerStrategy::options() const { return state_->options; }
const std::shared_ptr<ServerSession>& ParameterServerStrategy::session() const {
  return state_->session;
}

InputContext ParameterServerStrategy::input_context() const {
  return {state_->task.num_workers, state_->task.rank, num_replicas_in_sync(), true};
}

std::shared_ptr<Variable> ParameterServerStrategy::create_variable(const VariableOptions& options) {
  return state_->create_variable(options, colocated_with());
}

std::vector<Gradient> ParameterServerStrategy::reduce_gradients(
    const std::vector<Gradient>& gradients, const Value& when) {
  require_replica("reduce_gradients");
  return state_->replicas.reduce_gradients(gradients, when);
}

RemoteUpdates* ParameterServerStrategy::remote_updates() { return state_.get(); }
void ParameterServerStrategy::set_coordinated(bool coordinated) {
  state_->coordinated = coordinated;
}
void ParameterServerStrategy::require_shares() const {
  if (state_->coordinated)
    fail(
        Code::kFailedPrecondition,
        "a ParameterServerStrategy that has a ClusterCoordinator cannot divide a dataset, as fit() "
        "does: its workers execute what is scheduled and would not train on their shares. Schedule "
        "steps over create_per_worker_dataset(), or have every task run the program, with neither "
        "run_worker_server() nor a coordinator");
}
void ParameterServerStrategy::end_training() { state_->leave(state_->options.timeout); }
StrategyReport ParameterServerStrategy::take_report() { return state_->session->take_report(); }
std::optional<StepWaits> ParameterServerStrategy::waits() const { return state_->waits(); }
bool ParameterServerStrategy::is_home_of(const Variable& variable) const {
  const auto* on_servers = dynamic_cast<const ServerVariable*>(&variable);
  return on_servers != nullptr && on_servers->session() == session();
}
CrossDeviceOps& ParameterServerStrategy::cross_device_ops() {
  return state_->replicas.cross_device_ops();
}

PerReplica<std::vector<Tensor>> ParameterServerStrategy::run_replicas(
    const Function& function, const PerReplica<std::vector<Tensor>>& inputs,
    const ReplicaGroup& group, const RunOptions& options) {
  return state_->run(*this, function, inputs, group, options);
}

void ParameterServerStrategy::snapshot(const std::string& folder) {
  const int servers = session()->num_servers();
  for (int server = 0; server < servers; ++server)
    session()->client(server).snapshot(folder_of(folder, server));
  // Of servers that there were once: what these had is in the new ones.
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    int server = -1;
    if (std::sscanf(name.c_str(), "ps-%d", &server) == 1 && name == str("ps-", server) &&
        server >= servers)
      parameter_server::remove_snapshot(entry.path().string());
  }
}

void ParameterServerStrategy::shut_down_servers() {
  for (int server = 0; server < session()->num_servers(); ++server)
    session()->client(server).shut_down();
}

bool run_parameter_server(const Options& options) {
  const auto resolver = resolver_of(options);
  if (resolver->task_type() != "ps") return false;
  const Task task = find_task(*resolver);
  const CatchTermination catching;  // until the last snapshot is written
  ParameterServer server(task.servers.at(static_cast<size_t>(task.index)),
                         server_options(options, task));
  server.wait();
  if (interrupted()) server.wait_for_callers(kTimeForCallers);
  try {
    server.end();
  } catch (const Error& error) {
    throw error.with_context(str(task.name(), ": the last snapshot is not written"));
  }
  // Also of those who have said so in its last moments.
  if (stop_request() == StopRequest::kTermination && !server.is_done()) {
    const std::string tasks = comma_separated(server.unfinished(), {}, kMaxUnfinished);
    fail(Code::kCancelled, task.name(),
         " was asked to stop, and not all tasks have said that they are done: ",
         tasks.empty() ? "nobody has come" : "not " + tasks);
  }
  return true;
}

}  // namespace cohort
