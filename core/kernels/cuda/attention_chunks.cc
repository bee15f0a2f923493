#include "core/kernels/cuda/attention_chunks.h"

namespace cohort::cuda {
namespace {

// The largest divisor of n that is at most `most`, and 1 at least.
int64_t divisor(int64_t n, int64_t most) {
  for (int64_t d = most < n ? most : n; d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

}  // namespace

AttentionChunks::AttentionChunks(const AttentionSizes& s, size_t element_bytes, size_t limit) {
  const double of_head = static_cast<double>(s.queries) * static_cast<double>(s.keys) *
                         static_cast<double>(element_bytes);
  const double fit = static_cast<double>(limit) / (of_head < 1 ? 1 : of_head);
  const int64_t all = s.batch * s.heads;
  const int64_t most = fit < static_cast<double>(all) ? static_cast<int64_t>(fit) : all;
  heads = divisor(s.heads, most);
  batches = heads == s.heads ? divisor(s.batch, heads > 0 ? most / heads : 1) : 1;
  count = all == 0 ? 0 : all / (batches * heads);
}

}  // namespace cohort::cuda
