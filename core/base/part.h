#pragma once

#include <cstdint>

namespace cohort {

// The elements [begin, end) of a value.
struct Part {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Part `index` of `parts` of `count` elements: equal ones, but that they begin at multiples of 64
// elements, so that no cache line belongs to two of them, and the last one takes what that leaves.
inline Part part_of(int64_t count, int64_t index, int64_t parts) {
  constexpr int64_t kUnit = 64;
  const auto begin = [&](int64_t i) {
    return i == parts ? count : count / kUnit * i / parts * kUnit;
  };
  return {begin(index), begin(index + 1)};
}

}  // namespace cohort
