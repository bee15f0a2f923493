#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace cohort::testing {

// How much random input a test tries, and from which seed.
struct Trials {
  uint64_t seed, count;
};

// As COHORT_TEST_SEED and COHORT_TEST_COUNT say, or as given where they are not set; printed, so
// that a failure can be had again.
inline Trials trials(uint64_t seed, uint64_t count) {
  const auto number = [](const char* variable, uint64_t otherwise) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? otherwise : uint64_t{std::strtoull(text, nullptr, 10)};
  };
  const Trials result{number("COHORT_TEST_SEED", seed), number("COHORT_TEST_COUNT", count)};
  std::printf("seed %llu, count %llu\n", static_cast<unsigned long long>(result.seed),
              static_cast<unsigned long long>(result.count));
  return result;
}

}  // namespace cohort::testing
