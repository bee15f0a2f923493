#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/collective/stall_warning.h"

namespace cohort {

// Watches what goes on behind the host's back: a thread that asks again and again whether the
// operations under way are done and whether the library has found an error, and ends the group when
// it has, or when one takes longer than the limit. Of one that just goes on it warns, once.
// Thread-safe.
class OperationWatch {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::optional<std::chrono::milliseconds> limit;  // of an operation; none: it may take for ever
    StallWarning stall = {};                         // of one in which this rank waits for others
    std::chrono::milliseconds interval{20};          // between two looks
    std::string who;                                 // "rank 1 of 4 on gpu:1", for messages
    // What the library has found wrong, if anything.
    std::function<std::optional<Error>()> find_error;
    // Ends everything under way, once, with this error.
    std::function<void(const Error&)> end;
  };

  explicit OperationWatch(Options options);
  ~OperationWatch();
  OperationWatch(const OperationWatch&) = delete;
  OperationWatch& operator=(const OperationWatch&) = delete;

  // An operation under way until `is_done` says so. Its time begins when `has_begun` does, as where
  // it comes behind other work; at once without one. Both are asked on the watch's thread and are
  // to be quick.
  void add(std::string what, std::function<bool()> is_done,
           std::function<bool()> has_begun = nullptr);
  // Ends everything with `error`, unless it has been ended.
  void fail(const Error& error);
  // The same, and throws what everything was ended with: `error`, or an earlier one.
  [[noreturn]] void fail_with_first(const Error& error);
  // Throws what ended everything.
  void check() const;
  // The watch looks at nothing any more.
  void stop();

 private:
  struct Operation {
    std::string what;
    std::function<bool()> is_done, has_begun;
    std::optional<Clock::time_point> begin = {};  // none: it has not begun
    bool warned_of = false;
  };

  void run();
  void look(std::unique_lock<std::mutex>& lock);
  void note_begun();
  void warn_of_stalled();
  std::optional<Error> find_overdue() const;

  const Options options_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Operation> operations_;
  std::optional<Error> error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything else
};

}  // namespace cohort
