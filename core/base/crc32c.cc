#include "core/base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__SSE4_2__)
#include <nmmintrin.h>
#endif

namespace cohort {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

#if defined(__SSE4_2__)

// The instruction takes three cycles and can begin every cycle, so that three stretches of this
// many bytes are checked at once and their checks joined after.
constexpr size_t kLongStretch = 4096, kShortStretch = 256;

// What a stretch of zeros makes of a check, which is linear: byte by byte of the check.
using ZerosTable = std::array<std::array<uint32_t, 256>, 4>;

constexpr uint32_t product(const std::array<uint32_t, 32>& matrix, uint32_t vector) {
  uint32_t sum = 0;
  for (size_t bit = 0; vector != 0; ++bit, vector >>= 1)
    if (vector & 1) sum ^= matrix[bit];
  return sum;
}

// `bytes` must be a power of two.
constexpr ZerosTable make_zeros_table(size_t bytes) {
  std::array<uint32_t, 32> matrix{};  // one zero bit
  matrix[0] = kReversedPolynomial;
  for (size_t bit = 1; bit < 32; ++bit) matrix[bit] = uint32_t{1} << (bit - 1);
  for (size_t bits = 1; bits < 8 * bytes; bits *= 2) {
    std::array<uint32_t, 32> squared{};
    for (size_t bit = 0; bit < 32; ++bit) squared[bit] = product(matrix, matrix[bit]);
    matrix = squared;
  }
  ZerosTable table{};
  for (size_t byte = 0; byte < 4; ++byte)
    for (uint32_t value = 0; value < 256; ++value)
      table[byte][value] = product(matrix, value << (8 * byte));
  return table;
}

constexpr ZerosTable kLongZeros = make_zeros_table(kLongStretch);
constexpr ZerosTable kShortZeros = make_zeros_table(kShortStretch);

uint64_t shifted(const ZerosTable& zeros, uint64_t crc) {
  return zeros[0][crc & 0xff] ^ zeros[1][crc >> 8 & 0xff] ^ zeros[2][crc >> 16 & 0xff] ^
         zeros[3][crc >> 24 & 0xff];
}

uint64_t word(const char* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Takes as many triples of stretches from [at, end) as there are.
template <size_t kStretch>
uint64_t take_stretches(const ZerosTable& zeros, uint64_t crc, const char*& at, const char* end) {
  while (static_cast<size_t>(end - at) >= 3 * kStretch) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < kStretch; i += 8) {
      crc = _mm_crc32_u64(crc, word(at + i));
      second = _mm_crc32_u64(second, word(at + kStretch + i));
      third = _mm_crc32_u64(third, word(at + 2 * kStretch + i));
    }
    crc = shifted(zeros, shifted(zeros, crc) ^ second) ^ third;
    at += 3 * kStretch;
  }
  return crc;
}

uint32_t update(uint32_t before, std::string_view bytes) {
  const char *at = bytes.data(), *const end = at + bytes.size();
  uint64_t crc = take_stretches<kLongStretch>(kLongZeros, before, at, end);
  crc = take_stretches<kShortStretch>(kShortZeros, crc, at, end);
  for (; end - at >= 8; at += 8) crc = _mm_crc32_u64(crc, word(at));
  for (; at < end; ++at)
    crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<unsigned char>(*at));
  return static_cast<uint32_t>(crc);
}

#else

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kReversedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr auto kTable = make_table();

uint32_t update(uint32_t before, std::string_view bytes) {
  for (const char c : bytes)
    before = (before >> 8) ^ kTable[(before ^ static_cast<uint8_t>(c)) & 0xff];
  return before;
}

#endif

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t before) { return ~update(~before, bytes); }

uint32_t masked_crc32c(std::string_view bytes) {
  constexpr uint32_t kMaskDelta = 0xa282ead8;
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + kMaskDelta;
}

}  // namespace cohort
