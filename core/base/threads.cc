#include "core/base/threads.h"

#include <algorithm>
#include <omp.h>

#include "core/base/error.h"
#include "core/base/thread_sanitizer.h"

namespace cohort {

void set_num_threads(int threads) {
  if (threads < 1) invalid("a device needs at least 1 thread, got ", threads);
  // Beyond OpenMP's limit (OMP_THREAD_LIMIT) a team is smaller than asked for, and oneDNN, which
  // divides its work by the number asked for, would leave part of it undone.
  omp_set_num_threads(std::min(threads, omp_get_thread_limit()));
}

int num_threads() { return omp_get_max_threads(); }

void parallel_for(int64_t count, int64_t grain, RangeFunction body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t grains = (count + grain - 1) / grain;
  const int team =
      static_cast<int>(std::min<int64_t>(grains, omp_in_parallel() ? 1 : num_threads()));
  if (team == 1) return body(0, count);
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
