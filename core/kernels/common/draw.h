#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <numbers>

#include "core/base/random.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/common/math.h"

// Random numbers of the random ops, the same on all devices: those of element i are a function of
// the op's seed, the step, the replica and i.
namespace cohort::draw {

using Block = std::array<uint32_t, 4>;

// The random bits of one op in one step on one replica. Element i uses fixed blocks, so that values
// depend on nothing but its position.
class StepRandom {
 public:
  COHORT_HOST_DEVICE StepRandom(int64_t op_seed, uint64_t seed, int64_t step, int replica_id)
      : key_(split64(mix(mix(seed, static_cast<uint64_t>(op_seed)), static_cast<uint64_t>(step),
                         static_cast<uint64_t>(replica_id)))) {}

  // `attempt` numbers further blocks at the same index.
  COHORT_HOST_DEVICE Block block(int64_t index, uint32_t attempt = 0) const {
    const auto words = split64(static_cast<uint64_t>(index));
    return philox({words[0], words[1], attempt, 0}, key_);
  }

 private:
  std::array<uint32_t, 2> key_;
};

// Random numbers of type R = float or double: how many a block makes.
template <typename R>
inline constexpr int kPerBlock = 16 / sizeof(R);

// One number for each of the elements that share a block.
template <typename R>
using Numbers = std::array<R, kPerBlock<R>>;

// [0, 1), all bits of the mantissa random.
template <typename R>
COHORT_HOST_DEVICE inline Numbers<R> uniform(const Block& block) {
  Numbers<R> numbers{};
  for (int i = 0; i < kPerBlock<R>; ++i) {
    if constexpr (sizeof(R) == sizeof(float))
      numbers[i] = static_cast<R>(block[i] >> 8) * R(0x1p-24);
    else
      numbers[i] = static_cast<R>(join64(block[2 * i], block[2 * i + 1]) >> 11) * R(0x1p-53);
  }
  return numbers;
}

// The next T below a finite number.
template <typename T>
T next_below(T value) {
  if constexpr (std::floating_point<T>) {
    return std::nextafter(value, -std::numeric_limits<T>::infinity());
  } else {
    constexpr uint16_t kLeastNegative = 0x8001;
    const float number = convert<float>(value);
    if (number == 0)
      value.bits = kLeastNegative;
    else
      value.bits = static_cast<uint16_t>(number < 0 ? value.bits + 1 : value.bits - 1);
    return value;
  }
}

// What becomes of a number of [low, high), computed as an R, that rounding to T takes to `high` or
// beyond: the T of the range that is next to it.
template <typename T, typename R>
T last_of_range(double low, double high) {
  const T first = convert<T>(low), end = convert<T>(high);
  const T last = convert<R>(end) < static_cast<R>(high) ? end : next_below(end);
  return convert<R>(last) < convert<R>(first) ? first : last;
}

// Standard normal numbers by the method of Box and Muller.
template <typename R>
COHORT_HOST_DEVICE inline Numbers<R> normal(const Block& block) {
  Numbers<R> numbers = uniform<R>(block);
  for (int i = 0; i < kPerBlock<R>; i += 2) {
    const R radius = std::sqrt(R(-2) * std::log(R(1) - numbers[i])),
            angle = R(2) * std::numbers::pi_v<R> * numbers[i + 1];
    numbers[i] = radius * std::cos(angle);
    numbers[i + 1] = radius * std::sin(angle);
  }
  return numbers;
}

// Standard normal numbers, each drawn again until it is within two standard deviations.
template <typename R>
COHORT_HOST_DEVICE inline Numbers<R> truncated_normal(const StepRandom& random, int64_t index) {
  constexpr R kLimit = 2;
  Numbers<R> numbers = normal<R>(random.block(index));
  bool again = true;
  for (uint32_t attempt = 1; again; ++attempt) {
    again = false;
    for (int i = 0; i < kPerBlock<R>; ++i) again |= std::fabs(numbers[i]) > kLimit;
    if (!again) break;
    const Numbers<R> others = normal<R>(random.block(index, attempt));
    for (int i = 0; i < kPerBlock<R>; ++i)
      if (std::fabs(numbers[i]) > kLimit) numbers[i] = others[i];
  }
  return numbers;
}

}  // namespace cohort::draw
