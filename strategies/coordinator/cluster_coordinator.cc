#include "strategies/coordinator/cluster_coordinator.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/own_process.h"
#include "core/base/program.h"
#include "core/base/random.h"
#include "core/base/start_threads.h"
#include "core/base/time_limits.h"
#include "core/distribute/replica_scope.h"
#include "core/runtime/trace.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/coordinator/closure_queue.h"
#include "strategies/coordinator/function_table.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/per_worker_variable.h"
#include "strategies/coordinator/remote_worker.h"
#include "strategies/coordinator/replica_inputs.h"
#include "strategies/coordinator/resource_table.h"
#include "strategies/coordinator/scheduler.h"
#include "strategies/coordinator/waiting.h"
#include "strategies/coordinator/worker_copies.h"
#include "strategies/coordinator/worker_server.h"
#include "strategies/parameter_server_strategy.h"

namespace cohort {
namespace {

using namespace coordinator;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kWatchInterval(50);
constexpr milliseconds kFirstReport(5000);
// For workers that are to be asked to end, and may be starting still.
constexpr milliseconds kArrival(10000);
// For those that have been asked.
constexpr milliseconds kFarewell(3000);
// For answers that do not wait for functions.
constexpr milliseconds kAnswerTime(10000);

std::string task_of(const ParameterServerStrategy& strategy) {
  const Workers& workers = strategy.workers();
  return workers.name(workers.rank());
}

ParameterServerStrategy& require_coordinated(Strategy& strategy) {
  auto* const found = dynamic_cast<ParameterServerStrategy*>(&strategy);
  if (found == nullptr)
    invalid("a ClusterCoordinator is for a ParameterServerStrategy, got ", strategy.name());
  const ClusterSpec& cluster = found->cluster_spec();
  if (cluster.empty())
    invalid(
        "a ClusterCoordinator needs a cluster with workers, and this is a program on its own: "
        "cohort-run --workers=2 --ps=1, or TF_CONFIG");
  const std::string leader = scheduler_of(cluster);
  if (const std::string task = task_of(*found); task != leader)
    invalid("a ClusterCoordinator of this cluster is for the task ", leader, ", and this is ", task,
            ", which executes: run_worker_server()");
  if (const auto bound = found->session()->consistency().max_staleness)
    invalid("a ClusterCoordinator needs servers that update asynchronously, and max_staleness is ",
            *bound, ": functions have no steps in which one worker could be ahead of another");
  return *found;
}

CoordinatorOptions as_of(const ParameterServerStrategy& strategy, CoordinatorOptions options) {
  const ParameterServerStrategy::Options& given = strategy.options();
  if (options.job_id.empty()) options.job_id = given.job_id;
  if (options.tls.certificate.empty()) options.tls = given.tls;
  options.allow_plaintext |= given.allow_plaintext;
  return options;
}

// What arguments that do not come from a worker are traced for; nothing where some do.
std::optional<CallSignature> signature_of(const std::vector<Argument>& arguments) {
  CallSignature signature;
  for (const Argument& argument : arguments) {
    if (argument.resource != 0) return std::nullopt;
    signature.parameters.push_back(argument.parameter);
    for (const Tensor& tensor : argument.tensors) signature.tensors.push_back(tensor.spec());
  }
  return signature;
}

// kFailedPrecondition inside a body, which is not called when its function runs.
void require_outside_bodies(const char* call, const std::string& function) {
  if (is_tracing_function())
    fail(Code::kFailedPrecondition, call, " of \"", function,
         "\" acts once, while the function that calls it is traced, and not when it runs: call it "
         "outside functions");
}

void require_memory(const std::vector<Argument>& arguments) {
  for (const Argument& argument : arguments)
    for (const Tensor& tensor : argument.tensors)
      if (!tensor.defined()) invalid("a function is scheduled with a tensor that has no memory");
}

std::vector<std::string> addresses_of(const ClusterSpec& cluster, const std::string& job) {
  std::vector<std::string> addresses;
  for (const int id : cluster.task_ids(job)) addresses.push_back(cluster.address(job, id).text());
  return addresses;
}

// Where the worker is lost, that is its answer. kCancelled after an interrupt.
template <typename T>
T answer(std::future<T> future, const RemoteWorker& worker, Deadline end) {
  while (future.wait_until(std::min(end, Clock::now() + kInterruptInterval)) !=
         std::future_status::ready) {
    check_interrupted();
    require_no_trace();
    if (Clock::now() >= end)
      throw Error(Code::kDeadlineExceeded, "it has not answered in time; " + worker.describe(),
                  worker.task());
  }
  return future.get();
}

}  // namespace

class ClusterCoordinator::Impl {
 public:
  Impl(ParameterServerStrategy* strategy, const ClusterSpec& cluster,
       const CoordinatorOptions& options, const Environment& environment)
      : strategy_(strategy),
        options_(completed(options, environment)),
        security_(options_.tls, options_.allow_plaintext, environment),
        resources_(std::make_shared<ResourceTable>(cluster.num_tasks("worker"))),
        copies_(std::make_shared<WorkerCopies>(resources_)),
        functions_(copies_),
        queue_(ClosureQueue::Options{.capacity = options_.max_queued,
                                     .max_attempts = options_.max_attempts,
                                     .put_timeout = options_.schedule_timeout,
                                     .stop_timeout = options_.stop_timeout,
                                     .cancel =
                                         [this] {
                                           for (const auto& worker : workers_) worker->cancel();
                                         },
                                     .who = [this] { return describe_all(); }}),
        context_{.security = security_,
                 .queue = queue_,
                 .resources = *resources_,
                 .job_id = options_.job_id,
                 .task = strategy ? task_of(*strategy) : kChief,
                 .incarnation = coordination::random_incarnation(),
                 .num_workers = cluster.num_tasks("worker"),
                 .replicas = strategy ? strategy->num_replicas_in_sync() : 1,
                 .servers = addresses_of(cluster, "ps"),
                 .compression = strategy ? strategy->options().compression : CompressionOptions{},
                 .seed = global_seed(),
                 .start_delay = clamped(options_.start_delay),
                 .max_start_delay = clamped(options_.max_start_delay),
                 .max_message_bytes = options_.max_bytes,
                 .notice = options_.notice} {
    if (context_.num_workers == 0)
      invalid("a coordinator needs workers; the cluster has none: ", cluster.json());
    prepare_decoding();
    serve_as_worker(cluster, environment);
    for (const int id : cluster.task_ids("worker"))
      workers_.push_back(std::make_unique<RemoteWorker>(context_, static_cast<int>(workers_.size()),
                                                        str("worker:", id),
                                                        cluster.address("worker", id)));
    watch_ = start_thread([this] { watch(); });
    if (strategy_ != nullptr) strategy_->set_coordinated(true);
  }

  ~Impl() {
    if (strategy_ != nullptr) strategy_->set_coordinated(false);
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    watch_.join();
    queue_.stop();
    workers_.clear();
  }

  RemoteValue schedule(const std::shared_ptr<FunctionFamily>& family, ClosureArguments arguments) {
    require_outside_bodies("schedule", family->name());
    require_memory(arguments.all);
    auto closure = std::make_unique<Closure>();
    closure->result = std::make_shared<RemoteResult>(context_.replicas);
    closure->number = ++last_closure_;
    if (const auto signature = signature_of(arguments.all))
      closure->definition = family->definition(*signature);
    closure->function = family;
    closure->arguments = std::move(arguments.all);
    closure->bytes = bytes_of(closure->arguments);
    closure->resources = std::move(arguments.resources);
    RemoteValue value(closure->result);
    queue_.put(std::move(closure));
    return value;
  }

  PerWorkerValues create_resource(const Function& function, ClosureArguments arguments) {
    require_outside_bodies("create_per_worker_resource", function.name());
    require_memory(arguments.all);
    const auto signature = signature_of(arguments.all);
    if (!signature) invalid("a per-worker value is made of tensors and numbers");
    const auto family = family_of(function);
    const auto definition = [this, function, family, signature = *signature,
                             first = family->definition(*signature)] {
      return family->is_outdated() ? family_of(function)->definition(signature) : first;
    };
    return PerWorkerValues(resources_->add(
        {.create = {.resource = 0,
                    .what = Run{.arguments = std::move(arguments.all), .seed = context_.seed},
                    .function_name = family->name()},
         .definition = definition,
         .resources = std::move(arguments.resources)}));
  }

  std::vector<Tensor> fetch_per_worker(uint64_t resource, std::optional<milliseconds> timeout) {
    const Deadline end = deadline_after(timeout);
    std::vector<std::future<Result>> futures;
    for (const auto& worker : workers_) futures.push_back(worker->fetch(resource));
    std::vector<Tensor> values;
    for (size_t i = 0; i < futures.size(); ++i) {
      // It comes when the worker has executed what it was given before.
      Result result = answer(std::move(futures[i]), *workers_[i], end);
      if (result.error) throw result.error->with_context(workers_[i]->task());
      const size_t count = result.values.size();
      if (count != 1 && count != static_cast<size_t>(context_.replicas))
        fail(Code::kDataLoss, workers_[i]->task(), " answers with ", count, " values");
      std::ranges::move(result.values, std::back_inserter(values));
    }
    return values;
  }

  // The number of a variable of which each worker has a copy.
  uint64_t resource_of(const std::shared_ptr<Variable>& variable) {
    const auto own = std::dynamic_pointer_cast<OwnVariable>(variable);
    return own != nullptr && own->is_apart() ? copies_->of(own).handle->id()
                                             : per_worker_resource(*variable);
  }

  std::vector<WorkerStatus> statuses() {
    const Deadline end = deadline_after(kAnswerTime);
    std::vector<std::future<Status>> futures;
    for (const auto& worker : workers_) futures.push_back(worker->ask_status());
    std::vector<WorkerStatus> all;
    for (size_t i = 0; i < futures.size(); ++i) {
      WorkerStatus& status = all.emplace_back();
      status.task = workers_[i]->task();
      try {
        const Status told = answer(std::move(futures[i]), *workers_[i], end);
        status.present = true;
        status.executed = told.executed;
        status.waiting = told.waiting;
        status.functions = told.functions;
        status.resources = told.resources;
      } catch (const Error& error) {
        if (error.code() == Code::kCancelled) throw;
        // Not present, then.
      }
    }
    return all;
  }

  CoordinatorStatistics statistics() const {
    const ClosureQueue::Counts counts = queue_.counts();
    CoordinatorStatistics s{.queued = counts.queued,
                            .in_flight = counts.in_flight,
                            .scheduling = counts.putting,
                            .executed = counts.executed,
                            .failed = counts.failed,
                            .cancelled = counts.cancelled,
                            .retried = counts.retried};
    s.workers = num_present();
    for (const auto& worker : workers_) {
      s.worker_failures += worker->failures();
      s.busy_seconds += worker->busy_seconds();
    }
    s.tracing_seconds = 1e-6 * static_cast<double>(functions_.trace_us());
    return s;
  }

  StrategyReport take_report() {
    PushCounts pushes;
    for (const auto& worker : workers_) pushes.add(worker->take_pushes());
    return pushes.report();
  }

  void wait_for_workers(int count, milliseconds timeout) {
    if (count < 0 || count > num_workers())
      invalid("wait_for_workers: count is ", count, "; allowed: 0 to ", num_workers(),
              ", as many as the cluster has");
    const Deadline end = deadline_after(timeout);
    const auto are_there = [&] { return num_present() >= count; };
    const auto is_over = [&] { return are_there() || queue_.has_error(); };
    std::unique_lock lock(mutex_);
    while (wait_interruptibly(lock, changed_, end, is_over)) {
      if (are_there()) return;
      lock.unlock();
      queue_.done();  // throws the error, unless another thread has
      lock.lock();
    }
    fail(Code::kDeadlineExceeded, "after ", timeout.count(), " ms ", num_present(), " of ", count,
         " workers are there; ", describe());
  }

  void shut_down() {
    const Error closed(Code::kFailedPrecondition, "the coordinator has been shut down");
    queue_.close(closed);
    resources_->close(closed);
    ask_to_end();
    const auto deadline = Clock::now() + kFarewell;
    for (const auto& worker : workers_)
      if (worker->task() != context_.task) worker->wait_for_end(deadline);
    end_own_worker();
    for (const auto& worker : workers_) worker->wait_for_end(deadline);
    queue_.abandon(closed.with_context("something was still queued or in flight"));
  }

  std::string describe() const {
    std::string text;
    for (const auto& worker : workers_) text += str(text.empty() ? "" : "; ", worker->describe());
    return text;
  }
  std::string describe_all() const {
    return str(num_present(), " of ", num_workers(), " workers are there; ", describe());
  }

  ClosureQueue& queue() { return queue_; }
  const std::shared_ptr<ResourceTable>& resources() const { return resources_; }
  int num_workers() const { return context_.num_workers; }

  std::shared_ptr<FunctionFamily> family_of(const Function& function) {
    // A function's copies share its name, and no other function has it.
    return functions_.family(
        &function.name(), function.name(),
        [this, function](const CallSignature& signature) { return trace(function, signature); });
  }
  std::shared_ptr<FunctionFamily> family_of(const std::shared_ptr<internal::StepState>& step) {
    return functions_.family(
        step.get(), step->name(),
        [this, step](const CallSignature& signature) {
          internal::ParameterNames names;
          for (const Parameter& parameter : signature.parameters) names.push_back(parameter.names);
          return trace(step->function(names), signature);
        },
        step->precision());
  }

 private:
  int num_present() const {
    return static_cast<int>(
        std::ranges::count_if(workers_, [](const auto& worker) { return worker->is_attached(); }));
  }

  // Where the coordinator's task is one of the workers. Functions reach it as they reach others.
  void serve_as_worker(const ClusterSpec& cluster, const Environment& environment) {
    if (context_.task == kChief) return;
    own_worker_ = std::make_unique<WorkerServer>(
        cluster.address("worker", 0),
        WorkerServerOptions{.job_id = options_.job_id,
                            .devices = strategy_->options().devices,
                            .task = context_.task,
                            .coordinator = context_.task,
                            .server_timeout = strategy_->options().timeout,
                            .max_bytes = options_.max_bytes,
                            .tls = options_.tls,
                            .allow_plaintext = options_.allow_plaintext,
                            .notice = options_.notice},
        environment);
  }
  void ask_to_end() {
    for (const auto& worker : workers_) worker->shut_down();
    const auto deadline = Clock::now() + kArrival;
    for (const auto& worker : workers_)
      if (!worker->wait_until_asked(deadline))
        options_.notice(str("coordinator: not asked to end: ", worker->describe()));
  }
  void end_own_worker() {
    // Waits for what is being executed, when the lock has been given back.
    std::unique_ptr<WorkerServer> ending;
    const std::lock_guard lock(mutex_);
    ending.swap(own_worker_);
  }

  std::vector<const GraphFunction*> trace(const Function& function,
                                          const CallSignature& signature) const {
    if (strategy_ == nullptr) return {&function.trace(signature.tensors)};
    const ReplicaScope inside(*strategy_);
    const ReplicaGroup group = group_of(signature, context_.replicas, strategy_->name());
    std::vector<const GraphFunction*> graphs;
    for (const Signature& replica : signatures_on_replicas(signature, context_.replicas))
      graphs.push_back(&function.trace(replica, group));
    return graphs;
  }

  // What watch() has seen and said.
  struct Watched {
    Clock::time_point last_progress = Clock::now();
    uint64_t ended = 0;                       // closures, in whichever way
    milliseconds next_report = kFirstReport;  // when there has been no worker for so long
  };
  // Looks for what does not go on.
  void watch() {
    Watched watched;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kWatchInterval, [&] { return stopping_; })) {
      lock.unlock();  // `notice` is the user's, and may wait
      const auto now = Clock::now();
      report_stuck(watched, now);
      report_alone(watched, now);
      lock.lock();
    }
  }

  void report_stuck(Watched& watched, Clock::time_point now) const {
    const ClosureQueue::Counts counts = queue_.counts();
    const uint64_t ended = counts.executed + counts.failed + counts.cancelled + counts.again;
    if (ended != std::exchange(watched.ended, ended) || counts.queued + counts.in_flight == 0)
      watched.last_progress = now;
    if (options_.stuck_after.count() == 0 ||
        std::chrono::floor<milliseconds>(now - watched.last_progress) < options_.stuck_after)
      return;
    watched.last_progress = now;
    options_.notice(str("coordinator: nothing has been executed for ", options_.stuck_after.count(),
                        " ms; ", counts.queued, " queued, ", counts.in_flight, " in flight; ",
                        describe()));
  }

  void report_alone(Watched& watched, Clock::time_point now) {
    const auto alone = alone_for(now);
    if (!alone) {
      watched.next_report = kFirstReport;
    } else if (*alone > options_.worker_timeout) {
      queue_.abandon(Error(Code::kUnavailable, str("there is no worker; ", describe())));
    } else if (*alone > watched.next_report) {
      watched.next_report *= 2;
      options_.notice(str("coordinator: waiting for workers; ", describe()));
    }
  }

  // How long there has been no worker; nothing where there is one. In the unit of the options: in
  // the clock's, the longest of those would be too long.
  std::optional<milliseconds> alone_for(Clock::time_point now) const {
    Clock::duration shortest = Clock::duration::max();
    for (const auto& worker : workers_) {
      const auto since = worker->lost_since();
      if (!since) return std::nullopt;
      shortest = std::min(shortest, now - *since);
    }
    return std::chrono::floor<milliseconds>(shortest);
  }

  const CatchTermination catch_termination_;
  ParameterServerStrategy* const strategy_;  // null: none
  const CoordinatorOptions options_;
  const coordination::Security security_;
  const std::shared_ptr<ResourceTable> resources_;
  const std::shared_ptr<WorkerCopies> copies_;
  FunctionTable functions_;
  ClosureQueue queue_;
  WorkerContext context_;
  std::unique_ptr<WorkerServer> own_worker_;  // of this task, where that is a worker
  std::vector<std::unique_ptr<RemoteWorker>> workers_;
  std::atomic<uint64_t> last_closure_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread watch_;
};

// --- Arguments and handles

void ClosureArguments::add_tensor(const Tensor& tensor) {
  all.push_back({.parameter = {}, .tensors = {tensor}});
}

void ClosureArguments::add_resource(const std::shared_ptr<const ResourceHandle>& handle,
                                    bool is_batch) {
  all.push_back({.parameter = {.is_batch = is_batch}, .tensors = {}, .resource = handle->id()});
  resources.push_back(handle);
}

PerWorkerIterator PerWorkerDataset::iterate() const {
  const auto table = table_.lock();
  if (table == nullptr)
    cohort::fail(Code::kFailedPrecondition, "the coordinator of dataset \"", name_, "\" has ended");
  return PerWorkerIterator(
      table->add({.create = {.resource = 0, .what = CreateIterator{name_, table->next_pass(name_)}},
                  .definition = {},
                  .resources = {}}));
}

// --- ClusterCoordinator

ClusterCoordinator::ClusterCoordinator(const ClusterSpec& cluster,
                                       const CoordinatorOptions& options,
                                       const Environment& environment)
    : impl_(OwnedHere<Impl>(new Impl(nullptr, cluster, options, environment))) {}

ClusterCoordinator::ClusterCoordinator(Strategy& strategy, const CoordinatorOptions& options,
                                       const Environment& environment) {
  static std::mutex mutex;
  static std::map<const Strategy*, std::weak_ptr<Impl>> all;
  ParameterServerStrategy& servers = require_coordinated(strategy);
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  impl_ = all[&strategy].lock();
  if (impl_ != nullptr) return;
  impl_ = OwnedHere<Impl>(
      new Impl(&servers, servers.cluster_spec(), as_of(servers, options), environment));
  all[&strategy] = impl_;
}

ClusterCoordinator::~ClusterCoordinator() = default;

RemoteValue ClusterCoordinator::schedule(const std::shared_ptr<internal::StepState>& step,
                                         ClosureArguments arguments) {
  return impl_->schedule(impl_->family_of(step), std::move(arguments));
}

RemoteValue ClusterCoordinator::schedule(const Function& function, ClosureArguments arguments) {
  return impl_->schedule(impl_->family_of(function), std::move(arguments));
}

void ClusterCoordinator::join(std::optional<milliseconds> timeout) { impl_->queue().join(timeout); }

bool ClusterCoordinator::done() { return impl_->queue().done(); }

std::vector<std::vector<Tensor>> ClusterCoordinator::fetch(
    const std::vector<RemoteValue>& values) const {
  std::vector<std::vector<Tensor>> all;
  for (const RemoteValue& value : values) all.push_back(value.fetch());
  return all;
}

PerWorkerDataset ClusterCoordinator::create_per_worker_dataset(const std::string& name) const {
  return {impl_->resources(), name};
}

PerWorkerValues ClusterCoordinator::create_resource(const Function& function,
                                                    ClosureArguments arguments) {
  return impl_->create_resource(function, std::move(arguments));
}

std::shared_ptr<Variable> ClusterCoordinator::create_per_worker_variable(
    const VariableOptions& options) {
  return make_per_worker_variable(options, *impl_->resources());
}

std::vector<Tensor> ClusterCoordinator::fetch_per_worker(const PerWorkerValues& values,
                                                         std::optional<milliseconds> timeout) {
  return impl_->fetch_per_worker(values.handle()->id(), timeout);
}

std::vector<Tensor> ClusterCoordinator::fetch_per_worker(const std::shared_ptr<Variable>& variable,
                                                         std::optional<milliseconds> timeout) {
  return impl_->fetch_per_worker(impl_->resource_of(variable), timeout);
}

int ClusterCoordinator::num_workers() const { return impl_->num_workers(); }

CoordinatorStatistics ClusterCoordinator::statistics() const { return impl_->statistics(); }

StrategyReport ClusterCoordinator::take_report() { return impl_->take_report(); }

std::vector<WorkerStatus> ClusterCoordinator::worker_statuses() { return impl_->statuses(); }

void ClusterCoordinator::wait_for_workers(std::optional<int> count, milliseconds timeout) {
  impl_->wait_for_workers(count.value_or(impl_->num_workers()), timeout);
}

void ClusterCoordinator::shut_down() { impl_->shut_down(); }

}  // namespace cohort
