#pragma once

#include <vector>

#include "core/kernels/kernel.h"

namespace cohort {

// A box of elements that an op takes from a tensor to its place in another.
struct TensorBox {
  std::vector<int64_t> extents, source_strides, target_strides;  // strides in elements
  int input = 0, output = 0;
  int64_t source_offset = 0, target_offset = 0;  // of the first element, in bytes
};

// How a device makes the kernels of the ops that only move elements.
struct ArrayFactories {
  using CopyFactory = std::unique_ptr<Kernel> (*)(const KernelSpec& spec,
                                                  const std::vector<TensorBox>& boxes);
  CopyFactory copy;        // copies the boxes, which do not overlap
  CopyFactory fill;        // fills the output with the attribute "value" before it copies
  KernelFactory identity;  // copies input 0, which may have the output's memory
  KernelFactory require;   // the same, and fails unless input 1 is true
};
template <typename K>
std::unique_ptr<Kernel> make_with_boxes(const KernelSpec& spec,
                                        const std::vector<TensorBox>& boxes) {
  return std::make_unique<K>(spec, boxes);
}
// Registers Transpose, Concat, Split, Slice, Pad, Identity, StopGradient, CustomGradient,
// AssignVariable and Require.
void register_array_ops(DeviceType type, const ArrayFactories& factories);

}  // namespace cohort
