#include "core/kernels/cuda/attention_problem.h"

#include <algorithm>
#include <limits>

namespace cohort::cuda {

AttentionProblem::AttentionProblem(const KernelSpec& spec) : gradient(spec.op == "AttentionGrad") {
  const size_t q = gradient ? 1 : 0;  // behind dout
  const AttentionSizes s(spec.inputs[q].shape, spec.inputs[q + 1].shape, spec.attributes);
  dtype = spec.inputs[q].dtype;
  batch = s.batch;
  queries = s.queries;
  keys = s.keys;
  heads = s.heads;
  size = s.size;
  causal = s.causal && s.queries > 1;
  scale = static_cast<float>(s.scale);
}

bool AttentionProblem::is_for_libraries() const {
  constexpr int64_t kStep = 8, kLargest = 256, kBlock = 64;
  if (!is_half(dtype)) return false;
  if (std::min({batch, queries, keys, heads, size}) < 1) return false;
  if (size % kStep != 0 || size > kLargest) return false;
  return !causal || queries == keys || (queries % kBlock == 0 && keys % kBlock == 0);
}

bool AttentionProblem::is_right_in_cudnn(size_t version) const {
  constexpr int64_t kBlock = 128, kLargestKnown = 128;
  if (version == 91000 || version == 91001) return false;
  if (!gradient) return true;
  if (queries == 1) return false;
  if (keys % kBlock == 0) return true;
  if (keys == 1 || version <= 91500) return false;
  return causal || (size <= kLargestKnown && keys % kBlock != kBlock / 2);
}

AttentionChunks AttentionProblem::chunks() const {
  constexpr size_t kScoreBytes = size_t{1} << 30;
  constexpr int64_t kAligned = 16 / sizeof(float);
  const Attributes attributes = {{"causal", causal}, {"scale", static_cast<double>(scale)}};
  const AttentionSizes sizes({batch, queries, heads, size}, {batch, keys, heads, size}, attributes);
  const bool is_divided = gradient && queries % kAligned == 0;
  return AttentionChunks(sizes, dtype_size(dtype),
                         is_divided ? kScoreBytes : std::numeric_limits<size_t>::max());
}

}  // namespace cohort::cuda
