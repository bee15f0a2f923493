#include "core/runtime/signature.h"

namespace cohort {

Signature signature_of(std::span<const Tensor> inputs) {
  Signature signature;
  signature.reserve(inputs.size());
  for (const Tensor& input : inputs) signature.push_back(input.spec());
  return signature;
}

}  // namespace cohort
