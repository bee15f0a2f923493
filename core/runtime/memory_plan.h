#pragma once

#include <cstddef>
#include <vector>

namespace cohort {

// A piece of memory that must hold its content from step `first` to step `last`, both included.
struct MemoryBlock {
  size_t bytes = 0;
  int first = 0;
  int last = 0;
  size_t offset = 0;  // the result: where in the arena it lies, a multiple of kBufferAlignment
};

// Places the blocks so that those needed at the same time never overlap, and returns the arena's
// size. Largest first, each at the lowest gap that fits: within a few percent of optimal for
// training graphs (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference",
// 2020, greedy by size).
size_t place_blocks(std::vector<MemoryBlock>& blocks);

}  // namespace cohort
