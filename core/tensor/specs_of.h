#pragma once

#include <vector>

#include "core/tensor/tensor.h"

namespace cohort {

// The specs of a range of tensors or of values, in its order.
template <typename Items>
std::vector<TensorSpec> specs_of(const Items& items) {
  std::vector<TensorSpec> specs;
  specs.reserve(items.size());
  for (const auto& item : items) specs.push_back(item.spec());
  return specs;
}

}  // namespace cohort
