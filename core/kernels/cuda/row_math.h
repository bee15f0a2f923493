#pragma once

#include <limits>

#include "core/kernels/common/math.h"
#include "core/kernels/common/row_sizes.h"
#include "core/kernels/cuda/launch.h"

// What a team computes over its row. T is float or double.
namespace cohort::cuda {

// Sum of f(i) for i < n, on every thread.
template <typename T, typename F>
COHORT_DEVICE inline T sum_over(const Team& team, int64_t n, F f) {
  T sum = 0;
  for (int64_t i = team.rank(); i < n; i += team.size()) sum += f(i);
  return team.sum(sum);
}

template <typename T>
COHORT_DEVICE inline T max_of(const Team& team, const T* x, int64_t n) {
  const auto larger = [](T a, T b) { return a > b ? a : b; };
  constexpr T kLowest = -std::numeric_limits<T>::infinity();
  T high = kLowest;
  for (int64_t i = team.rank(); i < n; i += team.size()) high = larger(x[i], high);
  return team.reduce(high, kLowest, larger);
}

// log(sum of exp(x[i] - high)), high being the largest. The logarithm of softmax is (x[i] - high)
// less this: the first difference is exact where high + log(sum) would round the log away.
template <typename T>
COHORT_DEVICE inline T log_sum_exp(const Team& team, const T* x, int64_t n, T high) {
  return math::log(sum_over<T>(team, n, [=](int64_t i) { return math::exp(x[i] - high); }));
}

}  // namespace cohort::cuda
