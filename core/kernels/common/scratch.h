#pragma once

#include <cstddef>

#include "core/kernels/kernel.h"

namespace cohort {

// Hands out places in a kernel's scratch memory, each aligned like a tensor.
class ScratchLayout {
 public:
  // The offset of `bytes` bytes of their own.
  size_t add(size_t bytes) {
    const size_t offset = bytes_;
    bytes_ += (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
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
