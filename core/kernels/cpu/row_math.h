#pragma once

#include <limits>

#include "core/base/threads.h"
#include "core/kernels/common/math.h"
#include "core/kernels/common/row_sizes.h"

// Loops over the rows of a tensor, its last axis, for kernels that normalise them. T is float or
// double.
namespace cohort {

// Calls body(row, offset of its first element) for every row, on the calling thread's team.
template <typename F>
void for_each_row(RowSizes sizes, F body) {
  constexpr int64_t kElements = 8 * 1024;  // a thread's least share
  parallel_for(sizes.rows, kElements / (sizes.columns + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(r, r * sizes.columns);
  });
}

// Sum of f(i) for i < n. The order of addition is the compiler's, the same in every call.
template <typename T, typename F>
T sum_over(int64_t n, F f) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += f(i);
  return sum;
}

template <typename T>
T max_of(const T* x, int64_t n) {
  T high = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : high)
  for (int64_t i = 0; i < n; ++i) high = x[i] > high ? x[i] : high;
  return high;
}

// log(sum of exp(x[i] - high)), high being the largest. The logarithm of softmax is (x[i] - high)
// less this: the first difference is exact where high + log(sum) would round the log away.
template <typename T>
T log_sum_exp(const T* x, int64_t n, T high) {
  return math::log(sum_over<T>(n, [=](int64_t i) { return math::exp(x[i] - high); }));
}

}  // namespace cohort
