#pragma once

#include "core/kernels/kernel.h"

namespace cohort {

// The sizes of Attention and AttentionGrad, whose tensors are [batch, positions, heads, size].
struct AttentionSizes {
  int64_t batch, queries, keys, heads, size;
  bool causal;
  double scale;

  AttentionSizes(const Shape& q, const Shape& k, const Attributes& attributes)
      : batch(q[0]),
        queries(q[1]),
        keys(k[1]),
        heads(q[2]),
        size(q[3]),
        causal(attributes.get<bool>("causal")),
        scale(attributes.get<double>("scale")) {}

  int64_t stride() const { return heads * size; }  // from one position of a head to the next
  // The keys that a query sees: at least 1, the first ones.
  constexpr int64_t visible_keys(int64_t query) const {
    return causal ? query + 1 + keys - queries : keys;
  }
};

}  // namespace cohort
