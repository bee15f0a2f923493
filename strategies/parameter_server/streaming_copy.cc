#include "strategies/parameter_server/streaming_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace cohort::parameter_server {

#if defined(__AVX2__)

void copy_past_cache(void* target, const void* source, size_t bytes) {
  constexpr size_t kVector = sizeof(__m256i), kLine = 2 * kVector;
  auto* to = static_cast<char*>(target);
  const auto* from = static_cast<const char*>(source);
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % kLine;
  const size_t head = misaligned == 0 ? 0 : std::min(bytes, kLine - misaligned);
  const size_t lines = (bytes - head) / kLine;
  std::memcpy(to, from, head);
  to += head;
  from += head;
  for (size_t i = 0; i < lines; ++i, to += kLine, from += kLine) {
    const auto* in = reinterpret_cast<const __m256i*>(from);
    const __m256i first = _mm256_loadu_si256(in), second = _mm256_loadu_si256(in + 1);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), first);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + kVector), second);
  }
  _mm_sfence();
  std::memcpy(to, from, bytes - head - lines * kLine);
}

#else

void copy_past_cache(void* target, const void* source, size_t bytes) {
  std::memcpy(target, source, bytes);
}

#endif

}  // namespace cohort::parameter_server
