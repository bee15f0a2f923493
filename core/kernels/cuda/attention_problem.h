#pragma once

#include <compare>
#include <memory>

#include "core/kernels/common/attention_sizes.h"
#include "core/kernels/cuda/attention_chunks.h"
#include "core/kernels/cuda/library_plan.h"

namespace cohort::cuda {

// Attention, or its gradient, as a library takes it, and with that all that a plan of it depends
// on.
struct AttentionProblem {
  bool gradient;
  DType dtype;
  int64_t batch, queries, keys, heads, size;
  bool causal;  // not of a single query, which is behind all keys
  float scale;

  auto operator<=>(const AttentionProblem&) const = default;

  // Of Attention or AttentionGrad.
  explicit AttentionProblem(const KernelSpec& spec);
  // Whether libraries may have a plan: those of 16 bits whose heads have 8 to 256 elements, by 8,
  // of which cuDNN takes more than 128 on Hopper. A causal mask that is not on the main diagonal
  // needs blocks of 64 positions.
  bool is_for_libraries() const;
  // Whether cuDNN of this version (cudnnGetVersion) computes it rightly: 9.10.0 and 9.10.1 do not.
  // Of gradients none does those of a single query or key, nor without a causal mask those over
  // keys that end in the middle of a block of 128, or anywhere in one where heads have more than
  // 128 elements, of which it is not known; and before 9.15.1 none over keys that are not whole
  // blocks.
  bool is_right_in_cudnn(size_t version) const;
  // The heads that cuDNN does at a time. Of gradients its engine on Hopper keeps 16 bits for each
  // score: those that have a GiB of them, one at least. All where parts of lse would not begin at
  // multiples of 16 bytes.
  AttentionChunks chunks() const;
};

// The library's plan for a problem on `device`, cached; null where it has none. One source of this
// is linked: cuDNN's, or a simulation in tests. Thread-safe.
std::shared_ptr<LibraryPlan> find_attention_plan(const AttentionProblem& problem, Device device);

}  // namespace cohort::cuda
