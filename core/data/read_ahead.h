#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/data/background.h"
#include "core/data/position.h"

namespace cohort::data {

// Makes values on a background thread, up to `count` ahead of who takes them. The thread starts
// with the first next() and ends with this object.
template <typename T>
class ReadAhead {
 public:
  // `make` returns the next value, or nothing at the end; `save` says where that leaves its input.
  // Once the thread has started, only it calls them.
  ReadAhead(std::function<std::optional<T>()> make, std::function<Position()> save, int64_t count)
      : make_(std::move(make)), save_(std::move(save)), count_(count) {}

  // Also throws what `make` threw, again with every later call.
  std::optional<T> next() {
    start();
    std::unique_lock lock(mutex_);
    wait_cancellably(filled_, lock, [&] { return !ready_.empty(); });
    Ready& front = ready_.front();
    if (front.error) std::rethrow_exception(front.error);
    if (!front.value) return std::nullopt;
    std::optional<T> value = std::move(front.value);
    position_ = std::move(front.after);
    ready_.pop_front();
    room_.notify_one();
    return value;
  }

  // Of the input after the last value that was taken.
  Position save() const { return position_ ? *position_ : save_(); }

 private:
  // A value, an error or the end; the last two stay for every later next().
  struct Ready {
    std::optional<T> value;
    std::exception_ptr error;
    Position after;
  };

  void start() {
    if (position_) return;
    Position before = save_();
    thread_ = start_background([this](std::stop_token stop) { produce(stop); });
    position_ = std::move(before);
  }

  void produce(std::stop_token stop) {
    bool more = true;
    while (more && !stop.stop_requested()) {
      Ready made = make();
      more = made.value.has_value();
      std::unique_lock lock(mutex_);
      ready_.push_back(std::move(made));
      filled_.notify_one();
      room_.wait(lock, stop, [&] { return static_cast<int64_t>(ready_.size()) < count_; });
    }
  }

  Ready make() {
    try {
      std::optional<T> value = make_();
      if (!value) return {};
      return {std::move(value), nullptr, save_()};
    } catch (...) {
      return {std::nullopt, std::current_exception(), {}};
    }
  }

  const std::function<std::optional<T>()> make_;
  const std::function<Position()> save_;
  const int64_t count_;
  std::optional<Position> position_;  // set once started

  std::mutex mutex_;
  std::condition_variable_any filled_, room_;
  std::deque<Ready> ready_;  // guarded by mutex_
  std::jthread thread_;      // last: it ends before what it uses
};

}  // namespace cohort::data
