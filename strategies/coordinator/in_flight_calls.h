#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strategies/coordinator/closure.h"

namespace cohort::coordinator {

// The closures that a worker has been given, and of which it has not told what became of them. Not
// synchronised.
class InFlightCalls {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `id` is greater than those before.
  void add(uint64_t id, ClosurePtr closure, Time sent);
  // Null where there is none of this id.
  const Closure* find(uint64_t id) const;
  // REQUIRES: there is one.
  ClosurePtr take(uint64_t id);
  // In the order in which they were added.
  std::vector<ClosurePtr> take_all();
  // The function of this number, for a closure of it that has not asked for it before; null where
  // there is none. The worker lacks it for what it gives that one.
  std::shared_ptr<FunctionFamily> ask(uint64_t function);

  bool empty() const { return calls_.empty(); }
  size_t size() const { return calls_.size(); }
  // Of their arguments.
  size_t bytes() const { return bytes_; }
  bool any_of_unit() const;
  // "3 in flight, the oldest, \"step\", for 61 s", or "idle".
  std::string describe() const;

 private:
  struct Call {
    ClosurePtr closure;
    Time sent;
    bool has_asked = false;
  };
  std::map<uint64_t, Call> calls_;
  size_t bytes_ = 0;
};

}  // namespace cohort::coordinator
