#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "core/base/error.h"

namespace cohort {

// Where the threads of one group meet, again and again. A collective is a `meet`, after which every
// thread may read what the others wrote before it, then the work, then a `part`, after which all
// have done theirs.
class Rendezvous {
 public:
  explicit Rendezvous(int size);

  // Returns when all threads have called it; throws the error of an abort that came before the last
  // of them.
  void meet();
  // As meet, between threads that have met: an abort does not keep them from finishing together, so
  // that nobody's memory goes away while another reads it.
  void part();
  // Every present and later meet throws `error`; the first one given wins. From any thread.
  void abort(const Error& error);

 private:
  // The state is twice the number of completed meetings, plus kBroken after an abort: one word, so
  // that a meeting is either completed for all or broken for all.
  static constexpr uint32_t kBroken = 1, kMeeting = 2;

  // Whether this thread is the last one; the next meeting starts from nothing.
  bool arrive_last();
  uint32_t wait_for_change(uint32_t state) const;
  [[noreturn]] void throw_error();

  const int size_;
  const int spins_;
  std::atomic<int> arrived_ = 0;
  std::atomic<uint32_t> state_ = 0;
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace cohort
