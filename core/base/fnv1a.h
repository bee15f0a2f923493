#pragma once

#include <cstdint>
#include <string_view>

namespace cohort {

// The 64-bit hash FNV-1a of Fowler, Noll and Vo: the same number on every machine, as std::hash is
// not. It tells texts apart, and withstands nobody who looks for two with the same hash.
constexpr uint64_t fnv1a(std::string_view bytes) {
  constexpr uint64_t kOffsetBasis = 0xcbf29ce484222325, kPrime = 0x100000001b3;
  uint64_t hash = kOffsetBasis;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * kPrime;
  return hash;
}

}  // namespace cohort
