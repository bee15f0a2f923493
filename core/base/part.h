#pragma once

#include <cstdint>

namespace cohort {

// Parts begin at multiples of this many elements, so that no cache line belongs to two of them.
inline constexpr int64_t kPartUnit = 64;

// The elements [begin, end) of a value.
struct Part {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Part `index` of `parts` of `count` elements: equal ones up to kPartUnit; the last one takes what
// that leaves.
inline Part part_of(int64_t count, int64_t index, int64_t parts) {
  const auto begin = [&](int64_t i) {
    return i == parts ? count : count / kPartUnit * i / parts * kPartUnit;
  };
  return {begin(index), begin(index + 1)};
}

}  // namespace cohort
