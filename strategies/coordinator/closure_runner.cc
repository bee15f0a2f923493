#include "strategies/coordinator/closure_runner.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <variant>

#include "core/base/cancellation.h"
#include "core/base/error.h"
#include "core/base/program.h"
#include "core/base/start_threads.h"
#include "strategies/coordinator/cut_messages.h"
#include "strategies/coordinator/name_on_workers.h"
#include "strategies/coordinator/present_error.h"
#include "strategies/parameter_server/lane.h"

namespace cohort::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxWaiting = 1 << 16;
constexpr size_t kMaxUnread = 1 << 16;
constexpr size_t kMaxUnknown = 4096;

// That are there only while it waits: of functions and resources the worker keeps what it is sent.
size_t waiting_bytes(const Command& command) {
  const auto* run = std::get_if<Run>(&command);
  return run == nullptr ? 0 : bytes_of(run->arguments);
}

// Of one replica after the other.
std::vector<Tensor> flattened(const PerReplica<std::vector<Tensor>>& results) {
  std::vector<Tensor> all;
  for (size_t r = 0; r < results.size(); ++r) {
    if (results[r].size() != results[0].size())
      invalid("it returns ", results[0].size(), " values on replica 0 and ", results[r].size(),
              " on replica ", r);
    std::ranges::copy(results[r], std::back_inserter(all));
  }
  return all;
}

}  // namespace

ClosureRunner::ClosureRunner(const Attach& attach, std::vector<Device> devices,
                             size_t max_message_bytes, std::shared_ptr<ServerSession> servers,
                             Answers& answers, std::atomic<uint64_t>& executed)
    : attach_(attach),
      devices_(std::move(devices)),
      max_message_bytes_(max_message_bytes),
      max_answer_bytes_(attach.max_bytes > 0 ? attach.max_bytes : SIZE_MAX),
      servers_(std::move(servers)),
      answers_(answers),
      executed_(executed),
      resources_(attach_, devices_),
      functions_(attach_, devices_, servers_, resources_),
      replicas_(devices_.size() > 1
                    ? std::make_unique<LocalReplicas>(devices_, nullptr, CommunicationOptions{})
                    : nullptr),
      thread_(start_thread([this] { work(); })) {}

ClosureRunner::~ClosureRunner() {
  stop();
  thread_.join();
}

void ClosureRunner::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  cancel_closures();
  waiting_.clear();
  wake_.notify_all();
}

void ClosureRunner::take(std::vector<Command> commands) {
  const std::lock_guard lock(mutex_);
  for (Command& command : commands) {
    require_reader();
    if (std::holds_alternative<Cancel>(command)) {
      give_back(true);
      if (executes_closures_) cancel_closures();
    } else if (std::holds_alternative<Recall>(command)) {
      give_back(false);
    } else if (const auto* ask = std::get_if<AskStatus>(&command)) {
      if (stopping_) continue;
      ++unread_;
      const auto is_run = [](const Command& c) { return std::holds_alternative<Run>(c); };
      answers_.send({.attached = {},
                     .results = {},
                     .missing = {},
                     .status = Status{
                         .id = ask->id,
                         .executed = executed_,
                         .waiting = static_cast<uint64_t>(std::ranges::count_if(waiting_, is_run)),
                         .functions = num_functions_,
                         .resources = num_resources_}});
    } else {
      waiting_bytes_ += waiting_bytes(command);
      waiting_.push_back(std::move(command));
      if (waiting_.size() > kMaxWaiting || waiting_bytes_ / 2 > max_message_bytes_)
        fail(Code::kResourceExhausted, waiting_.size(), " commands of ", waiting_bytes_,
             " bytes wait; the limits are ", kMaxWaiting, " and twice ", max_message_bytes_);
    }
  }
  wake_.notify_all();
}

void ClosureRunner::give_back(bool cancelled) {
  std::deque<Command> kept;
  for (Command& command : waiting_) {
    const auto* run = std::get_if<Run>(&command);
    if (run == nullptr) {
      kept.push_back(std::move(command));
      continue;
    }
    waiting_bytes_ -= bytes_of(run->arguments);
    outgoing_.results.push_back({.id = run->id, .error = {}, .values = {}, .returned = true});
  }
  waiting_ = std::move(kept);
  // For what waits for its function: before that comes.
  const bool is_first = !waiting_.empty() && std::holds_alternative<Cancel>(waiting_.front());
  if (cancelled && !is_first) waiting_.push_front(Cancel{});
  // Sent by the thread at the latest, when it has done what it is at.
  if (!stopping_ && !outgoing_.results.empty()) send_answers();
}

void ClosureRunner::require_reader() {
  const size_t unread = unread_ + outgoing_.results.size();
  if (unread <= kMaxUnread) return;
  if (!answers_.is_drained())
    fail(Code::kResourceExhausted, unread, " answers wait to be read; the limit is ", kMaxUnread);
  unread_ = 0;
}

void ClosureRunner::send_answers() {
  unread_ += outgoing_.results.size() + outgoing_.missing.size();
  if (servers_) outgoing_.pushes = servers_->take_counts();
  for (const FromWorker& message : cut_answers(std::exchange(outgoing_, {}), max_answer_bytes_))
    answers_.send(message);
}

void ClosureRunner::flush() {
  const std::lock_guard lock(mutex_);
  if (stopping_ || !answers_.is_drained()) return;
  unread_ = 0;
  if (!outgoing_.results.empty() || !outgoing_.missing.empty()) send_answers();
}

void ClosureRunner::cancel_closures() {
  cancelled_ = true;
  if (servers_) servers_->cancel();
}

void ClosureRunner::forget_cancelling() {
  const std::lock_guard lock(mutex_);
  executes_closures_ = false;
  if (cancelled_.exchange(false) && servers_ && !stopping_) servers_->resume();
}

void ClosureRunner::work() {
  const CancelScope cancellable(cancelled_);
  for (;;) {
    Command command;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) break;
      command = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= waiting_bytes(command);
      // Closures that waited for a definition begin with it.
      executes_closures_ =
          std::holds_alternative<Run>(command) || std::holds_alternative<Define>(command);
    }
    std::visit(
        [this]<typename C>(C&& c) {
          if constexpr (requires { execute(std::forward<C>(c)); }) execute(std::forward<C>(c));
        },
        std::move(command));
    forget_cancelling();
    flush();
  }
  // Iterators may have threads of their own, which end here.
  resources_.clear();
  ends_passes_.stop();
  ended_ = true;
}

template <typename F>
void ClosureRunner::answer(uint64_t id, const F& f) {
  Result result{.id = id, .error = {}, .values = {}};
  called_ = nullptr;
  const auto begin = Clock::now();
  try {
    std::optional<std::vector<Tensor>> values = f();
    if (!values) return;
    if (const size_t bytes = bytes_of(*values); bytes > max_answer_bytes_)
      fail(Code::kResourceExhausted, "it returns tensors of ", bytes, " bytes, and ", attach_.task,
           " takes ", max_answer_bytes_, " at most (CoordinatorOptions::max_bytes)");
    result.values = std::move(*values);
    ++executed_;
  } catch (...) {
    set_error(result, present_error());
  }
  if (called_ != nullptr) add_counts(result);
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  const std::lock_guard lock(mutex_);
  outgoing_.busy_us += static_cast<uint64_t>(us.count());
  outgoing_.results.push_back(std::move(result));
}

void ClosureRunner::add_counts(Result& result) const {
  for (const auto& [resource, count] : called_->counts) {
    try {
      result.counts[resource] = count->value().item() != 0;
    } catch (...) {
      // Something may wait in it.
      result.counts[resource] = true;
      if (!result.error && !result.returned) set_error(result, present_error());
    }
  }
}

void ClosureRunner::set_error(Result& result, const Error& error) const {
  result.returned = (cancelled_ || interrupted()) && error.code() == Code::kCancelled;
  if (!result.returned) result.error = error;
}

// --- Functions

void ClosureRunner::execute(const Define& define) {
  CompiledFunction compiled{
      .signature = define.signature, .precision = define.precision, .error = define.error};
  try {
    if (!compiled.error) functions_.compile(define, compiled);
  } catch (...) {
    compiled.error = present_error();
  }
  functions_.add(define.function, std::move(compiled));
  num_functions_ = functions_.size();
  std::vector<ReadyClosure> still_unknown;
  for (ReadyClosure& ready : unknown_) {
    if (CompiledFunction* found = find_due(ready, !still_unknown.empty())) {
      answer(ready.id, [&] { return std::optional(flattened(call(*found, ready))); });
    } else {
      still_unknown.push_back(std::move(ready));
    }
  }
  unknown_ = std::move(still_unknown);
}

CompiledFunction* ClosureRunner::find_due(const ReadyClosure& ready, bool others_wait) {
  CompiledFunction* const found = functions_.find(ready.function, ready.signature);
  return found != nullptr && others_wait && !found->counts.empty() ? nullptr : found;
}

PerReplica<std::vector<Tensor>> ClosureRunner::on_replicas(const RunOptions& options,
                                                           const ReplicaWork& work) {
  PerReplica<std::vector<Tensor>> outputs(devices_.size());
  if (replicas_ == nullptr) {
    const PlanOptions plan{.device = devices_[0], .precision = options.precision, .outside = false};
    outputs[0] = work(0, plan, StepInfo{.seed = options.seed, .step = options.step});
    return outputs;
  }
  replicas_->on_replicas(options, 0,
                         [&](size_t replica, const PlanOptions& plan, const StepInfo& step) {
                           const CancelScope cancellable(cancelled_);
                           outputs[replica] = work(replica, plan, step);
                         });
  return outputs;
}

PerReplica<std::vector<Tensor>> ClosureRunner::call(CompiledFunction& compiled,
                                                    const ReadyClosure& ready) {
  if (compiled.error) throw *compiled.error;
  called_ = &compiled;
  if (not_forgotten_ && !compiled.counts.empty()) throw *not_forgotten_;
  const RunOptions options{.seed = ready.seed,
                           .step = static_cast<int64_t>(ready.number),
                           .precision = compiled.precision,
                           .same_input = {}};
  if (compiled.server_function == nullptr)
    return on_replicas(options, [&](size_t replica, const PlanOptions&, const StepInfo& step) {
      return compiled.plans[replica].run(ready.inputs[replica], step);
    });
  std::optional<ParameterClient::Source> source;  // a per-worker value is in no lane
  if (ready.lane_sequence > 0)
    source = ParameterClient::Source{parameter_server::lane_name(ready.lane), attach_.incarnation,
                                     ready.lane_sequence};
  servers_->mark_pushes(source);
  ReplicaGroup group;
  group.num_replicas = num_replicas();
  return compiled.server_function->run(
      ready.inputs, [&](const Function& function, const PerReplica<std::vector<Tensor>>& inputs) {
        return on_replicas(options,
                           [&](size_t replica, const PlanOptions& plan, const StepInfo& step) {
                             return function.run(inputs[replica], plan, step, group);
                           });
      });
}

// --- Closures

void ClosureRunner::execute(Run run) {
  answer(run.id, [&]() -> std::optional<std::vector<Tensor>> {
    ReadyClosure ready = gather(run, resources_, num_replicas());
    if (CompiledFunction* compiled = find_due(ready, !unknown_.empty()))
      return flattened(call(*compiled, ready));
    if (unknown_.size() >= kMaxUnknown)
      fail(Code::kResourceExhausted, kMaxUnknown, " closures wait for their functions");
    if (functions_.find(ready.function, ready.signature) == nullptr) ask_for(ready);
    unknown_.push_back(std::move(ready));
    return std::nullopt;
  });
}

void ClosureRunner::ask_for(const ReadyClosure& ready) {
  const bool asked = std::ranges::any_of(unknown_, [&](const ReadyClosure& other) {
    return other.function == ready.function && other.signature == ready.signature;
  });
  if (asked) return;
  const std::lock_guard lock(mutex_);
  outgoing_.missing.push_back({ready.function, ready.signature});
}

void ClosureRunner::execute(Cancel) {
  const std::lock_guard lock(mutex_);
  for (const ReadyClosure& ready : unknown_)
    outgoing_.results.push_back({.id = ready.id, .error = {}, .values = {}, .returned = true});
  unknown_.clear();
}

void ClosureRunner::execute(Forget) {
  not_forgotten_.reset();
  try {
    resources_.forget_sums();
  } catch (...) {
    not_forgotten_ = present_error();
  }
}

// --- Resources

WorkerResources::What ClosureRunner::make(const Create& create) {
  if (const auto* variable = std::get_if<CreateVariable>(&create.what))
    return resources_.make(*variable);
  if (const auto* iterator = std::get_if<CreateIterator>(&create.what))
    return resources_.make(*iterator);
  const ReadyClosure ready = gather(std::get<Run>(create.what), resources_, num_replicas());
  CompiledFunction* compiled = functions_.find(ready.function, ready.signature);
  if (compiled == nullptr) invalid("the function of a value is not defined");
  PerReplica<Tensor> values(devices_.size());
  const auto results = call(*compiled, ready);
  for (size_t r = 0; r < values.size(); ++r) {
    if (results[r].size() != 1)
      invalid("the function of a per-worker value returns one value, this one ", results[r].size());
    values[r] = results[r][0];
  }
  return values;
}

void ClosureRunner::execute(Create create) {
  std::string name = str("the per-worker value of \"", create.function_name, '"'), shown = name;
  KeptApart kept = KeptApart::kState;
  if (const auto* variable = std::get_if<CreateVariable>(&create.what)) {
    name = variable->name;
    shown = str("variable \"", own_name(name), '"');
    kept = variable->kept;
  }
  if (const auto* iterator = std::get_if<CreateIterator>(&create.what))
    name = shown = iterator->dataset;
  std::optional<WorkerResources::What> what;
  try {
    what = make(create);
  } catch (...) {
    what = present_error().with_context(shown);
  }
  resources_.keep(create.resource, {name, std::move(*what), kept});
  num_resources_ = resources_.size();
}

void ClosureRunner::execute(Drop drop) {
  std::optional<WorkerResources::Kept> dropped = resources_.take(drop.resource);
  num_resources_ = resources_.size();
  if (!dropped || !std::holds_alternative<data::Iterator>(dropped->what)) return;
  // It ends when the function of its dataset returns, and others need not wait for that.
  ends_passes_.run([pass = std::make_shared<WorkerResources::Kept>(std::move(*dropped))] {});
}

void ClosureRunner::execute(Fetch fetch) {
  answer(fetch.id, [&]() -> std::optional<std::vector<Tensor>> {
    const WorkerResources::What& what = resources_.get(fetch.resource).what;
    if (const auto* values = std::get_if<PerReplica<Tensor>>(&what)) return values->values();
    if (const auto* variable = std::get_if<std::shared_ptr<Variable>>(&what))
      return std::vector{(*variable)->value()};
    invalid("a dataset cannot be fetched, only its batches be computed with");
  });
}

}  // namespace cohort::coordinator
