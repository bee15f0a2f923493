#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

// Replaces the process's allocator by one that fails when it is told to: for the one source of a
// program of its own.
namespace cohort::testing {

// So many allocations of this thread succeed, and the next one fails; negative: none does.
inline thread_local int64_t allocations_left = -1;

}  // namespace cohort::testing

void* operator new(size_t bytes) {
  int64_t& left = cohort::testing::allocations_left;
  const bool fails = left == 0;
  if (left >= 0) --left;
  void* const memory = fails ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
