#include "strategies/coordinator/worker_server.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/base/thread_sanitizer.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/cluster/resolve_cluster.h"
#include "strategies/coordinator/assembler.h"
#include "strategies/coordinator/closure_runner.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/outbox.h"
#include "strategies/coordinator/scheduler.h"
#include "strategies/local_replicas.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/roster.h"
#include "strategies/parameter_server/stream_server.h"

namespace cohort {
namespace {

using namespace coordinator;
using parameter_server::MessageReader;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLookInterval(50);
constexpr milliseconds kFirstReport(5000);
// Calls that have not said who it is that calls.
constexpr size_t kMaxSilent = 16;
// Calls of before that are still at their last closure.
constexpr size_t kMaxEnding = 4;

class CoordinatorCall;

// What the calls of a worker share.
class Worker {
 public:
  Worker(const WorkerServerOptions& options, const Environment& environment,
         std::function<void()> shut_down)
      : options_(options),
        devices_(resolve_devices("worker server", options.devices)),
        environment_(environment),
        shut_down_(std::move(shut_down)),
        incarnation_(coordination::random_incarnation()),
        left_alone_since_(Clock::now()) {
    prepare_decoding();
  }

  const WorkerServerOptions& options() const { return options_; }
  const std::vector<Device>& devices() const { return devices_; }
  uint64_t incarnation() const { return incarnation_; }
  std::atomic<uint64_t>& executed() { return executed_; }
  std::atomic<uint64_t>& refused() { return refused_; }
  void shut_down() { shut_down_(); }

  // A call has begun. Where too many have not been attached, the first of these ends: so they keep
  // nobody away.
  void open(const std::shared_ptr<CoordinatorCall>& call);
  // A way to the job's parameter servers of its own for a call; null where it has none.
  std::shared_ptr<ServerSession> servers_of(const Attach& attach) const;
  // Makes `call` the one of the coordinator, and ends the one before it.
  void attach(const Attach& attach, const std::shared_ptr<CoordinatorCall>& call);
  // A call has ended, perhaps before it was attached, or had a runner.
  void detach(const CoordinatorCall& call, std::unique_ptr<ClosureRunner> runner);
  // Whether it is time to end, and in words why.
  std::optional<std::string> is_orphaned() const;
  // How long it has waited for the first coordinator; nothing where there was one.
  std::optional<milliseconds> unclaimed_for() const;

 private:
  // REQUIRES: mutex_ held.
  void forget_silent(const CoordinatorCall& call) {
    std::erase_if(silent_, [&](const auto& silent) { return silent.get() == &call; });
  }

  const WorkerServerOptions options_;
  const std::vector<Device> devices_;
  const Environment environment_;
  const std::function<void()> shut_down_;
  const uint64_t incarnation_;
  std::atomic<uint64_t> executed_ = 0, refused_ = 0;
  parameter_server::Roster roster_{parameter_server::kMaxTasks, "tasks"};
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<CoordinatorCall>> silent_;  // in the order in which they began
  std::weak_ptr<CoordinatorCall> present_;
  bool attached_ = false;
  Clock::time_point left_alone_since_;
  std::list<std::unique_ptr<ClosureRunner>> ending_;
};

// One call of a coordinator. It keeps itself alive until gRPC is done with it.
class CoordinatorCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                              public ClosureRunner::Answers {
 public:
  CoordinatorCall(Worker& worker, coordination::CertifiedTasks tasks)
      : worker_(worker), tasks_(std::move(tasks)) {}

  void begin(std::shared_ptr<CoordinatorCall> self) {
    self_ = std::move(self);
    worker_.open(self_);
    read();
  }

  void end(const Error& error) { finish(parameter_server::status_of(error)); }
  void refuse(const Error& error) {
    ++worker_.refused();
    end(error);
  }

  void OnReadDone(bool ok) override {
    COHORT_TSAN_ACQUIRE(this);
    if (!ok) return finish(grpc::Status::OK);  // the coordinator has hung up
    try {
      if (auto message = assembler_->take(MessageReader(incoming_))) take(std::move(*message));
    } catch (const std::exception& error) {
      return refuse(parameter_server::refusal_of(error));
    }
    read();
  }

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      outbox_.written();
      if (!ok) return;
      write();
      if (!outbox_.idle()) return;
    }
    if (runner_) runner_->drained();
  }

  void OnCancel() override { finish(grpc::Status::CANCELLED); }

  void OnDone() override {
    if (runner_) runner_->stop();
    worker_.detach(*this, std::move(runner_));
    const std::shared_ptr<CoordinatorCall> last = std::move(self_);
  }

  void send(const FromWorker& message) override {
    auto bytes = encode(message);
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    outbox_.add(std::move(bytes));
    write();
  }

  bool is_drained() const override {
    const std::lock_guard lock(mutex_);
    return outbox_.idle();
  }

 private:
  // gRPC orders what it calls here, which ThreadSanitizer cannot see.
  void read() {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    COHORT_TSAN_RELEASE(this);
    StartRead(&incoming_);
  }

  void take(ToWorker message) {
    if (!runner_) {
      if (!message.attach || !message.commands.empty())
        fail(Code::kFailedPrecondition, "a call begins with who it is that calls");
      tasks_.check(worker_.options().job_id, message.attach->task);
      worker_.attach(*message.attach, self_);
      assembler_.emplace(decode_to_worker, worker_.options().max_bytes);
      runner_ = std::make_unique<ClosureRunner>(
          *message.attach, worker_.devices(), worker_.options().max_bytes,
          worker_.servers_of(*message.attach), *this, worker_.executed());
      return send(
          {.attached = Attached{worker_.incarnation(), static_cast<int>(worker_.devices().size()),
                                worker_.options().max_bytes},
           .results = {},
           .missing = {},
           .status = {}});
    }
    if (message.attach) invalid("a call is of one coordinator");
    const bool ends = std::ranges::any_of(
        message.commands, [](const Command& c) { return std::holds_alternative<ShutDown>(c); });
    if (ends) return worker_.shut_down();
    runner_->take(std::move(message.commands));
  }

  // REQUIRES: mutex_ held.
  void write() {
    if (finished_) return;
    if (const grpc::ByteBuffer* part = outbox_.next()) StartWrite(part);
  }

  void finish(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
    outbox_.drop();  // the call lasts for as long as the coordinator does not read
    Finish(status);
  }

  Worker& worker_;
  const coordination::CertifiedTasks tasks_;  // who may call
  std::shared_ptr<CoordinatorCall> self_;
  grpc::ByteBuffer incoming_;
  // Without tensors, until the coordinator has said who it is.
  std::optional<Assembler<ToWorker>> assembler_{std::in_place, decode_to_worker, size_t{0}};
  std::unique_ptr<ClosureRunner> runner_;  // since the coordinator has said who it is
  mutable std::mutex mutex_;
  Outbox outbox_;
  bool finished_ = false;
};

// What the worker is to the parameter servers. In the coordinator's own process it is a part of
// that task: each of the two counts its pushes for itself.
std::string caller_of(const Attach& attach) {
  return attach.worker == attach.task ? str(attach.worker, coordination::kExecutor) : attach.worker;
}

std::shared_ptr<ServerSession> Worker::servers_of(const Attach& attach) const {
  if (attach.servers.empty()) return nullptr;
  std::vector<Address> addresses;
  for (const std::string& server : attach.servers) addresses.push_back(Address::parse(server));
  return std::make_shared<ServerSession>(
      addresses,
      ParameterClientOptions{.task = caller_of(attach),
                             .job_id = options_.job_id,
                             .timeout = options_.server_timeout,
                             .compression = attach.compression,
                             .tls = options_.tls,
                             .allow_plaintext = options_.allow_plaintext,
                             .notice = options_.notice},
      std::nullopt,  // the coordinator has compared it
      environment_);
}

void Worker::open(const std::shared_ptr<CoordinatorCall>& call) {
  std::shared_ptr<CoordinatorCall> first;
  {
    const std::lock_guard lock(mutex_);
    if (silent_.size() >= kMaxSilent) {
      first = silent_.front();
      forget_silent(*first);
    }
    silent_.push_back(call);
  }
  if (first)
    first->refuse(
        Error(Code::kResourceExhausted,
              str("more than ", kMaxSilent, " calls have not said who it is that calls")));
}

void Worker::attach(const Attach& attach, const std::shared_ptr<CoordinatorCall>& call) {
  if (attach.job_id != options_.job_id)
    fail(Code::kFailedPrecondition, "this worker belongs to job \"", options_.job_id,
         "\", the coordinator to job \"", attach.job_id, '"');
  if (attach.task != options_.coordinator)
    fail(Code::kPermissionDenied, "only ", options_.coordinator, " schedules, this is \"",
         attach.task, '"');
  if (!options_.task.empty() && attach.worker != options_.task)
    fail(Code::kFailedPrecondition, "this is ", options_.task, ", the coordinator takes it for ",
         attach.worker);
  std::shared_ptr<CoordinatorCall> before;
  std::list<std::unique_ptr<ClosureRunner>> ended;  // let go of outside the lock: that may wait
  {
    const std::lock_guard lock(mutex_);
    const auto still = [](const auto& runner) { return !runner->has_ended(); };
    ended.splice(ended.end(), ending_, std::partition(ending_.begin(), ending_.end(), still),
                 ending_.end());
    if (ending_.size() >= kMaxEnding)
      fail(Code::kUnavailable, "this worker is still at the last closures of ", ending_.size(),
           " earlier calls");
    roster_.enter(attach.task, attach.incarnation);
    forget_silent(*call);
    before = present_.lock();
    present_ = call;
    attached_ = true;
  }
  if (before)
    before->end(Error(Code::kAborted, "a later call of the coordinator has taken its place"));
}

void Worker::detach(const CoordinatorCall& call, std::unique_ptr<ClosureRunner> runner) {
  const std::lock_guard lock(mutex_);
  forget_silent(call);
  if (runner) ending_.push_back(std::move(runner));
  const std::shared_ptr<CoordinatorCall> present = present_.lock();
  if (present.get() != &call) return;
  attached_ = false;
  left_alone_since_ = Clock::now();
}

std::optional<std::string> Worker::is_orphaned() const {
  const std::lock_guard lock(mutex_);
  if (attached_) return std::nullopt;
  const bool claimed = roster_.anybody();
  const milliseconds limit = claimed ? options_.orphaned_after : options_.unclaimed_after;
  // In the unit of the limit: in the clock's, the longest would be too long.
  const auto alone = std::chrono::floor<milliseconds>(Clock::now() - left_alone_since_);
  if (limit.count() == 0 || alone < limit) return std::nullopt;
  return str("worker: there has been no coordinator for ", limit.count(), " ms",
             claimed ? "" : " since the start", "; ending");
}

std::optional<milliseconds> Worker::unclaimed_for() const {
  const std::lock_guard lock(mutex_);
  if (roster_.anybody()) return std::nullopt;
  return std::chrono::floor<milliseconds>(Clock::now() - left_alone_since_);
}

WorkerServerOptions completed(WorkerServerOptions options, const Environment& environment) {
  if (options.job_id.empty()) options.job_id = environment("COHORT_JOB_ID").value_or("");
  if (options.coordinator.empty()) options.coordinator = kChief;
  if (options.max_bytes < 1) invalid("max_bytes is 1 at least, got 0");
  if (options.orphaned_after.count() < 0 || options.unclaimed_after.count() < 0)
    invalid("orphaned_after and unclaimed_after are 0 at least, got ",
            options.orphaned_after.count(), " and ", options.unclaimed_after.count(), " ms");
  if (!options.notice) options.notice = [](const std::string& line) { print_notice(line + "\n"); };
  return options;
}

}  // namespace

class WorkerServer::Network {
 public:
  Network(const Address& address, const WorkerServerOptions& options,
          const Environment& environment)
      : worker_(completed(options, environment), environment, [this] { shut_down(); }),
        server_(address, coordination::Security(options.tls, options.allow_plaintext, environment),
                {.name = "worker server",
                 .method = kMethod,
                 .accept =
                     [this](coordination::CertifiedTasks tasks) {
                       const auto call =
                           std::make_shared<CoordinatorCall>(worker_, std::move(tasks));
                       call->begin(call);
                       return call.get();
                     },
                 .notice = worker_.options().notice}) {}

  void wait() {
    milliseconds next_report = kFirstReport;
    std::unique_lock lock(mutex_);
    while (!ending_) {
      changed_.wait_for(lock, kLookInterval);
      if (interrupted()) return;
      if (const auto why = worker_.is_orphaned()) return worker_.options().notice(*why);
      const auto unclaimed = worker_.unclaimed_for();
      if (!unclaimed || *unclaimed < next_report) continue;
      next_report *= 2;
      worker_.options().notice(
          str("worker: waiting for a ClusterCoordinator of ", worker_.options().coordinator,
              ", which has not called for ", unclaimed->count() / 1000,
              " s; a chief that only calls fit() never does: then every worker has to, too"));
    }
  }

  Worker& worker() { return worker_; }

 private:
  void shut_down() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  Worker worker_;
  parameter_server::StreamServer server_;  // last: its calls use the worker
};

WorkerServer::WorkerServer(const Address& address, const WorkerServerOptions& options,
                           const Environment& environment)
    : network_(std::make_unique<Network>(address, options, environment)) {
  note_use_of_cluster();
}

WorkerServer::~WorkerServer() = default;

void WorkerServer::wait() { network_->wait(); }

uint64_t WorkerServer::executed() const { return network_->worker().executed(); }

uint64_t WorkerServer::refused() const { return network_->worker().refused(); }

bool run_worker_server(WorkerServerOptions options, const Environment& environment) {
  const auto resolver = resolve_cluster(environment).resolver;
  const ClusterSpec& cluster = resolver->cluster_spec();
  const int index = resolver->task_id().value_or(-1);
  if (resolver->task_type() != "worker" || !cluster.has_task("worker", index)) return false;
  const std::string task = str("worker:", index), scheduler = scheduler_of(cluster);
  if (task == scheduler) return false;
  if (options.task.empty()) options.task = task;
  if (options.coordinator.empty()) options.coordinator = scheduler;
  WorkerServer(cluster.address("worker", index), options, environment).wait();
  return true;
}

}  // namespace cohort
