#pragma once

#include <condition_variable>
#include <mutex>

#include "tests/testing/eventually.h"

namespace cohort::testing {

// Where threads wait while it is closed; for ever, as callers see it. Thread-safe.
class Gate {
 public:
  void close() { set(true); }
  void open() { set(false); }
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.wait_for(lock, kPatience, [this] { return !closed_; });
    --waiting_;
  }
  bool holds_somebody() const {
    const std::lock_guard lock(mutex_);
    return closed_ && waiting_ > 0;
  }

 private:
  void set(bool closed) {
    const std::lock_guard lock(mutex_);
    closed_ = closed;
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int waiting_ = 0;
};

// Opens a gate when it is destroyed, so that a test that fails does not wait at it in its end.
class OpenInTheEnd {
 public:
  explicit OpenInTheEnd(Gate& gate) : gate_(gate) {}
  ~OpenInTheEnd() { gate_.open(); }
  OpenInTheEnd(const OpenInTheEnd&) = delete;
  OpenInTheEnd& operator=(const OpenInTheEnd&) = delete;

 private:
  Gate& gate_;
};

}  // namespace cohort::testing
