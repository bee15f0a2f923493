#pragma once

#include <cstddef>

namespace cohort {

constexpr size_t kCacheLine = 64;  // bytes

// Asks for the cache line of memory that is read soon, and perhaps written. What is fetched to be
// read is shared with the cores that have read it, and a store has to ask again: `for_writing` it
// comes as this core's own. The instruction is not one of all processors with AVX2, which is why
// GCC makes none of __builtin_prefetch(memory, 1); those that lack it ignore it.
inline void prefetch(const void* memory, bool for_writing) {
  if (for_writing)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(memory)));
  else
    __builtin_prefetch(memory);
}

}  // namespace cohort
