#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/collective/communicator.h"

namespace cohort::hierarchical {

// How a group of several levels ends for all its ranks: over a communicator of all of them that
// carries nothing else, on which a thread listens. Whoever finds something wrong on any level tells
// here; each rank then ends its communicators of all levels, so that nobody waits on another level.
// But a call that all ranks have joined is finished: it is for this that calls are numbered,
// from 1. The first error given wins. The threads that listen also answer where their ranks are, so
// that a rank that waits itself is not taken for the one that all wait for. Thread-safe.
class GroupEnd {
 public:
  // Those that keep a call waiting, and why, as "no answer from".
  struct Missing {
    std::vector<int> ranks;
    std::string why;
  };

  // `control` has no time limit. `stop` ends the levels of this rank; called once, on a thread.
  GroupEnd(std::unique_ptr<Communicator> control, std::function<void(const Error&)> stop);
  // Ends a group that has not ended: the rank leaves it.
  ~GroupEnd();
  GroupEnd(const GroupEnd&) = delete;
  GroupEnd& operator=(const GroupEnd&) = delete;

  // A call of this rank begins, or throws the error of the group.
  void begin_call();
  // All ranks are in it.
  void set_joined();
  void finish_call();
  // It has failed: ends the group, and throws its error.
  [[noreturn]] void fail_call(const Error& error);
  // Asks all ranks where they are, for two seconds at most: those that do not answer, for they are
  // stopped, or else those that have not come to this rank's call. Nobody when all work on it, or
  // when the group ends meanwhile.
  Missing call_roll();

  // Ends the group, called by the application: what all ranks have joined is finished, if it soon
  // can be.
  void abort(const Error& error);
  // As abort, by a rank that goes away or has found something wrong: what all ranks have joined has
  // its time.
  void end(const Error& error);
  // Throws the error of a group that has ended.
  void check() const;
  // The same once what was to be finished has had its time.
  void check_stopped() const;

 private:
  // Where a rank is: in a call, or after it.
  struct Place {
    uint64_t call;
    bool calling;
  };

  void end_locked(const Error& error, uint64_t finish);
  void listen();
  void take(const Received& word);
  void say(int rank, int word);
  bool all_have_answered() const;
  Missing find_missing() const;

  const std::unique_ptr<Communicator> control_;
  const std::function<void(const Error&)> stop_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<Error> error_;
  uint64_t finish_ = 0;             // the last call to be finished in spite of the error
  uint64_t call_ = 0, joined_ = 0;  // the last one of this rank, and the last that all joined
  bool calling_ = false, is_aborted_ = false, stopped_ = false;
  std::vector<std::optional<Place>> places_;  // by rank, as they have answered
  std::thread listener_;                      // last: it uses everything else
};

}  // namespace cohort::hierarchical
