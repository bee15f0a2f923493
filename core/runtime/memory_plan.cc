#include "core/runtime/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "core/tensor/tensor.h"

namespace cohort {
namespace {

bool overlap_in_time(const MemoryBlock& a, const MemoryBlock& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

size_t place_blocks(std::vector<MemoryBlock>& blocks) {
  std::vector<size_t> by_size(blocks.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<const MemoryBlock*> placed;  // by offset
  size_t total = 0;
  for (size_t index : by_size) {
    MemoryBlock& block = blocks[index];
    const size_t bytes = aligned_size(block.bytes);
    size_t offset = 0;
    for (const MemoryBlock* other : placed) {
      if (!overlap_in_time(block, *other)) continue;
      if (offset + bytes <= other->offset) break;
      offset = std::max(offset, other->offset + aligned_size(other->bytes));
    }
    block.offset = offset;
    total = std::max(total, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &block,
                                   [](const MemoryBlock* a, const MemoryBlock* b) {
                                     return a->offset < b->offset;
                                   }),
                  &block);
  }
  return total;
}

}  // namespace cohort
