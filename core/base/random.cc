#include "core/base/random.h"

#include <atomic>

namespace cohort {
namespace {

std::atomic<uint64_t> the_global_seed{0};

}  // namespace

uint64_t RandomStream::next() {
  if (drawn_++ % 2 == 1) return second_half_;
  const auto block = split64((drawn_ - 1) / 2), stream = split64(stream_);
  const auto bits = philox({block[0], block[1], stream[0], stream[1]}, split64(seed_));
  second_half_ = join64(bits[2], bits[3]);
  return join64(bits[0], bits[1]);
}

double RandomStream::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

uint64_t RandomStream::below(uint64_t n) {
  if (n == 0) return 0;
  // Lemire, "Fast Random Integer Generation in an Interval" (2019): the high half of next() * n is
  // the result; the few low halves below 2^64 mod n would favour some results, so those are drawn
  // again.
  unsigned __int128 product = static_cast<unsigned __int128>(next()) * n;
  if (static_cast<uint64_t>(product) < n) {
    const uint64_t biased = -n % n;
    while (static_cast<uint64_t>(product) < biased)
      product = static_cast<unsigned __int128>(next()) * n;
  }
  return static_cast<uint64_t>(product >> 64);
}

void set_global_seed(uint64_t seed) { the_global_seed = seed; }
uint64_t global_seed() { return the_global_seed; }

}  // namespace cohort
