#pragma once

#include <cstdint>
#include <functional>

namespace cohort {

// The calling thread's team size for parallel_for and for oneDNN, which share one OpenMP team per
// calling thread, so that a device never runs two competing pools. Each replica thread sets its
// own. `threads` must be at least 1. A thread that has a team of several and forks has none in the
// new process: there its team is 1, and a larger one is kFailedPrecondition. New threads of that
// process may have one.
void set_num_threads(int threads);
int num_threads();

// A non-owning reference to `void(int64_t begin, int64_t end)`; never allocates.
class RangeFunction {
 public:
  template <typename F>
  RangeFunction(const F& f)  // NOLINT: converts like std::function
      : object_(&f),
        call_([](const void* o, int64_t b, int64_t e) { (*static_cast<const F*>(o))(b, e); }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t);
};

// Calls `body` on disjoint ranges that cover [0, count), on the calling thread's team. Each range
// but the last holds a multiple of `grain` items; counts up to one grain run inline. The split
// depends only on count, grain and the team size, so results are the same on every run. `body` must
// not throw.
void parallel_for(int64_t count, int64_t grain, RangeFunction body);

}  // namespace cohort
