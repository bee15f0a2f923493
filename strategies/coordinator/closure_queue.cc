#include "strategies/coordinator/closure_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "strategies/coordinator/waiting.h"

namespace cohort::coordinator {
namespace {

constexpr ClosureQueue::Time kNever = ClosureQueue::Time::max();

// One more, for as long as it lives.
class Counted {
 public:
  explicit Counted(uint64_t& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  uint64_t& count_;
};

}  // namespace

void ClosureQueue::put(ClosurePtr closure) {
  check_interrupted();  // of a loop that schedules and never waits, too
  std::unique_lock lock(mutex_);
  // Where another thread has thrown the error, there need not be room yet.
  for (wait_to_put(lock); error_; wait_to_put(lock)) raise(lock, kNever);
  if (closed_) throw *closed_;
  waiting_.push_back(std::move(closure));
  if (idle_ > 0) offer();
}

void ClosureQueue::wait_to_put(std::unique_lock<std::mutex>& lock) {
  const auto ready = [&] { return error_ || closed_ || (!is_full() && joining_ == 0); };
  if (ready()) return;
  const Counted putting(counts_.putting);
  const Time begin = std::chrono::steady_clock::now();
  if (wait_interruptibly(lock, changed_, deadline_after(options_.put_timeout), ready)) return;
  const std::string why = is_full() ? str("the queue is full (", options_.capacity, ")")
                                    : "another thread waits in join()";
  overdue(lock, begin, why + ", and nothing has been scheduled: ");
}

void ClosureQueue::close(const Error& why) {
  const std::lock_guard lock(mutex_);
  closed_ = why;
  changed_.notify_all();
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
  const auto wait = [&] {
    const Counted joining(counts_.joining);
    return wait_interruptibly(lock, changed_, end, [&] { return error_ || is_done(); });
  };
  bool ready = wait();
  // Where another thread has thrown the error, something may be left that is executed again.
  for (; error_; ready = wait()) raise(lock, end);
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
  cancel_waiting();
  abandoned_ = false;
  const Error error = *std::exchange(error_, std::nullopt);
  work_.notify_all();  // for what has been executed before, and is to be again
  throw error;
}

void ClosureQueue::overdue(std::unique_lock<std::mutex>& lock, Time begin, const std::string& why) {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  const size_t queued = num_queued(), in_flight = in_flight_;
  const std::string despite =
      error_ ? str(", and do not stop for the error of another (", error_->message(), ')') : "";
  lock.unlock();
  const std::string by = options_.who();
  lock.lock();
  cohort::fail(Code::kDeadlineExceeded, why, "after ", waited.count(), " ms ", queued,
               " closures are queued and ", in_flight, " in flight", despite, "; ", by);
}

size_t ClosureQueue::num_queued() const {
  size_t count = waiting_.size();
  for (const auto& unit : units_) count += unit.size();
  for (const auto& [worker, rest] : of_worker_) count += rest.size();
  return count;
}

void ClosureQueue::cancel_waiting() {
  std::deque<ClosurePtr> all;
  const auto dissolve = [&](std::deque<ClosurePtr>& unit) {
    if (std::ranges::none_of(unit, [&](const ClosurePtr& one) { return is_cancelled(*one); }))
      return;
    std::ranges::move(unit, std::back_inserter(all));
    unit.clear();
  };
  for (auto& [worker, rest] : of_worker_) dissolve(rest);
  for (auto& unit : units_) dissolve(unit);
  std::erase_if(of_worker_, [](const auto& of_worker) { return of_worker.second.empty(); });
  std::erase_if(units_, [](const auto& unit) { return unit.empty(); });
  std::ranges::move(waiting_, std::back_inserter(all));
  waiting_.clear();
  for (ClosurePtr& closure : all)
    if (retry(closure, PutBack::kReturned)) waiting_.push_back(std::move(closure));
}

bool ClosureQueue::is_cancelled(const Closure& closure) const {
  return stopped_ || (error_ && (abandoned_ || !closure.executed));
}

void ClosureQueue::cancel(ClosurePtr closure) {
  if (!closure->executed) ++counts_.cancelled;
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
    lane_sequences_.push_back(0);
    // So that all may come back where there is no memory left.
    free_lanes_.reserve(lane_sequences_.capacity());
    free_lanes_.push_back(lane_sequences_.size() - 1);
  }
  closure.lane = free_lanes_.back();
  free_lanes_.pop_back();
  closure.lane_sequence = ++lane_sequences_[closure.lane];
}

std::deque<ClosurePtr>* ClosureQueue::source_of(const Taker& taker) {
  if (stopped_ || error_) return nullptr;
  if (const auto rest = of_worker_.find(taker.worker); rest != of_worker_.end())
    return &rest->second;
  const bool takes_unit = !units_.empty() && (!taker.is_mixed || waiting_.empty());
  if (takes_unit) return taker.is_idle ? &units_.front() : nullptr;
  return waiting_.empty() ? nullptr : &waiting_;
}

std::deque<ClosurePtr>* ClosureQueue::claim(int worker) {
  std::deque<ClosurePtr>& rest = of_worker_[worker];
  rest = std::move(units_.front());
  units_.pop_front();
  work_.notify_all();  // the others may go on
  return &rest;
}

std::vector<ClosurePtr> ClosureQueue::take(size_t most, size_t bytes, Time until,
                                           const std::atomic<bool>& wanted_elsewhere,
                                           const Taker& taker) {
  std::vector<ClosurePtr> taken;
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return wanted_elsewhere || source_of(taker) != nullptr; };
  ++idle_;
  work_.wait_until(lock, until, ready);
  const auto others = static_cast<size_t>(--idle_);
  std::deque<ClosurePtr>* source = source_of(taker);
  if (source == nullptr) return taken;
  if (!units_.empty() && source == &units_.front()) source = claim(taker.worker);
  const size_t share =
      source == &waiting_ ? (waiting_.size() + others) / (others + 1) : source->size();
  const bool was_full = is_full();
  for (size_t n = std::min(most, share); n > 0; --n) {
    Closure& next = *source->front();
    if (!taken.empty() && next.bytes > bytes) break;
    bytes -= std::min(bytes, next.bytes);
    give_lane(next);
    taken.push_back(std::move(source->front()));
    source->pop_front();
  }
  if (source != &waiting_ && source->empty()) of_worker_.erase(taker.worker);
  in_flight_ += taken.size();
  if (others > 0 && !waiting_.empty()) offer();
  if (was_full) changed_.notify_all();
  return taken;
}

void ClosureQueue::offer() {
  if (units_.empty())
    work_.notify_one();
  else
    work_.notify_all();
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

void ClosureQueue::finish(const std::vector<ClosurePtr>& closures) {
  const std::lock_guard lock(mutex_);
  for (const ClosurePtr& closure : closures) {
    free_lanes_.push_back(closure->lane);
    count(*closure, counts_.executed);
  }
  landed(closures.size());
}

void ClosureQueue::hold(size_t count, size_t first) {
  const std::lock_guard lock(mutex_);
  counts_.executed += first;
  counts_.again += count - first;
  landed(count);
}

void ClosureQueue::settle(const std::vector<ClosurePtr>& held) {
  const std::lock_guard lock(mutex_);
  for (const ClosurePtr& closure : held) free_lanes_.push_back(closure->lane);
}

void ClosureQueue::execute_again(std::vector<ClosurePtr> held) {
  const std::lock_guard lock(mutex_);
  for (auto closure = held.rbegin(); closure != held.rend(); ++closure)
    if (retry(*closure, PutBack::kReturned)) waiting_.push_front(std::move(*closure));
  work_.notify_all();
}

void ClosureQueue::lose(int worker, std::vector<ClosurePtr> held, std::vector<ClosurePtr> in_flight,
                        bool is_unit) {
  const std::lock_guard lock(mutex_);
  landed(in_flight.size());
  counts_.retried += held.size();
  std::deque<ClosurePtr> again;
  const auto add = [&](auto& closures, PutBack why) {
    for (ClosurePtr& closure : closures)
      if (retry(closure, why)) again.push_back(std::move(closure));
  };
  auto rest = of_worker_.extract(worker);
  is_unit |= !in_flight.empty() || !rest.empty();
  const size_t total = held.size() + in_flight.size() + (rest.empty() ? 0 : rest.mapped().size());
  add(held, PutBack::kReturned);
  add(in_flight, PutBack::kLost);
  if (!rest.empty()) add(rest.mapped(), PutBack::kReturned);
  if (again.empty()) return;
  if (is_unit && again.size() == total) {
    ++last_unit_;
    for (const ClosurePtr& closure : again) closure->unit = last_unit_;
    units_.push_back(std::move(again));
  } else {
    waiting_.insert(waiting_.begin(), std::make_move_iterator(again.begin()),
                    std::make_move_iterator(again.end()));
  }
  work_.notify_all();
}

void ClosureQueue::keep(const Error& error) {
  if (!error_) error_ = error;
  changed_.notify_all();
}

void ClosureQueue::fail(ClosurePtr closure, const Error& error) {
  closure->result->set(error);
  const std::lock_guard lock(mutex_);
  free_lanes_.push_back(closure->lane);
  count(*closure, counts_.failed);
  landed(1);
  keep(error);
}

void ClosureQueue::count(const Closure& closure, uint64_t& first) {
  ++(closure.executed ? counts_.again : first);
}

bool ClosureQueue::retry(ClosurePtr& closure, PutBack why) {
  closure->unit = 0;
  if (is_cancelled(*closure)) {
    cancel(std::move(closure));
    return false;
  }
  if (why == PutBack::kReturned) return true;
  if (++closure->attempts < options_.max_attempts) {
    ++counts_.retried;
    return true;
  }
  const Error error(
      Code::kAborted,
      str("closure ", closure->number, " of \"", closure->function->name(), "\" was in flight on ",
          closure->attempts,
          " workers when they were lost: it is given up, for it may be what ends them"));
  free_lanes_.push_back(closure->lane);
  count(*closure, counts_.failed);
  closure->result->set(error);
  keep(error);
  return false;
}

void ClosureQueue::put_back(std::vector<ClosurePtr> closures, PutBack why) {
  const std::lock_guard lock(mutex_);
  landed(closures.size());
  for (auto closure = closures.rbegin(); closure != closures.rend(); ++closure)
    if (retry(*closure, why)) waiting_.push_front(std::move(*closure));
  work_.notify_all();
}

void ClosureQueue::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  keep(error);
}

void ClosureQueue::abandon(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (is_done() || error_) return;
  abandoned_ = true;
  keep(error);
}

bool ClosureQueue::has_error() const {
  const std::lock_guard lock(mutex_);
  return error_.has_value();
}

ClosureQueue::Counts ClosureQueue::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.queued = num_queued();
  counts.in_flight = in_flight_;
  return counts;
}

void ClosureQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  cancel_waiting();
}

}  // namespace cohort::coordinator
