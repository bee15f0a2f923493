#include "core/kernels/cpu/attention_blocks.h"
#include "core/kernels/cpu/floating_kernel.h"
#include "core/kernels/cpu/row_math.h"

// Attention by blocks with an online softmax (FlashAttention, Dao et al. 2022): out and the log of
// the sum of exponentials of each query's scores, without the matrix of scores.
namespace cohort {
namespace {

template <typename T>
class Attention final : public Kernel {
 public:
  explicit Attention(const KernelSpec& spec)
      : s_(spec.inputs[0].shape, spec.inputs[1].shape, spec.attributes) {}

  void run(const KernelContext& context) override {
    const int64_t blocks = (s_.queries + kQueryBlock - 1) / kQueryBlock;
    parallel_for(s_.batch * s_.heads * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        run_block(context, i / blocks, i % blocks * kQueryBlock);
    });
  }

 private:
  // The softmax of a block's queries over the keys seen so far.
  struct State {
    T highest[kQueryBlock], sum[kQueryBlock];  // greatest score, sum of exp(score - highest)
    alignas(kBufferAlignment) T scores[kQueryBlock * kKeyBlock];
  };

  void run_block(const KernelContext& context, int64_t item, int64_t first_query) const {
    const int64_t queries = std::min(kQueryBlock, s_.queries - first_query);
    const int64_t visible = s_.visible_keys(first_query + queries - 1);
    const T* q = context.input<T>(0) + s_.offset(item, s_.queries, first_query);
    T* out = context.output<T>(0) + s_.offset(item, s_.queries, first_query);
    State state;
    for (int64_t key = 0; key < visible; key += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, visible - key),
                    offset = s_.offset(item, s_.keys, key);
      multiply(queries, keys, s_.size, static_cast<T>(s_.scale), {q, s_.stride()},
               {context.input<T>(1) + offset, s_.stride(), true}, false, state.scores, keys);
      for (int64_t i = 0; i < queries; ++i)
        add_scores(state, i, keys, s_.visible_in_block(first_query + i, key, keys), key == 0,
                   out + i * s_.stride());
      multiply(queries, s_.size, keys, T(1), {state.scores, keys},
               {context.input<T>(2) + offset, s_.stride()}, key > 0, out, s_.stride());
    }
    finish(state, queries, out, context.output<T>(1) + item * s_.queries + first_query);
  }

  // Turns row i of the scores into weights, relative to the greatest score so far. What was summed
  // before is brought down to it; on the first keys there is nothing yet.
  void add_scores(State& state, int64_t i, int64_t keys, int64_t visible, bool first,
                  T* out) const {
    T* row = state.scores + i * keys;
    std::fill(row + visible, row + keys, T(0));
    if (visible == 0) return;
    const T before = first ? -std::numeric_limits<T>::infinity() : state.highest[i];
    const T highest = std::max(before, max_of(row, visible));
    const T sum =
        sum_over<T>(visible, [=](int64_t k) { return row[k] = math::exp(row[k] - highest); });
    const T shrink = first ? T(0) : math::exp(before - highest);
    state.highest[i] = highest;
    state.sum[i] = first ? sum : state.sum[i] * shrink + sum;
    if (!first && shrink != 1)
      for (int64_t d = 0; d < s_.size; ++d) out[d] *= shrink;
  }

  void finish(const State& state, int64_t queries, T* out, T* lse) const {
    for (int64_t i = 0; i < queries; ++i) {
      const T scale = 1 / state.sum[i];
      for (int64_t d = 0; d < s_.size; ++d) out[i * s_.stride() + d] *= scale;
      lse[i] = state.highest[i] + math::log(state.sum[i]);
    }
  }

  AttentionBlocks s_;
};

COHORT_REGISTER_KERNEL("Attention", kCpu, make_floating<Attention>);

}  // namespace
}  // namespace cohort
