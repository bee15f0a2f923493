#include "core/kernels/cpu/tile_convert.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/kernels/common/convert.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace cohort {
namespace {

template <typename From, typename To>
void convert_array(const From* from, To* to, int64_t n) {
  if constexpr (std::is_same_v<From, To>)
    std::memmove(to, from, n * sizeof(To));
  else
    for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
}

#ifdef __F16C__
// GCC does not vectorise these by itself.
void convert_array(const float16* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < n; ++i) to[i] = from[i];
}

void convert_array(const float* from, float16* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; ++i) to[i] = float16(from[i]);
}
#endif

template <typename T, typename Memory>
void load(const void* source, int64_t offset, int64_t stride, T* tile, int64_t n) {
  const Memory* from = static_cast<const Memory*>(source) + offset;
  if (stride == 0)
    std::fill_n(tile, n, convert<T>(*from));
  else
    convert_array(from, tile, n);
}

template <typename T, typename Memory>
void store(const T* tile, void* target, int64_t offset, int64_t n) {
  convert_array(tile, static_cast<Memory*>(target) + offset, n);
}

}  // namespace

template <typename T>
TileConverter<T> tile_converter(DType dtype) {
  TileConverter<T> converter{};
  dispatch(AllTypes{}, dtype, "an elementwise op", [&]<typename Memory>() {
    converter = {load<T, Memory>, store<T, Memory>};
  });
  return converter;
}

template TileConverter<float> tile_converter(DType dtype);
template TileConverter<double> tile_converter(DType dtype);
template TileConverter<int64_t> tile_converter(DType dtype);

}  // namespace cohort
