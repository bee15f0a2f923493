#pragma once

#include <array>
#include <cstdint>

namespace cohort {

// Counter-based random numbers: a value is a pure function of (key, counter), so that every thread,
// replica and restarted run can compute its own share without passing a generator around. The
// functions are constexpr, so CUDA kernels may call them too.

// Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011): 128
// random bits for each of 2^128 counters under each of 2^64 keys. Different keys give independent
// sequences.
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                         std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;  // golden ratio and sqrt(3) - 1
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = kMultiplier0 * counter[0], p1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// The halves of a 64-bit number, low half first: how a seed becomes a Philox key.
constexpr std::array<uint32_t, 2> split64(uint64_t value) {
  return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
}
constexpr uint64_t join64(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}

// A well-mixed 64-bit number for each (seed, a, b): derives seeds from a seed, such as one for each
// epoch.
constexpr uint64_t mix(uint64_t seed, uint64_t a, uint64_t b = 0) {
  const auto low = split64(a), high = split64(b);
  const auto bits = philox({low[0], low[1], high[0], high[1]}, split64(seed));
  return join64(bits[0], bits[1]);
}

// The sequence of random numbers of one (seed, stream) pair; streams of one seed are independent.
// Not synchronised: one thread at a time.
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint64_t next();             // 64 uniform bits
  double uniform();            // [0, 1), with all 53 bits of the mantissa random
  uint64_t below(uint64_t n);  // 0 to n - 1, each exactly as likely; n = 0 gives 0

 private:
  uint64_t seed_, stream_;
  uint64_t drawn_ = 0;        // numbers handed out so far
  uint64_t second_half_ = 0;  // a Philox block makes two numbers: the one not yet handed out
};

// The seed from which everything without a seed of its own (shuffles, initializers, dropout)
// derives one. 0 until set. Thread-safe; set it before building datasets and models.
void set_global_seed(uint64_t seed);
uint64_t global_seed();

}  // namespace cohort
