#include "strategies/coordinator/closure_queue.h"

#include <algorithm>
#include <utility>

#include "strategies/coordinator/waiting.h"

namespace cohort::coordinator {
namespace {

constexpr ClosureQueue::Time kNever = ClosureQueue::Time::max();

}  // namespace

void ClosureQueue::put(ClosurePtr closure) {
  check_interrupted();  // of a loop that schedules and never waits, too
  std::unique_lock lock(mutex_);
  wait_to_put(lock);
  raise(lock, kNever);
  waiting_.push_back(std::move(closure));
  if (idle_ > 0) work_.notify_one();
}

void ClosureQueue::wait_to_put(std::unique_lock<std::mutex>& lock) {
  const auto ready = [&] { return error_ || (!is_full() && joining_ == 0); };
  if (ready()) return;
  struct Putting {
    Counts& counts;
    explicit Putting(Counts& c) : counts(c) { ++counts.putting; }
    ~Putting() { --counts.putting; }
  } putting(counts_);
  const Time begin = std::chrono::steady_clock::now();
  if (wait_interruptibly(lock, changed_, deadline_after(options_.put_timeout), ready)) return;
  const std::string why = is_full() ? str("the queue is full (", options_.capacity, ")")
                                    : "another thread waits in join()";
  overdue(lock, begin, why + ", and nothing has been scheduled: ");
}

void ClosureQueue::join(Timeout timeout) {
  const Time begin = std::chrono::steady_clock::now(), end = deadline_after(timeout);
  std::unique_lock lock(mutex_);
  struct Joining {
    ClosureQueue& queue;
    explicit Joining(ClosureQueue& q) : queue(q) { ++queue.joining_; }
    ~Joining() {
      --queue.joining_;
      queue.changed_.notify_all();
    }
  } joining(*this);
  const bool ready = wait_interruptibly(lock, changed_, end, [&] { return error_ || is_done(); });
  raise(lock, end);
  if (!ready) overdue(lock, begin);
}

bool ClosureQueue::done() {
  check_interrupted();  // of a loop that asks until it is
  std::unique_lock lock(mutex_);
  raise(lock, kNever);
  return is_done();
}

void ClosureQueue::raise(std::unique_lock<std::mutex>& lock, Time end) {
  if (!error_) return;
  const Time begin = std::chrono::steady_clock::now();
  end = std::min(end, deadline_after(options_.stop_timeout));
  // Where another thread raises this error, wait until nothing of it is left.
  if (!wait_interruptibly(lock, changed_, end, [&] { return !raising_; })) overdue(lock, begin);
  if (!error_) return;
  struct Raising {
    ClosureQueue& queue;
    explicit Raising(ClosureQueue& q) : queue(q) { queue.raising_ = true; }
    ~Raising() {
      queue.raising_ = false;
      queue.changed_.notify_all();
    }
  } raising(*this);
  lock.unlock();
  options_.cancel();
  lock.lock();
  if (!wait_interruptibly(lock, changed_, end, [&] { return in_flight_ == 0; }))
    overdue(lock, begin);
  while (!waiting_.empty()) {
    cancel(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  const Error error = *std::exchange(error_, std::nullopt);
  throw error;
}

void ClosureQueue::overdue(std::unique_lock<std::mutex>& lock, Time begin, const std::string& why) {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  const size_t queued = waiting_.size(), in_flight = in_flight_;
  const std::string despite =
      error_ ? str(", and do not stop for the error of another (", error_->message(), ')') : "";
  lock.unlock();
  const std::string by = options_.who();
  lock.lock();
  cohort::fail(Code::kDeadlineExceeded, why, "after ", waited.count(), " ms ", queued,
               " closures are queued and ", in_flight, " in flight", despite, "; ", by);
}

void ClosureQueue::cancel(ClosurePtr closure) {
  ++counts_.cancelled;
  if (closure->lane_sequence > 0) free_lanes_.push_back(closure->lane);
  closure->result->set(Error(
      Code::kCancelled, str("not executed, or in part, because ",
                            error_ ? str("another closure has failed (", error_->message(), ')')
                                   : "the coordinator has ended",
                            ": schedule it again")));
}

void ClosureQueue::give_lane(Closure& closure) {
  if (closure.lane_sequence > 0) return;
  if (free_lanes_.empty()) {
    free_lanes_.push_back(lane_sequences_.size());
    lane_sequences_.push_back(0);
  }
  closure.lane = free_lanes_.back();
  free_lanes_.pop_back();
  closure.lane_sequence = ++lane_sequences_[closure.lane];
}

std::vector<ClosurePtr> ClosureQueue::take(size_t most, size_t bytes, Time until,
                                           const std::atomic<bool>& wanted_elsewhere) {
  std::vector<ClosurePtr> taken;
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return stopped_ || wanted_elsewhere || (!waiting_.empty() && !error_); };
  ++idle_;
  work_.wait_until(lock, until, ready);
  const auto others = static_cast<size_t>(--idle_);
  if (stopped_ || error_ || waiting_.empty()) return taken;
  const size_t share = (waiting_.size() + others) / (others + 1);
  const bool was_full = is_full();
  for (size_t n = std::min(most, share); n > 0; --n) {
    Closure& next = *waiting_.front();
    if (!taken.empty() && next.bytes > bytes) break;
    bytes -= std::min(bytes, next.bytes);
    give_lane(next);
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  in_flight_ += taken.size();
  if (others > 0 && !waiting_.empty()) work_.notify_one();
  if (was_full) changed_.notify_all();
  return taken;
}

void ClosureQueue::wake() {
  const std::lock_guard lock(mutex_);
  work_.notify_all();
}

void ClosureQueue::landed(size_t count) {
  COHORT_CHECK(in_flight_ >= count);
  in_flight_ -= count;
  if (in_flight_ == 0) changed_.notify_all();
}

void ClosureQueue::finish(std::vector<ClosurePtr> closures) {
  const std::lock_guard lock(mutex_);
  for (const ClosurePtr& closure : closures) free_lanes_.push_back(closure->lane);
  counts_.executed += closures.size();
  landed(closures.size());
}

void ClosureQueue::keep(const Error& error) {
  if (!error_) error_ = error;
  changed_.notify_all();
}

void ClosureQueue::fail(ClosurePtr closure, const Error& error) {
  closure->result->set(error);
  const std::lock_guard lock(mutex_);
  free_lanes_.push_back(closure->lane);
  ++counts_.failed;
  landed(1);
  keep(error);
}

void ClosureQueue::put_back(std::vector<ClosurePtr> closures, PutBack why) {
  const std::lock_guard lock(mutex_);
  landed(closures.size());
  for (auto closure = closures.rbegin(); closure != closures.rend(); ++closure) {
    if (error_ || stopped_) {
      cancel(std::move(*closure));
      continue;
    }
    if (why == PutBack::kLost && ++(*closure)->attempts >= options_.max_attempts) {
      const Error error(
          Code::kAborted,
          str("closure ", (*closure)->number, " of \"", (*closure)->function->name(),
              "\" was in flight on ", (*closure)->attempts,
              " workers when they were lost: it is given up, for it may be what ends them"));
      free_lanes_.push_back((*closure)->lane);
      ++counts_.failed;
      (*closure)->result->set(error);
      keep(error);
      continue;
    }
    if (why == PutBack::kLost) ++counts_.retried;
    waiting_.push_front(std::move(*closure));
  }
  work_.notify_all();
}

void ClosureQueue::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  keep(error);
}

ClosureQueue::Counts ClosureQueue::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.queued = waiting_.size();
  counts.in_flight = in_flight_;
  return counts;
}

void ClosureQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  while (!waiting_.empty()) {
    cancel(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  work_.notify_all();
}

}  // namespace cohort::coordinator
