#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/tensor/tensor.h"

// The memory of this process that other processes of the host can map. Thread-safe.
namespace cohort {

// Aligned to pages. kResourceExhausted.
std::shared_ptr<Buffer> allocate_shared_buffer(size_t bytes);

// Where in a region some memory lies.
struct RegionPlace {
  uint64_t region;  // never used again for another
  int descriptor;
  char* begin;  // of the region
  size_t region_bytes;
  size_t offset;
};
// Nothing for memory that is not all in one region.
std::optional<RegionPlace> find_region(const void* memory, size_t bytes);

// Takes memory that is all in one region, if it is, away from the processes that have mapped it: it
// is zeros then, and its region is no longer there. What else lies in it is still what they see,
// but for what shares a page with that memory, into which nobody may write meanwhile: each group
// claims the pages that its calls write to (page_claims.h). kResourceExhausted.
void take_back(void* memory, size_t bytes);

// Whether a region is still there; and how many have ever gone, which tells whether to ask.
bool region_exists(uint64_t region);
uint64_t num_released_regions();

}  // namespace cohort
