#include "strategies/coordinator/remote_worker.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "core/base/program.h"
#include "core/base/start_threads.h"
#include "strategies/coordinator/cut_messages.h"
#include "strategies/coordinator/waiting.h"
#include "strategies/parameter_server/link.h"

namespace cohort::coordinator {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAttachTime(5000);
constexpr milliseconds kFirstPause(20), kLongestPause(1000);
constexpr milliseconds kIdleLook(200), kBusyLook(20);
// More arguments than the network brings while a worker executes what it has.
constexpr size_t kMaxWindowBytes = size_t{64} << 20;

double seconds(RemoteWorker::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
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
      briefing_(context.resources, context.queue, index, task_),
      thread_(start_thread([this] { run(); })) {}

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

bool RemoteWorker::wait_until_asked(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  while (!was_asked_to_end_ && (attached_ || !interrupted()) && Clock::now() < deadline)
    changed_.wait_until(lock, std::min(deadline, Clock::now() + kInterruptInterval));
  return was_asked_to_end_;
}

void RemoteWorker::wait_for_end(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return !attached_; });
}

std::future<Result> RemoteWorker::fetch(uint64_t resource) {
  const std::lock_guard lock(mutex_);
  auto future = questions_.fetch(++last_id_, resource);
  interrupt();
  return future;
}

std::future<Status> RemoteWorker::ask_status() {
  const std::lock_guard lock(mutex_);
  auto future = questions_.ask_status(++last_id_);
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

std::string RemoteWorker::name() const { return str(task_, " (", address_.text(), ")"); }

std::string RemoteWorker::describe() const {
  const std::lock_guard lock(mutex_);
  if (attached_) return str(name(), ": ", in_flight_.describe());
  return str(name(), ": away for ", static_cast<int>(seconds(Clock::now() - lost_since_)), " s, ",
             reason_);
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
  const bool asks = !message->missing.empty();
  {
    const std::lock_guard lock(mutex_);
    // Before the results: of what has been cancelled since, these say so, and whoever has them
    // finds the pushes counted.
    take_missing(std::move(message->missing));
    pushes_.add(message->pushes);
  }
  if (!message->results.empty()) take_results(std::move(message->results), message->busy_us);
  const std::lock_guard lock(mutex_);
  if (message->attached) {
    max_bytes_ = message->attached->max_bytes;
    attached_ = true;
  }
  if (message->status) questions_.answer(*message->status);
  if (asks) return interrupt();
  changed_.notify_all();
}

void RemoteWorker::take_missing(std::vector<Missing> missing) {
  for (Missing& one : missing) {
    auto function = in_flight_.ask(one.function);
    if (function == nullptr)
      invalid("it asks for function ", one.function, ", which no closure that it was given needs");
    wanted_.push_back({std::move(function), std::move(one.signature)});
  }
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
  LandedResults landed(results.size());
  std::exception_ptr wrong;  // ends the call once the other results have gone their ways
  const auto attempt = [&](const auto& take) {
    try {
      take();
    } catch (...) {
      wrong = std::current_exception();
    }
  };
  {
    const std::lock_guard lock(mutex_);
    for (Result& result : results) attempt([&] { take_result(std::move(result), landed); });
    attempt([&] { landed.settle(held_); });
    if (landed.exceeds) landed.exceeds = !std::exchange(has_exceeded_, true);
    if (in_flight_.empty() || !landed.returned.empty()) recalled_ = false;
    keeps_ |= landed.keeps;
    last_progress_ = Clock::now();
    if (landed.executed() > 0) {
      window_.learn(landed.executed(), busy_us);
      busy_seconds_ += 1e-6 * static_cast<double>(busy_us);
    }
    changed_.notify_all();
  }
  hand_on(std::move(landed));
  if (wrong) std::rethrow_exception(wrong);
}

void RemoteWorker::take_result(Result result, LandedResults& landed) {
  if (questions_.answer(result)) return;
  const Closure* const found = in_flight_.find(result.id);
  if (found == nullptr)
    invalid("it has sent a result with number ", result.id, ", and was not given such a closure");
  if (const auto count = unknown_count(result, *found))
    invalid("it has sent a result of \"", found->function->name(), "\" with a count ", *count,
            ", which that does not have");
  landed.take(std::move(result), in_flight_, held_);
}

void RemoteWorker::hand_on(LandedResults landed) {
  ClosureQueue& queue = context_.queue;
  if (!landed.finished.empty()) queue.finish(landed.finished);
  if (landed.held > 0) queue.hold(landed.held, landed.first);
  if (!landed.settled.empty()) queue.settle(landed.settled);
  for (auto& [closure, error] : landed.failed) {
    const std::string what = str('"', closure->function->name(), "\" on ", task_);
    queue.fail(std::move(closure), error.with_context(what));
  }
  if (!landed.returned.empty())
    queue.put_back(std::move(landed.returned), ClosureQueue::PutBack::kReturned);
  if (landed.unsent > 0)
    context_.notice(str("coordinator: a call that would have sent them has failed on ", task_,
                        ": gradients of ", landed.unsent,
                        " executed calls may not have been sent"));
  if (landed.exceeds)
    context_.notice(str("coordinator: more than ", HeldCalls::kMost, " executed calls have waited ",
                        "in sums of ", task_,
                        ": where that is lost, or begins new sums, not all are executed again"));
}

void RemoteWorker::drained() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void RemoteWorker::closed(const Error& reason) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  try {
    reason_ = reason.message();
  } catch (const std::bad_alloc&) {  // it has ended, for whatever reason
    reason_.clear();
  }
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
    wants_shut_down_ = is_to_end_;
    wanted_.clear();
    keeps_ = recalled_ = false;
    unit_ = 0;
    window_.narrow();
  }
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
                                                 .compression = context_.compression,
                                                 .max_bytes = context_.max_message_bytes},
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
  if (!in_flight_.empty() && in_flight_.bytes() >= window_bytes()) return 0;
  return window_.closures() - std::min(window_.closures(), in_flight_.size());
}

size_t RemoteWorker::window_bytes() const { return std::min(kMaxWindowBytes, max_bytes_ / 2); }

void RemoteWorker::serve() {
  context_.notice(str("coordinator: ", name(), " is there"));
  size_t max_bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    max_bytes = max_bytes_;
  }
  briefing_.begin(max_bytes);
  for (;;) {
    ToWorker message = urgent(), runs;
    const auto allowed = allowance(message.commands.empty());
    if (!allowed) return;
    if (allowed->closures > 0) {
      // Often while something is in flight: when that has ended, it may take a unit.
      const auto until = Clock::now() + (allowed->taker.is_idle ? kIdleLook : kBusyLook);
      auto closures =
          context_.queue.take(allowed->closures, allowed->bytes, until, events_, allowed->taker);
      briefing_.add_news(message);
      hand_out(fitting(std::move(closures), max_bytes), message, runs);
    }
    if (should_recall()) runs.commands.push_back(Recall{});
    // Apart: each by itself may have as many bytes as the worker takes in a message.
    for (ToWorker* part : {&message, &runs})
      for (const ToWorker& piece : cut_commands(std::move(part->commands), max_bytes))
        stream_->send(encode(piece));
  }
}

std::optional<RemoteWorker::Allowance> RemoteWorker::allowance(bool may_wait) {
  std::unique_lock lock(mutex_);
  if (closed_ || stopping_) return std::nullopt;
  if (!may_wait) return Allowance{};
  auto until = Clock::now() + (in_flight_.size() > 1 ? kBusyLook : kIdleLook);
  if (Clock::now() < begins_) until = std::min(until, begins_);
  if (room() == 0) changed_.wait_until(lock, until, [&] { return events_ || room() > 0; });
  return Allowance{
      .closures = room(),
      .bytes = window_bytes() - std::min(window_bytes(), in_flight_.bytes()),
      .taker = {.worker = index_, .is_idle = in_flight_.empty(), .is_mixed = held_.is_mixed()}};
}

ToWorker RemoteWorker::urgent() {
  ToWorker message, questions;
  events_ = false;
  std::vector<Wanted> wanted;
  {
    const std::lock_guard lock(mutex_);
    wanted.swap(wanted_);
    questions_.add_new(questions);  // before the news, which then have all that these ask for
  }
  briefing_.add_wanted(std::move(wanted), message);
  briefing_.add_news(message);
  std::ranges::move(questions.commands, std::back_inserter(message.commands));
  const std::lock_guard lock(mutex_);
  if (std::exchange(wants_cancel_, false)) message.commands.push_back(Cancel{});
  if (std::exchange(wants_shut_down_, false)) {
    message.commands.push_back(ShutDown{});
    was_asked_to_end_ = true;
    changed_.notify_all();
  }
  return message;
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
    if (closure->definition) briefing_.add_definition(closure->definition, definitions);
  forget_sums(closures, runs);
  const std::lock_guard lock(mutex_);
  // Where there are closures again, the error that was the reason is over; but not where they were
  // taken before it.
  if (!closures.empty()) wants_cancel_ = context_.queue.is_cancelling();
  if (in_flight_.empty()) last_progress_ = now;
  for (ClosurePtr& closure : closures) {
    Run run = as_run(*closure);
    in_flight_.add(run.id, std::move(closure), now);
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
    else if (!held_.is_dirty() || closures.empty() || !in_flight_.empty())
      return;
    is_lost = held_.is_mixed();
    displaced = held_.take_all();
  }
  runs.commands.push_back(Forget{});
  if (!is_lost) return context_.queue.execute_again(std::move(displaced));
  context_.notice(str("coordinator: ", name(), " begins new sums; gradients of ", displaced.size(),
                      " closures, of which some had been sent, are gone"));
  context_.queue.settle(displaced);
}

bool RemoteWorker::should_recall() {
  const std::lock_guard lock(mutex_);
  if (in_flight_.size() < 2 || recalled_ || Clock::now() - last_progress_ < kBusyLook ||
      !context_.queue.is_anybody_idle())
    return false;
  // What is of a unit may have been executed before, after those that it follows here.
  if (in_flight_.any_of_unit()) return false;
  recalled_ = true;
  window_.narrow();
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
    for (ClosurePtr& closure : in_flight_.take_all())
      (closure->function->sums_on_workers() ? summing : lost).push_back(std::move(closure));
    is_to_end = is_to_end_;
    is_unit = held_.is_mixed();
    held = held_.take_all();
    line = detach(lost.size() + summing.size(), held.size());
  }
  if (is_to_end) context_.queue.settle(std::exchange(held, {}));
  // First: while others are in flight, nobody takes all for done.
  context_.queue.lose(index_, std::move(held), std::move(summing), is_unit);
  std::ranges::sort(lost, {}, [](const ClosurePtr& closure) { return closure->number; });
  if (!lost.empty()) context_.queue.put_back(std::move(lost), ClosureQueue::PutBack::kLost);
  if (!line.empty()) context_.notice(line);
}

std::string RemoteWorker::detach(size_t in_flight, size_t held) {
  const bool was_attached = std::exchange(attached_, false);
  questions_.lose(Error(Code::kUnavailable, str(task_, " is not there: ", reason_), task_));
  wants_cancel_ = false;
  changed_.notify_all();
  if (was_attached) lost_since_ = Clock::now();
  if (!was_attached || stopping_ || is_to_end_) return "";
  ++failures_;
  return str("coordinator: ", name(), " is lost: ", reason_, "; ", in_flight,
             " closures go to others",
             held == 0 ? "" : str(", and ", held, " whose gradients it had not sent"),
             keeps_ ? "; what its optimizers kept there begins anew" : "");
}

}  // namespace cohort::coordinator
