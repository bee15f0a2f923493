#include "core/base/threads.h"

#include <algorithm>
#include <omp.h>
#include <pthread.h>

#include "core/base/error.h"
#include "core/base/thread_sanitizer.h"

namespace cohort {
namespace {

// libgomp has a pool of threads for each thread that computes. A fork copies none of them, and the
// thread that goes on in it would wait for those of its pool for ever.
thread_local bool has_pool = false, has_lost_pool = false;

void lose_pool() {
  if (!has_pool) return;
  has_lost_pool = true;
  omp_set_num_threads(1);
}

[[maybe_unused]] const int kLostInForks = pthread_atfork(nullptr, nullptr, lose_pool);

}  // namespace

void set_num_threads(int threads) {
  if (threads < 1) invalid("a device needs at least 1 thread, got ", threads);
  if (threads > 1 && has_lost_pool)
    fail(Code::kFailedPrecondition,
         "this is a fork of a process that has computed, whose threads it lacks: fork before the "
         "first computation, or compute in a new thread of this process or in a program that it "
         "executes");
  has_pool |= threads > 1;
  // Of a team that is smaller than asked for, as OpenMP may also choose by the load of the machine
  // (OMP_DYNAMIC), oneDNN, which divides its work by the number asked for, would leave part undone.
  omp_set_dynamic(0);
  omp_set_num_threads(std::min(threads, largest_team()));
}

int num_threads() { return omp_get_max_threads(); }

int largest_team() {
  const bool is_alone = omp_in_parallel() != 0 || omp_get_max_active_levels() == 0;
  return is_alone ? 1 : omp_get_thread_limit();
}

TeamScope::TeamScope(int threads) : threads_(num_threads()), dynamic_(omp_get_dynamic()) {
  set_num_threads(threads);
}

TeamScope::~TeamScope() {
  omp_set_num_threads(threads_);
  omp_set_dynamic(dynamic_);
}

void parallel_for(int64_t count, int64_t grain, RangeFunction body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t grains = (count + grain - 1) / grain;
  const int team =
      static_cast<int>(std::min<int64_t>(grains, omp_in_parallel() ? 1 : num_threads()));
  if (team == 1) return body(0, count);
  has_pool = true;
  char fork = 0, join = 0;  // libgomp is not instrumented
  COHORT_TSAN_RELEASE(&fork);
#pragma omp parallel num_threads(team)
  {
    COHORT_TSAN_ACQUIRE(&fork);
    const int64_t index = omp_get_thread_num(), size = omp_get_num_threads();
    const int64_t begin = grains * index / size * grain;
    const int64_t end = std::min(count, grains * (index + 1) / size * grain);
    if (begin < end) body(begin, end);
    COHORT_TSAN_RELEASE(&join);
  }
  COHORT_TSAN_ACQUIRE(&join);
}

}  // namespace cohort
