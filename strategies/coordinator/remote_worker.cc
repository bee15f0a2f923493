#include "strategies/coordinator/remote_worker.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "strategies/parameter_server/link.h"

namespace cohort::coordinator {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAttachTime(5000);
constexpr milliseconds kFirstPause(20), kLongestPause(1000);
constexpr milliseconds kIdleLook(200), kBusyLook(20);
// A worker is given work for about this long, so that it does not wait for the next closure, and
// others are not kept from what waits for it.
constexpr double kWindowUs = 4000;
constexpr size_t kMaxWindow = 1024;
// More arguments than the network brings in that time.
constexpr size_t kMaxWindowBytes = size_t{64} << 20;
// Results so far weigh this much against new ones.
constexpr double kMemory = 0.8;

double seconds(RemoteWorker::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Returns how many.
size_t append(std::vector<ClosurePtr> more, std::vector<ClosurePtr>& all) {
  std::ranges::move(more, std::back_inserter(all));
  return more.size();
}

// A count that a result has and its function has not.
std::optional<uint64_t> unknown_count(const Result& result, const Closure& closure) {
  for (const auto& [count, waits] : result.counts)
    if (!closure.function->is_count(count)) return count;
  return std::nullopt;
}

}  // namespace

RemoteWorker::RemoteWorker(WorkerContext& context, int index, std::string task,
                           const Address& address)
    : context_(context),
      index_(index),
      task_(std::move(task)),
      address_(address),
      begins_(Clock::now() + std::min(index * context.start_delay, context.max_start_delay)),
      lost_since_(Clock::now()),
      thread_([this] { run(); }) {}

RemoteWorker::~RemoteWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    interrupt();
  }
  thread_.join();
}

// --- From other threads

void RemoteWorker::interrupt() {
  events_ = true;
  changed_.notify_all();
  context_.queue.wake();
}

void RemoteWorker::cancel() {
  const std::lock_guard lock(mutex_);
  wants_cancel_ = !in_flight_.empty();
  interrupt();
}

void RemoteWorker::shut_down() {
  const std::lock_guard lock(mutex_);
  wants_shut_down_ = is_to_end_ = true;
  interrupt();
}

void RemoteWorker::wait_for_end(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return !attached_; });
}

template <typename Promises>
static void lose_all(Promises& promises, const Error& error) {
  for (auto& [id, promise] : promises) promise.set_exception(std::make_exception_ptr(error));
  promises.clear();
}

std::future<Result> RemoteWorker::fetch(uint64_t resource) {
  std::promise<Result> promise;
  auto future = promise.get_future();
  const std::lock_guard lock(mutex_);
  const uint64_t id = ++last_id_;
  fetches_.emplace(id, std::move(promise));
  questions_.push_back(Fetch{id, resource});
  interrupt();
  return future;
}

std::future<Status> RemoteWorker::ask_status() {
  std::promise<Status> promise;
  auto future = promise.get_future();
  const std::lock_guard lock(mutex_);
  const uint64_t id = ++last_id_;
  statuses_.emplace(id, std::move(promise));
  questions_.push_back(AskStatus{id});
  interrupt();
  return future;
}

bool RemoteWorker::is_attached() const {
  const std::lock_guard lock(mutex_);
  return attached_;
}

std::optional<RemoteWorker::Clock::time_point> RemoteWorker::lost_since() const {
  const std::lock_guard lock(mutex_);
  if (attached_) return std::nullopt;
  return lost_since_;
}

std::string RemoteWorker::describe() const {
  const std::lock_guard lock(mutex_);
  const std::string who = str(task_, " (", address_.text(), ")");
  if (!attached_)
    return str(who, ": away for ", static_cast<int>(seconds(Clock::now() - lost_since_)), " s, ",
               reason_);
  if (in_flight_.empty()) return who + ": idle";
  const auto oldest =
      std::ranges::min_element(in_flight_, {}, [](const auto& entry) { return entry.second.sent; });
  return str(who, ": ", in_flight_.size(), " in flight, the oldest, \"",
             oldest->second.closure->function->name(), "\", for ",
             static_cast<int>(seconds(Clock::now() - oldest->second.sent)), " s");
}

uint64_t RemoteWorker::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

double RemoteWorker::busy_seconds() const {
  const std::lock_guard lock(mutex_);
  return busy_seconds_;
}

PushCounts RemoteWorker::take_pushes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(pushes_, {});
}

// --- From the network

void RemoteWorker::received(const parameter_server::MessageReader& part) {
  std::optional<FromWorker> message = assembler_->take(part);
  if (!message) return;
  if (message->attached) require_replicas(message->attached->replicas);
  {
    // Before the results: whoever has these finds it counted.
    const std::lock_guard lock(mutex_);
    pushes_.add(message->pushes);
  }
  if (!message->results.empty()) take_results(std::move(message->results), message->busy_us);
  const std::lock_guard lock(mutex_);
  if (message->attached) {
    max_bytes_ = message->attached->max_bytes;
    attached_ = true;
  }
  if (message->status) {
    const auto asked = statuses_.find(message->status->id);
    if (asked != statuses_.end()) {
      asked->second.set_value(*message->status);
      statuses_.erase(asked);
    }
  }
  if (!message->missing.empty()) {
    std::ranges::move(message->missing, std::back_inserter(missing_));
    return interrupt();
  }
  changed_.notify_all();
}

void RemoteWorker::require_replicas(int replicas) {
  if (replicas == context_.replicas) return;
  const Error error(
      Code::kFailedPrecondition,
      str(task_, " executes functions on ", replicas,
          " devices (WorkerServerOptions::devices), and they are traced for ", context_.replicas,
          ": give the coordinator's strategy as many (ParameterServerStrategy::Options::devices)"),
      task_);
  context_.queue.fail(error);
  throw error;
}

void RemoteWorker::take_results(std::vector<Result> results, uint64_t busy_us) {
  std::vector<ClosurePtr> finished, returned, settled;
  size_t num_held = 0, first = 0;
  std::vector<std::pair<ClosurePtr, Error>> failed;
  std::string refused;  // an error once the others have gone their ways
  size_t num_unsent = 0;
  bool exceeds = false;
  {
    const std::lock_guard lock(mutex_);
    size_t executed = 0;
    for (Result& result : results) {
      if (const auto asked = fetches_.find(result.id); asked != fetches_.end()) {
        asked->second.set_value(std::move(result));
        fetches_.erase(asked);
        continue;
      }
      const auto entry = in_flight_.find(result.id);
      if (entry == in_flight_.end()) {
        refused = str("with number ", result.id, ", and was not given such a closure");
        continue;
      }
      if (const auto count = unknown_count(result, *entry->second.closure)) {
        refused = str("of \"", entry->second.closure->function->name(), "\" with a count ", *count,
                      ", which that does not have");
        continue;
      }
      ClosurePtr closure = std::move(entry->second.closure);
      in_flight_.erase(entry);
      bytes_in_flight_ -= closure->bytes;
      const bool breaks_off = !result.counts.empty() && (result.returned || result.error);
      if (breaks_off) append(held_.take_settled(), settled);
      held_.note(result.counts);
      // It has completed sums, and has perhaps not sent them.
      if (breaks_off) num_unsent += append(held_.take_settled(), settled);
      dirty_ |= breaks_off;
      if (result.returned) {
        recalled_ = false;
        returned.push_back(std::move(closure));
        continue;
      }
      ++executed;
      keeps_ |= closure->function->keeps_on_workers();
      if (result.error) {
        failed.emplace_back(std::move(closure), *result.error);
        continue;
      }
      closure->result->set(std::move(result.values));
      if (result.counts.empty()) {
        finished.push_back(std::move(closure));
      } else {
        ++num_held;
        if (!std::exchange(closure->executed, true)) ++first;
        held_.add(std::move(closure), std::move(result.counts));
      }
    }
    if (in_flight_.empty()) recalled_ = false;
    append(held_.take_settled(), settled);
    if (append(held_.take_excess(), settled) > 0) exceeds = !std::exchange(has_exceeded_, true);
    last_progress_ = Clock::now();
    if (executed > 0) {
      const double us = static_cast<double>(busy_us) / static_cast<double>(executed);
      us_per_closure_ = us_per_closure_ > 0 ? kMemory * us_per_closure_ + (1 - kMemory) * us : us;
      window_ = std::clamp(static_cast<size_t>(kWindowUs / std::max(us_per_closure_, 1.0)),
                           size_t{1}, kMaxWindow);
      busy_seconds_ += 1e-6 * static_cast<double>(busy_us);
    }
    changed_.notify_all();
  }
  if (!finished.empty()) context_.queue.finish(std::move(finished));
  if (num_held > 0) context_.queue.hold(num_held, first);
  if (!settled.empty()) context_.queue.settle(std::move(settled));
  for (auto& [closure, error] : failed) {
    const std::string what = str('"', closure->function->name(), "\" on ", task_);
    context_.queue.fail(std::move(closure), error.with_context(what));
  }
  if (!returned.empty())
    context_.queue.put_back(std::move(returned), ClosureQueue::PutBack::kReturned);
  if (num_unsent > 0)
    context_.notice(str("coordinator: a call that would have sent them has failed on ", task_,
                        ": gradients of ", num_unsent, " executed calls may not have been sent"));
  if (exceeds)
    context_.notice(str("coordinator: more than ", HeldCalls::kMost, " executed calls have waited ",
                        "in sums of ", task_,
                        ": where that is lost, or begins new sums, not all are executed again"));
  if (!refused.empty()) invalid("it has sent a result ", refused);
}

void RemoteWorker::drained() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void RemoteWorker::closed(const Error& reason) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  reason_ = reason.message();
  interrupt();
}

// --- The thread

void RemoteWorker::run() {
  milliseconds pause_time = kFirstPause;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    if (attach()) {
      pause_time = kFirstPause;
      serve();
    }
    lose();
    pause(pause_time);
    pause_time = std::min(2 * pause_time, kLongestPause);
  }
}

void RemoteWorker::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return stopping_; });
}

bool RemoteWorker::attach() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    is_to_end_ = wants_shut_down_;
    missing_.clear();
    keeps_ = recalled_ = dirty_ = false;
    unit_ = 0;
    window_ = 1;
  }
  defined_.clear();
  last_resource_ = 0;
  try {
    assembler_ =
        std::make_unique<Assembler<FromWorker>>(decode_from_worker, context_.max_message_bytes);
    stream_ = std::make_unique<ClientStream>(
        parameter_server::open_channel(address_, context_.security), *this);
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    reason_ = error.message();
    return false;
  }
  stream_->send(encode(ToWorker{.attach = Attach{.job_id = context_.job_id,
                                                 .task = context_.task,
                                                 .incarnation = context_.incarnation,
                                                 .worker = task_,
                                                 .worker_index = index_,
                                                 .num_workers = context_.num_workers,
                                                 .servers = context_.servers,
                                                 .compression = context_.compression},
                                .commands = {}}));
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kAttachTime, [&] { return attached_ || closed_ || stopping_; });
  if (!attached_ && !closed_) reason_ = str("no answer within ", kAttachTime.count(), " ms");
  last_progress_ = Clock::now();
  return attached_;
}

size_t RemoteWorker::room() const {
  // What is scheduled while a message is on its way goes into the next one.
  if (!stream_->is_drained() || recalled_ || Clock::now() < begins_) return 0;
  if (!in_flight_.empty() && bytes_in_flight_ >= window_bytes()) return 0;
  return window_ - std::min(window_, in_flight_.size());
}

size_t RemoteWorker::window_bytes() const { return std::min(kMaxWindowBytes, max_bytes_ / 2); }

void RemoteWorker::serve() {
  context_.notice(str("coordinator: ", task_, " (", address_.text(), ") is there"));
  for (;;) {
    ToWorker message = urgent(), runs;
    size_t most = 0, bytes = 0, max_bytes = 0;
    ClosureQueue::Taker taker{.worker = index_};
    {
      std::unique_lock lock(mutex_);
      if (closed_ || stopping_) return;
      if (message.commands.empty()) {
        auto until = Clock::now() + (in_flight_.size() > 1 ? kBusyLook : kIdleLook);
        if (Clock::now() < begins_) until = std::min(until, begins_);
        if (room() == 0) changed_.wait_until(lock, until, [&] { return events_ || room() > 0; });
        most = room();
        bytes = window_bytes() - std::min(window_bytes(), bytes_in_flight_);
        max_bytes = max_bytes_;
        taker.is_idle = in_flight_.empty();
        taker.is_mixed = held_.is_mixed();
      }
    }
    if (most > 0) {
      // Often while something is in flight: when that has ended, it may take a unit.
      auto closures = context_.queue.take(
          most, bytes, Clock::now() + (taker.is_idle ? kIdleLook : kBusyLook), events_, taker);
      add_news(message);
      hand_out(fitting(std::move(closures), max_bytes), message, runs);
    }
    if (should_recall()) runs.commands.push_back(Recall{});
    // Apart: each by itself may have as many bytes as the worker takes in a message.
    for (const ToWorker* part : {&message, &runs})
      if (!part->commands.empty()) stream_->send(encode(*part));
  }
}

ToWorker RemoteWorker::urgent() {
  ToWorker message;
  events_ = false;
  add_missing(message);
  add_news(message);
  const std::lock_guard lock(mutex_);
  std::ranges::move(questions_, std::back_inserter(message.commands));
  questions_.clear();
  if (std::exchange(wants_cancel_, false)) message.commands.push_back(Cancel{});
  if (std::exchange(wants_shut_down_, false)) message.commands.push_back(ShutDown{});
  return message;
}

void RemoteWorker::add_definition(const std::shared_ptr<const Definition>& definition,
                                  ToWorker& message) {
  if (!defined_.insert(definition.get()).second) return;
  message.commands.push_back(Define{.function = definition->function,
                                    .signature = definition->signature,
                                    .graphs = definition->graphs,
                                    .error = {},
                                    .server_variables = definition->server_variables,
                                    .precision = definition->precision});
}

void RemoteWorker::add_missing(ToWorker& message) {
  std::vector<Missing> missing;
  {
    const std::lock_guard lock(mutex_);
    missing.swap(missing_);
  }
  for (Missing& wanted : missing) {
    std::optional<Error> error;
    try {
      const auto family = context_.functions.find(wanted.function);
      if (family == nullptr) invalid("there is no function ", wanted.function);
      const auto definition = family->definition(wanted.signature);
      defined_.erase(definition.get());  // it asks, so it has lost it
      add_news(message);                 // which may be variables that it uses
      add_definition(definition, message);
      continue;
    } catch (const Error& thrown) {
      error = thrown;
    } catch (const std::exception& thrown) {  // the user's
      error = Error(Code::kUnknown, thrown.what());
    }
    message.commands.push_back(Define{.function = wanted.function,
                                      .signature = std::move(wanted.signature),
                                      .graphs = {},
                                      .error = error});
  }
}

void RemoteWorker::add_news(ToWorker& message) {
  const ResourceTable::News news = context_.resources.news(index_, last_resource_);
  for (const auto& spec : news.created) {
    if (spec->definition) add_definition(spec->definition, message);
    message.commands.push_back(spec->create);
    last_resource_ = spec->create.resource;
  }
  for (const uint64_t id : news.dropped) message.commands.push_back(Drop{id});
}

Run RemoteWorker::as_run(const Closure& closure) {
  return {.id = ++last_id_,
          .function = closure.function->id(),
          .arguments = closure.arguments,
          .seed = context_.seed,
          .number = closure.number,
          .lane = closure.lane,
          .lane_sequence = closure.lane_sequence};
}

std::vector<ClosurePtr> RemoteWorker::fitting(std::vector<ClosurePtr> closures, size_t max_bytes) {
  std::vector<ClosurePtr> fit;
  for (ClosurePtr& closure : closures) {
    if (closure->bytes <= max_bytes) {
      fit.push_back(std::move(closure));
      continue;
    }
    const Error error(Code::kResourceExhausted,
                      str('"', closure->function->name(), "\" is given tensors of ", closure->bytes,
                          " bytes, and ", task_, " takes ", max_bytes,
                          " at most (WorkerServerOptions::max_bytes)"),
                      task_);
    context_.queue.fail(std::move(closure), error);
  }
  return fit;
}

void RemoteWorker::hand_out(std::vector<ClosurePtr> closures, ToWorker& definitions,
                            ToWorker& runs) {
  const auto now = Clock::now();
  for (const ClosurePtr& closure : closures)
    if (closure->definition) add_definition(closure->definition, definitions);
  forget_sums(closures, runs);
  const std::lock_guard lock(mutex_);
  // Where there are closures again, the error that was the reason is over; but not where they were
  // taken before it.
  if (!closures.empty()) wants_cancel_ = context_.queue.is_cancelling();
  if (in_flight_.empty()) last_progress_ = now;
  for (ClosurePtr& closure : closures) {
    Run run = as_run(*closure);
    bytes_in_flight_ += closure->bytes;
    in_flight_.emplace(run.id, InFlight{std::move(closure), now});
    runs.commands.push_back(std::move(run));
  }
}

void RemoteWorker::forget_sums(const std::vector<ClosurePtr>& closures, ToWorker& runs) {
  std::vector<ClosurePtr> displaced;
  bool is_lost = false;
  {
    const std::lock_guard lock(mutex_);
    const auto begins = std::ranges::find_if(closures, [&](const ClosurePtr& closure) {
      return closure->unit != 0 && closure->unit != unit_;
    });
    if (begins != closures.end())
      unit_ = (*begins)->unit;
    else if (!dirty_ || closures.empty() || !in_flight_.empty())
      return;
    dirty_ = false;
    is_lost = held_.is_mixed();
    displaced = held_.take_all();
  }
  runs.commands.push_back(Forget{});
  if (!is_lost) return context_.queue.execute_again(std::move(displaced));
  context_.notice(str("coordinator: ", task_, " (", address_.text(),
                      ") begins new sums; gradients of ", displaced.size(),
                      " closures, of which some had been sent, are gone"));
  context_.queue.settle(std::move(displaced));
}

bool RemoteWorker::should_recall() {
  const std::lock_guard lock(mutex_);
  if (in_flight_.size() < 2 || recalled_ || Clock::now() - last_progress_ < kBusyLook ||
      !context_.queue.is_anybody_idle())
    return false;
  // What is of a unit may have been executed before, after those that it follows here.
  if (std::ranges::any_of(in_flight_,
                          [](const auto& entry) { return entry.second.closure->unit != 0; }))
    return false;
  recalled_ = true;
  window_ = 1;
  last_progress_ = Clock::now();
  return true;
}

void RemoteWorker::lose() {
  stream_.reset();  // the network calls no more
  std::vector<ClosurePtr> lost, summing, held;
  bool is_unit = false, is_to_end = false;
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    std::map<uint64_t, InFlight> in_order(std::make_move_iterator(in_flight_.begin()),
                                          std::make_move_iterator(in_flight_.end()));
    for (auto& [id, entry] : in_order)
      (entry.closure->function->sums_on_workers() ? summing : lost)
          .push_back(std::move(entry.closure));
    in_flight_.clear();
    bytes_in_flight_ = 0;
    is_to_end = is_to_end_;
    is_unit = held_.is_mixed();
    held = held_.take_all();
    if (std::exchange(attached_, false)) {
      lost_since_ = Clock::now();
      if (!stopping_ && !is_to_end_) {
        ++failures_;
        line =
            str("coordinator: ", task_, " (", address_.text(), ") is lost: ", reason_, "; ",
                lost.size() + summing.size(), " closures go to others",
                held.empty() ? "" : str(", and ", held.size(), " whose gradients it had not sent"),
                keeps_ ? "; what its optimizers kept there begins anew" : "");
      }
    }
    const Error error(Code::kUnavailable, str(task_, " is not there: ", reason_), task_);
    lose_all(fetches_, error);
    lose_all(statuses_, error);
    questions_.clear();
    wants_cancel_ = false;
    changed_.notify_all();
  }
  if (is_to_end) context_.queue.settle(std::exchange(held, {}));
  // First: while others are in flight, nobody takes all for done.
  context_.queue.lose(index_, std::move(held), std::move(summing), is_unit);
  std::ranges::sort(lost, {}, [](const ClosurePtr& closure) { return closure->number; });
  if (!lost.empty()) context_.queue.put_back(std::move(lost), ClosureQueue::PutBack::kLost);
  if (!line.empty()) context_.notice(line);
}

}  // namespace cohort::coordinator
