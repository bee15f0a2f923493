#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "strategies/coordinator/closure.h"

namespace cohort::coordinator {

// The closures that a worker has executed and that wait in its sums, or share one with those that
// do, in the order in which they were. Whatever throws, for lack of memory, takes nothing out. Not
// synchronised.
class HeldCalls {
 public:
  // So many are held at most. Sums of which one or another always waits would hold all for ever.
  static constexpr size_t kMost = 4096;
  using Counts = std::map<uint64_t, bool>;  // as Result has them

  // A call has been executed, and moves these counts. Its closure is to be put into the place that
  // is returned, at once.
  ClosurePtr& add(Counts counts);
  // One that moves these has ended in its middle. Adds to `settled` what is so; returns how much of
  // that is by this call: sums that it has completed, and has perhaps not sent.
  size_t break_off(const Counts& counts, std::vector<ClosurePtr>& settled);
  // Whether, after that, the sums may have more in them than what is held.
  bool is_dirty() const { return is_dirty_; }
  size_t size() const { return held_.size(); }
  // Whether something of what is held has been sent already, so that it cannot be summed
  // otherwise: by one of several optimizers of different accumulation_steps.
  bool is_mixed() const;
  // Moves what waits in no sum, nor shares one with what does.
  void take_settled(std::vector<ClosurePtr>& settled);
  // Moves all where there is more than kMost, else nothing. What waits in the sums is known on.
  void take_excess(std::vector<ClosurePtr>& excess);
  // Takes out all; the sums are gone, or will be.
  std::vector<ClosurePtr> take_all();

 private:
  struct Held {
    ClosurePtr closure;
    Counts counts;
  };
  void note(const Counts& counts);
  void take(std::vector<ClosurePtr>& taken);

  std::vector<Held> held_;
  std::set<uint64_t> sums_;  // the counts that are not 0
  bool is_dirty_ = false;
};

}  // namespace cohort::coordinator
