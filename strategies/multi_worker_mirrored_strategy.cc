#include "strategies/multi_worker_mirrored_strategy.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <set>
#include <tuple>

#include "core/base/fnv1a.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/base/random.h"
#include "core/base/time_limits.h"
#include "core/device/logical_cpus.h"
#include "core/distribute/packing.h"
#include "core/graph/serialization.h"
#include "core/runtime/trace.h"
#include "core/tensor/specs_of.h"
#include "strategies/cluster/resolve_cluster.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/local_replicas.h"
#include "strategies/multi_worker/cluster_link.h"
#include "strategies/multi_worker/own_gpus.h"
#include "strategies/multi_worker/shared_cores.h"
#include "strategies/multi_worker/step_watch.h"
#include "strategies/multi_worker/worker_group.h"
#include "strategies/variables/central_variable.h"
#include "strategies/variables/common_memory.h"
#include "strategies/variables/worker_variable.h"

namespace cohort {
namespace {

// As many are remembered at a time: a program may make a function for each step.
constexpr size_t kMostKnownInputs = 10'000;
// For those that end together: a launcher asks the others to end as soon as one has ended by an
// error, and each shall have come to its own end by then.
constexpr std::chrono::seconds kEndPatience(10);
// For those that end by the same error to come, before it is plain that one has caught it.
constexpr std::chrono::seconds kErrorPatience(1);

// Makes the communicators of local replicas that reach those of other workers.
class WorkerCollectives final : public CrossDeviceOps {
 public:
  WorkerCollectives(std::shared_ptr<WorkerLink> link, std::shared_ptr<StepWatch> step,
                    std::optional<std::chrono::milliseconds> limit)
      : link_(std::move(link)), step_(std::move(step)), limit_(limit) {}
  std::string name() const override { return "WorkerCollectives"; }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) override {
    auto replicas = link_->connect("replicas", static_cast<int>(devices.size()), limit_);
    for (size_t r = 0; r < replicas.size(); ++r)
      replicas[r] = step_->watch(static_cast<int>(r), std::move(replicas[r]));
    return replicas;
  }

 private:
  const std::shared_ptr<WorkerLink> link_;
  const std::shared_ptr<StepWatch> step_;
  const std::optional<std::chrono::milliseconds> limit_;
};

// Null where the program has a link already.
std::shared_ptr<const ClusterResolver> resolver_of(
    const MultiWorkerMirroredStrategy::Options& options) {
  if (options.link != nullptr) return nullptr;
  auto resolver = options.resolver != nullptr ? options.resolver : resolve_own_cluster();
  if (resolver->task_type() == "ps" && !resolver->cluster_spec().empty())
    invalid("MultiWorkerMirroredStrategy has no use for parameter servers, and this task is one: ",
            "leave out the job ps (cohort-run --ps), or train by ParameterServerStrategy");
  return resolver;
}

// Those that the program names, else this task's GPUs, else all CPUs.
std::vector<Device> devices_of(std::string_view strategy, const std::vector<std::string>& names,
                               const ClusterResolver* resolver) {
  if (!names.empty() || resolver == nullptr)
    return resolve_devices(strategy, names, DefaultDevices::kGpusFirst);
  const auto devices = list_devices();
  const auto count = std::count_if(devices.begin(), devices.end(),
                                   [](Device device) { return device.type == DeviceType::kGpu; });
  auto gpus = own_gpus(*resolver, static_cast<int>(count));
  return gpus.empty() ? resolve_devices(strategy, {}, DefaultDevices::kCpus) : gpus;
}

bool are_cpus(const std::vector<Device>& devices) {
  return std::ranges::all_of(devices,
                             [](Device device) { return device.type == DeviceType::kCpu; });
}

void require_equal_counts(Workers& workers, size_t devices) {
  const auto counts = workers.exchange("the start", std::to_string(devices));
  for (size_t r = 1; r < counts.size(); ++r)
    if (counts[r] != counts[0])
      invalid("every worker needs the same number of devices, but ", workers.name(0), " has ",
              counts[0], " and ", workers.name(static_cast<int>(r)), " has ", counts[r]);
}

// Whether all workers can use the same memory, and nobody has asked for another way.
bool have_common_memory(Workers& workers, const std::vector<Device>& devices,
                        CommunicationBackend backend) {
  const auto asked = backend_asked_for(backend);
  const bool can = share_memory(devices) && (asked == CommunicationBackend::kAuto ||
                                             asked == CommunicationBackend::kSharedMemory);
  const auto hosts = workers.exchange("the host", can ? host_identity() : std::string());
  return !hosts[0].empty() && std::count(hosts.begin(), hosts.end(), hosts[0]) == workers.size();
}

// What a worker says before each step.
struct StepNote {
  uint64_t inputs;   // a hash of which function is to run here, and of what its inputs are
  uint64_t program;  // what it has traced in the step before; 0 for nothing
  uint64_t is_connected;
  uint64_t has_assigned;  // variables that all have in common

  std::string bytes() const {
    return std::string(reinterpret_cast<const char*>(this), sizeof(StepNote));
  }
  static StepNote from(const std::string& bytes) {
    StepNote note;
    if (bytes.size() != sizeof note)
      fail(Code::kDataLoss, "a worker says ", bytes.size(), " bytes before a step");
    std::memcpy(&note, bytes.data(), sizeof note);
    return note;
  }
};

// Where that fails the job has: others may have connected, and would wait for this worker.
void reconnect(LocalReplicas& replicas, WorkerGroup& group) {
  try {
    replicas.reconnect();
  } catch (const Error& error) {
    group.end_job(error);
  }
}

// What has to be equal on all workers, in words.
std::string topic_of(const Function& function, const RunOptions& options) {
  return str("step ", options.step, " of \"", function.name(), "\" with the seed ", options.seed);
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const Options& options)
    : exceptions_(std::uncaught_exceptions()) {
  if (options.worker_timeout.count() < 1)
    invalid(name(), ": worker_timeout is ", options.worker_timeout.count(),
            " s; it has to be 1 or more");
  const auto resolver = resolver_of(options);
  std::vector<Device> devices = devices_of(name(), options.devices, resolver.get());
  link_ = resolver == nullptr ? options.link
                              : join_cluster(*resolver, options.membership, options.backend);
  if (resolver != nullptr && link_->rank() == 0 && are_cpus(devices))
    warn_of_shared_cores(*resolver, static_cast<int>(devices.size()) * logical_cpus().threads_each);
  if (link_->size() > 1) {
    connect(options, std::move(devices));
    return;
  }
  replicas_ = std::make_shared<LocalReplicas>(std::move(devices), nullptr, options.communication);
  if (share_memory(replicas_->devices())) replicas_->share_variables(replicas_->devices()[0]);
}

void MultiWorkerMirroredStrategy::connect(const Options& options, std::vector<Device> devices) {
  // Others may be waiting for this worker within a step. Before there are replicas, and after the
  // strategy's end, which variables and with them the group may outlive, there is none.
  const auto replicas = std::make_shared<std::weak_ptr<LocalReplicas>>();
  const auto end_step = [replicas](const Error& error) {
    if (const auto present = replicas->lock()) present->abort(error);
  };
  step_ = std::make_shared<StepWatch>(static_cast<int>(devices.size()), are_cpus(devices));
  // The longest ones are none in milliseconds.
  const auto limit = clamped_seconds(std::chrono::duration<double>(options.worker_timeout).count());
  group_ =
      std::make_shared<WorkerGroup>(link_, limit, options.communication.limit(), step_, end_step);
  // From here on, whoever is lost, nobody waits.
  const auto watch = link_->on_failure([group = group_, step = step_](const Error& error) {
    if (group->abort(error)) step->abort(error);
  });
  require_equal_counts(*group_, devices.size());
  if (have_common_memory(*group_, devices, options.backend))
    common_writes_ = std::make_shared<CommonWrites>();
  const int in_sync = static_cast<int>(devices.size()) * link_->size();
  replicas_ = std::make_shared<LocalReplicas>(
      std::move(devices),
      std::make_shared<WorkerCollectives>(link_, step_, options.communication.limit()),
      options.communication, in_sync, link_->name(link_->rank()));
  if (common_writes_ != nullptr) replicas_->share_variables(replicas_->devices()[0]);
  *replicas = replicas_;
  watch_ = link_->on_failure([this](const Error& error) {
    if (!group_->abort(error)) return;
    replicas_->close(error);
    step_->abort(error);  // what replicas_ is connecting
  });
  meetings_to_start_ = group_->meetings();
  trainings_before_ = trainings_without_strategy();
}

MultiWorkerMirroredStrategy::~MultiWorkerMirroredStrategy() {
  if (!process_.is_this()) {
    // A fork has no say in the job, and lacks the threads that these would wait for.
    new (std::nothrow) auto(std::tuple(link_, group_, step_, replicas_, std::move(watch_)));
    return;
  }
  if (group_ == nullptr) return;
  const bool throws = std::uncaught_exceptions() > exceptions_;
  // Else it learns here of what has ended the job.
  const bool program_knows = throws || group_->is_over();
  try {
    if (throws)
      end_badly();
    else
      end_well();
  } catch (const Error& error) {
    if (program_knows)
      print_notice(str("warning: ", name(), ": ", error.what(), "\n"));
    else
      fail_at_exit(error.with_context(name()));
  }
  watch_ = FailureWatch();
}

// After so many of them. Training without the strategy beside a scope that is of no use is what a
// mistake looks like; who does nothing, or uses the workers for what he does himself, has reasons.
void MultiWorkerMirroredStrategy::warn_of_idle_scope(int64_t meetings) const {
  const bool is_idle = was_entered() && !has_lent_link_ && meetings == meetings_to_start_;
  if (!is_chief() || !is_idle || trainings_without_strategy() == trainings_before_) return;
  print_notice(str("warning: no variable was made in the scope of ", name(), ", and its ",
                   group_->size(), " workers have done nothing together, while a model that was ",
                   "made outside the scope was trained by each for itself, on ",
                   default_strategy().devices()[0],
                   ": the scope counts for the thread that enters it alone; make the model in it, ",
                   "or enter strategy.scope() in the thread that makes the model\n"));
}

void MultiWorkerMirroredStrategy::end_well() {
  if (const auto failure = link_->failure(std::chrono::milliseconds(0))) {
    if (group_->is_over()) return;
    throw *failure;
  }
  const int64_t meetings = group_->meetings();
  try {
    std::vector<uint64_t> programs;
    const StepNote last{.program = program_};
    for (const std::string& bytes : group_->exchange("the end of the strategy", last.bytes()))
      programs.push_back(StepNote::from(bytes).program);
    require_same_program(programs);
  } catch (const Error& error) {
    link_->report(error);
    throw;
  }
  warn_of_idle_scope(meetings);
  link_->leave(std::chrono::seconds(60));
}

// Whether all workers end by the error that all have thrown, rather than one that has caught it.
bool MultiWorkerMirroredStrategy::all_end() {
  try {
    link_->barrier("the end by an error of all workers", kErrorPatience);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// All end because the job is to stop, which all know, or with an error that all have. With another
// one, the others have to be told, and so has one that goes on after an error of all.
void MultiWorkerMirroredStrategy::end_badly() {
  if (link_->failure(std::chrono::milliseconds(0))) return;
  const auto shared = group_->shared_error();
  if (group_->stop_requested() || (shared && all_end())) return link_->leave(kEndPatience);
  const std::string cause = shared ? str("the error that all workers have thrown: ", shared->what())
                                   : "an error of its own";
  const std::string self = group_->name(group_->rank());
  link_->report(Error(Code::kAborted, str(self, " has ended because of ", cause), self));
}

int MultiWorkerMirroredStrategy::num_replicas_in_sync() const {
  return replicas_->replicas_in_sync();
}
const std::vector<Device>& MultiWorkerMirroredStrategy::devices() const {
  return replicas_->devices();
}
int MultiWorkerMirroredStrategy::first_replica() const {
  return group_ == nullptr ? 0 : group_->rank() * replicas_->count();
}
Workers& MultiWorkerMirroredStrategy::workers() const {
  return group_ == nullptr ? Strategy::workers() : *group_;
}
CrossDeviceOps& MultiWorkerMirroredStrategy::cross_device_ops() {
  return replicas_->cross_device_ops();
}

std::shared_ptr<Variable> MultiWorkerMirroredStrategy::create_variable(
    const VariableOptions& options) {
  if (group_ == nullptr) return replicas_->create_variable(options);
  return make_worker_variable(options, devices(), group_, common_writes_);
}

void MultiWorkerMirroredStrategy::begin_update() { replicas_->meet(); }
void MultiWorkerMirroredStrategy::end_update() { replicas_->meet(); }

std::optional<StepWaits> MultiWorkerMirroredStrategy::waits() const {
  std::optional<StepWaits> waits = replicas_->waits();
  if (waits && group_ != nullptr) waits = group_->waits();
  return waits;
}

bool MultiWorkerMirroredStrategy::is_home_of(const Variable& variable) const {
  return replicas_->is_home_of(variable);
}

std::vector<Gradient> MultiWorkerMirroredStrategy::reduce_gradients(
    const std::vector<Gradient>& gradients, const Value& when) {
  require_replica("reduce_gradients");
  return replicas_->reduce_gradients(gradients, when);
}

std::vector<Signature> MultiWorkerMirroredStrategy::signatures_in_sync(
    const Function& function, const std::vector<Signature>& local, const RunOptions& options) {
  if (group_ == nullptr) return local;
  Packer packer;
  packer.add(static_cast<int64_t>(options.precision));
  packer.add(options.contents);
  for (const Signature& signature : local) packer.add(signature);
  const std::string topic = topic_of(function, options);
  const StepNote own{.inputs = mix(fnv1a(packer.bytes()), function.id()),
                     .program = program_,
                     .is_connected = replicas_->is_connected(),
                     .has_assigned = common_writes_ != nullptr && common_writes_->any()};
  std::vector<uint64_t> inputs, programs;
  bool connected = true, assigned = false;
  for (const std::string& bytes : group_->exchange_before_step(topic, own.bytes())) {
    const StepNote note = StepNote::from(bytes);
    inputs.push_back(note.inputs);
    programs.push_back(note.program);
    connected = connected && note.is_connected;
    assigned = assigned || note.has_assigned;
  }
  step_->begin_step();  // before it is traced, which may fail: then this worker has done nothing
  require_same_program(programs);
  // Before it is traced, too: the others would wait for a worker that cannot trace.
  if (!connected) reconnect(*replicas_, *group_);
  if (assigned) common_writes_->publish(*group_);
  group_->begin_computing();
  traces_ = function.trace_count();
  return all_signatures(topic, inputs, packer.bytes());
}

// Of workers that have traced something: another may have failed to. What differs stays so for all
// later steps.
void MultiWorkerMirroredStrategy::require_same_program(const std::vector<uint64_t>& programs) {
  const auto is_one = [](uint64_t program) { return program != 0; };
  const auto first = std::find_if(programs.begin(), programs.end(), is_one);
  const auto other = std::find_if(first, programs.end(), [&](uint64_t program) {
    return is_one(program) && program != *first;
  });
  if (other == programs.end()) {
    program_ = 0;
    return;
  }
  const auto name_of = [&](auto at) {
    return group_->name(static_cast<int>(at - programs.begin()));
  };
  group_->fail(
      Error(Code::kFailedPrecondition,
            str("every worker has to run the same program, but ", name_of(first), " and ",
                name_of(other), " have traced \"", traced_, "\" differently for inputs of ",
                "the same shapes: look for another build, other options, or numbers that ",
                "depend on the worker"),
            name_of(other)));
}

std::vector<Signature> MultiWorkerMirroredStrategy::all_signatures(
    const std::string& topic, const std::vector<uint64_t>& hashes, const std::string& own) {
  auto known = known_inputs_.find(hashes);
  if (known == known_inputs_.end()) {
    KnownInputs inputs{.signatures = exchange_signatures(topic, own)};
    if (known_inputs_.size() == kMostKnownInputs) known_inputs_.clear();
    known = known_inputs_.emplace(hashes, std::move(inputs)).first;
  }
  inputs_ = &known->second;
  return inputs_->signatures;
}

std::vector<Signature> MultiWorkerMirroredStrategy::exchange_signatures(const std::string& topic,
                                                                        const std::string& own) {
  std::vector<Signature> signatures;
  std::optional<int64_t> shared;
  std::string contents;
  int worker = 0;
  for (const std::string& bytes : group_->exchange(topic + ": its inputs", own)) {
    Unpacker unpacker(bytes);
    const int64_t precision = unpacker.number();
    if (precision != shared.value_or(precision))
      invalid(topic, ": the precision must be equal on all workers");
    shared = precision;
    const std::string own_contents = unpacker.text();
    if (worker == 0) contents = own_contents;
    if (own_contents != contents)
      throw Error(
          Code::kFailedPrecondition,
          str("every worker has to give the same inputs, but ", group_->name(0), " is at ", topic,
              " with ", contents, " and ", group_->name(worker), " with ", own_contents),
          group_->name(worker));
    while (!unpacker.at_end()) signatures.push_back(unpacker.signature());
    const size_t first = signatures.front().size(), other = signatures.back().size();
    if (first != other)
      fail(Code::kFailedPrecondition, "every worker has to run the same program, but ",
           group_->name(0), " is at ", topic, " with ", first, " tensors and ",
           group_->name(worker), " with ", other);
    ++worker;
  }
  return signatures;
}

// Before it runs for the first time: who communicates less than the others would keep them waiting.
void MultiWorkerMirroredStrategy::require_same_effects(const Function& function,
                                                       const Signature& inputs,
                                                       const ReplicaGroup& group) {
  Packer own;
  for (const std::string& effect : common_effects(*function.trace(inputs, group).graph))
    own.add(effect);
  const auto effects_in = [](const std::string& bytes) {
    std::vector<std::string> effects;
    for (Unpacker unpacker(bytes); !unpacker.at_end();) effects.push_back(unpacker.text());
    return effects;
  };
  const auto all =
      group_->exchange(str("what replicas do together in \"", function.name(), '"'), own.bytes());
  for (size_t worker = 1; worker < all.size(); ++worker) {
    const std::string name = group_->name(static_cast<int>(worker));
    const std::string difference =
        difference_of_effects(group_->name(0), effects_in(all[0]), name, effects_in(all[worker]));
    if (!difference.empty())
      throw Error(Code::kFailedPrecondition,
                  str("every worker has to run the same program, but in \"", function.name(), "\" ",
                      difference),
                  name);
  }
}

// Where replicas have other inputs, every worker has traced what each of them runs.
void MultiWorkerMirroredStrategy::note_program(const Function& function,
                                               const PerReplica<std::vector<Tensor>>& inputs,
                                               const ReplicaGroup& group) {
  if (function.trace_count() == traces_) return;
  traced_ = function.name();
  std::set<Signature, SignatureLess> signatures(group.signatures.begin(), group.signatures.end());
  if (signatures.empty()) signatures.insert(specs_of(inputs[0]));
  program_ = 0;
  for (const Signature& signature : signatures)
    program_ = mix(program_, fingerprint(function.trace(signature, group)));
}

PerReplica<std::vector<Tensor>> MultiWorkerMirroredStrategy::run_replicas(
    const Function& function, const PerReplica<std::vector<Tensor>>& inputs,
    const ReplicaGroup& group, const RunOptions& options) {
  if (group_ == nullptr) return replicas_->run(*this, function, inputs, group, options);
  note_program(function, inputs, group);
  if (!inputs_->have_same_effects) {
    require_same_effects(function, specs_of(inputs[0]), group);
    inputs_->have_same_effects = true;
  }
  try {
    return replicas_->run(*this, function, inputs, group, options);
  } catch (const Error& error) {
    fail_step(error, writes_variables(function, inputs, group));
  } catch (const std::exception& error) {
    fail_step(error_for_others(error).with_context("a replica has failed"),
              writes_variables(function, inputs, group));
  }
}

// All throw the error of the replica that failed, without where others were when they learned of
// it.
void MultiWorkerMirroredStrategy::fail_step(const Error& error, bool writes_variables) {
  try {
    if (writes_variables) group_->fail_writing_step(group_->cause_of(error));
    group_->fail(group_->cause_of(error));
  } catch (const Error& thrown) {
    throw group_->shared_error().value_or(thrown);
  }
}

}  // namespace cohort
