#include "core/kernels/cpu/tile_functions.h"

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/kernels/common/functor_list.h"

// The loops over a tile. The pragma says that iterations are independent, which in-place use does
// not change.
#define COHORT_TILE_LOOPS(target_attribute)                                                  \
  template <typename T, typename F>                                                          \
  target_attribute void run_unary(const T* a, const T*, const T*, T* out, int64_t n) {       \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) out[i] = F{}(a[i]);                 \
  }                                                                                          \
  template <typename T, typename F>                                                          \
  target_attribute void run_binary(const T* a, const T* b, const T*, T* out, int64_t n) {    \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) out[i] = F{}(a[i], b[i]);           \
  }                                                                                          \
  template <typename T, typename F>                                                          \
  target_attribute void run_ternary(const T* a, const T* b, const T* c, T* out, int64_t n) { \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) out[i] = F{}(a[i], b[i], c[i]);     \
  }                                                                                          \
  template <typename T, typename F>                                                          \
  constexpr TileFunction<T> function_for() {                                                 \
    if constexpr (std::is_same_v<F, functors::Copy>)                                         \
      return run_copy<T>;                                                                    \
    else if constexpr (std::is_invocable_v<F, T>)                                            \
      return run_unary<T, F>;                                                                \
    else if constexpr (std::is_invocable_v<F, T, T>)                                         \
      return run_binary<T, F>;                                                               \
    else if constexpr (std::is_invocable_v<F, T, T, T>)                                      \
      return run_ternary<T, F>;                                                              \
    else                                                                                     \
      return nullptr;                                                                        \
  }                                                                                          \
  template <typename T, size_t... i>                                                         \
  constexpr auto table(std::index_sequence<i...>) {                                          \
    return std::array<TileFunction<T>, sizeof...(i)>{                                        \
        function_for<T, std::tuple_element_t<i, functors::All>>()...};                       \
  }

namespace cohort {
namespace {

template <typename T>
void run_copy(const T* a, const T*, const T*, T* out, int64_t n) {
  std::memmove(out, a, n * sizeof(T));
}

namespace baseline {
COHORT_TILE_LOOPS()
}

// The same loops for AVX-512, two to three times as quick where arithmetic dominates.
namespace avx512 {
#if defined(__x86_64__)
COHORT_TILE_LOOPS(__attribute__((target("arch=x86-64-v4,prefer-vector-width=512"))))
bool supported() { return __builtin_cpu_supports("x86-64-v4"); }
#else
using baseline::table;
bool supported() { return false; }
#endif
}  // namespace avx512

}  // namespace

template <typename T>
TileFunction<T> tile_function(Scalar op) {
  using Ops = std::make_index_sequence<static_cast<size_t>(Scalar::kCount)>;
  static const auto kTable =
      avx512::supported() ? avx512::table<T>(Ops{}) : baseline::table<T>(Ops{});
  return kTable[static_cast<size_t>(op)];
}

template TileFunction<float> tile_function(Scalar op);
template TileFunction<double> tile_function(Scalar op);
template TileFunction<int64_t> tile_function(Scalar op);

}  // namespace cohort
