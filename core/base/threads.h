#pragma once

#include <cstdint>
#include <functional>

namespace cohort {

// The calling thread's team size for parallel_for and for oneDNN, which share one OpenMP team per
// calling thread, so that a device never runs two competing pools. `threads` must be at least 1;
// beyond largest_team() it is that. A thread that has a team of several and forks has none in the
// new process: there its team is 1, and a larger one is kFailedPrecondition. New threads of that
// process may have one. For threads of our own; others belong to the program (TeamScope).
void set_num_threads(int threads);
int num_threads();

// What OpenMP gives the calling thread at most: 1 in a parallel region of the program, or where its
// settings have none at all (OMP_MAX_ACTIVE_LEVELS=0), else its limit (OMP_THREAD_LIMIT).
int largest_team();

// Has the calling thread's team be of this size, as set_num_threads() does. When it ends, the
// thread has the settings of before: they are those of the program's own parallel regions. Costs
// nothing to speak of.
class TeamScope {
 public:
  explicit TeamScope(int threads);
  ~TeamScope();
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  const int threads_, dynamic_;
};

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
