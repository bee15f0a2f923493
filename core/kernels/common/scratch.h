#pragma once

#include <cstddef>

#include "core/kernels/kernel.h"

namespace cohort {

// Where the scratch memory of kernels on a stream begins, and each place in it: what cuBLASLt asks
// of its workspace. On the host scratch memory is aligned like a tensor.
inline constexpr size_t kScratchAlignment = 256;

// What `bytes` bytes take where the next begin at a multiple of kScratchAlignment.
constexpr size_t scratch_size(size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// Hands out places in a kernel's scratch memory, each at a multiple of kScratchAlignment.
class ScratchLayout {
 public:
  // The offset of `bytes` bytes of their own.
  size_t add(size_t bytes) {
    const size_t offset = bytes_;
    bytes_ += scratch_size(bytes);
    return offset;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

template <typename T>
T* scratch_at(const KernelContext& context, size_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(context.scratch) + offset);
}

}  // namespace cohort
