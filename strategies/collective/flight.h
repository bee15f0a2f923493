#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/collective/reduce_op.h"
#include "core/tensor/shape.h"

// What a rank has done last.
namespace cohort::flight_recorder {

using Clock = std::chrono::steady_clock;

// Of an operation.
enum class State { kUnderWay, kDone, kFailed };

// An operation: a collective, or a message.
struct Record {
  uint64_t number = 0;     // of its kind: collectives, which are the same on all ranks, or messages
  std::string_view what;   // "AllReduce"
  std::string_view dtype;  // "" where there is none
  int64_t bytes = 0;
  std::optional<ReduceOp> op = std::nullopt;
  std::optional<Shape> shape = std::nullopt;  // of the first tensor, where the call tells it
  int peer = -1, tag = -1;                    // of messages; peer also a root
  int64_t operation = -1;                     // what wait() is given
  Clock::time_point begin, end;               // end: of those that are not under way
  State state = State::kUnderWay;
};

inline bool is_message(const Record& record) {
  return record.what == "Send" || record.what == "Receive";
}

// "0.123 s".
std::string in_seconds(Clock::duration time);

// The steady clock as of the system's last tick, some milliseconds ago: a quarter of the cost.
inline Clock::time_point last_tick() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return Clock::time_point(std::chrono::seconds(time.tv_sec) +
                           std::chrono::nanoseconds(time.tv_nsec));
}

// Held for a moment, and by others than the rank only when something has failed: half the cost of a
// mutex.
class SpinLock {
 public:
  void lock() {
    while (held_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { held_.clear(std::memory_order_release); }

 private:
  std::atomic_flag held_ = ATOMIC_FLAG_INIT;
};

// The last operations of one rank. Thread-safe.
class Flight {
 public:
  explicit Flight(size_t kept) : records_(kept), last_slot_(kept - 1) {}

  // The result names the record to `finish`.
  uint64_t begin(const Record& operation, bool is_collective) {
    const auto now = last_tick();
    const std::lock_guard lock(lock_);
    last_slot_ = last_slot_ + 1 < records_.size() ? last_slot_ + 1 : 0;
    Record& record = records_[last_slot_] = operation;
    record.number = is_collective ? ++collectives_ : ++messages_;
    record.begin = now;
    return begun_++;
  }
  void set_operation(uint64_t place, int64_t operation) {
    const std::lock_guard lock(lock_);
    if (Record* record = find(place)) record->operation = operation;
  }
  void finish(uint64_t place, State state) {
    const std::lock_guard lock(lock_);
    if (Record* record = find(place)) finish_locked(*record, state);
  }
  void finish_operation(int64_t operation, State state) {
    const std::lock_guard lock(lock_);
    // Most are waited for soon.
    for (uint64_t place = begun_; place > first_kept(); --place)
      if (Record& record = at(place - 1); record.operation == operation)
        return finish_locked(record, state);
  }

  // Of a collective that was started and not waited for, as long as its record is kept.
  bool is_started_collective(int64_t operation) const {
    const std::lock_guard lock(lock_);
    return std::ranges::any_of(records_, [&](const Record& record) {
      return record.operation == operation && !is_message(record);
    });
  }

  // While alive, the rank is in a call, which throws what ends it.
  class InCall {
   public:
    explicit InCall(Flight& flight) : flight_(flight) { flight_.in_call_ = true; }
    ~InCall() { flight_.in_call_ = false; }
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;

   private:
    Flight& flight_;
  };
  bool is_in_call() const { return in_call_; }

  // Lines about those under way, and the last ones, for people.
  std::string text() const;
  bool has_begun() const {
    const std::lock_guard lock(lock_);
    return begun_ > 0;
  }
  bool has_under_way() const {
    const std::lock_guard lock(lock_);
    return count_under_way() > 0;
  }

 private:
  Record* find(uint64_t place) { return begun_ - place <= records_.size() ? &at(place) : nullptr; }
  // Most often the last operation is asked for.
  Record& at(uint64_t place) {
    return records_[place + 1 == begun_ ? last_slot_ : place % records_.size()];
  }
  uint64_t count_under_way() const {
    uint64_t count = 0;
    for (uint64_t i = first_kept(); i < begun_; ++i)
      count += records_[i % records_.size()].state == State::kUnderWay ? 1 : 0;
    return count;
  }
  uint64_t first_kept() const { return begun_ > records_.size() ? begun_ - records_.size() : 0; }
  static void finish_locked(Record& record, State state) {
    record.state = state;
    record.end = last_tick();
    record.operation = -1;
  }

  mutable SpinLock lock_;
  std::vector<Record> records_;
  size_t last_slot_;  // of the last operation
  uint64_t begun_ = 0, collectives_ = 0, messages_ = 0;
  std::atomic<bool> in_call_ = false;
};

}  // namespace cohort::flight_recorder
