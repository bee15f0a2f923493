#include "core/kernels/cpu/attention_blocks.h"
#include "core/kernels/cpu/floating_kernel.h"
#include "core/kernels/cpu/row_math.h"

// AttentionGrad: the weights are recomputed block by block from q, k and lse. With P the weights of
// a block, dP = dout v^T and D = sum(dout * out) of each query: dS = scale * P * (dP - D), dv = P^T
// dout, dk = dS^T q and dq = dS k, summed over blocks.
namespace cohort {
namespace {

template <typename T>
class AttentionGrad final : public Kernel {
 public:
  explicit AttentionGrad(const KernelSpec& spec)
      : s_(spec.inputs[1].shape, spec.inputs[2].shape, spec.attributes) {}

  // Parallel over heads: all blocks of one add to the same gradients.
  void run(const KernelContext& context) override {
    parallel_for(s_.batch * s_.heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        clear(context.output<T>(0), item, s_.queries);
        clear(context.output<T>(1), item, s_.keys);
        clear(context.output<T>(2), item, s_.keys);
        for (int64_t key = 0; key < s_.keys; key += kKeyBlock)
          for (int64_t query = 0; query < s_.queries; query += kQueryBlock)
            run_block(context, item, query, key);
      }
    });
  }

 private:
  void clear(T* gradient, int64_t item, int64_t positions) const {
    for (int64_t p = 0; p < positions; ++p)
      std::fill_n(gradient + s_.offset(item, positions, p), s_.size, T(0));
  }

  void run_block(const KernelContext& context, int64_t item, int64_t first_query,
                 int64_t first_key) const {
    const int64_t queries = std::min(kQueryBlock, s_.queries - first_query), stride = s_.stride();
    const int64_t keys = s_.visible_in_block(first_query + queries - 1, first_key, kKeyBlock);
    const int64_t at_q = s_.offset(item, s_.queries, first_query),
                  at_k = s_.offset(item, s_.keys, first_key);
    const T *dout = context.input<T>(0) + at_q, *q = context.input<T>(1) + at_q,
            *k = context.input<T>(2) + at_k;
    const T *v = context.input<T>(3) + at_k, *out = context.input<T>(4) + at_q;
    const T* lse = context.input<T>(5) + item * s_.queries + first_query;
    if (keys == 0) return;

    alignas(kBufferAlignment) T weights[kQueryBlock * kKeyBlock], dscores[kQueryBlock * kKeyBlock];
    multiply(queries, keys, s_.size, static_cast<T>(s_.scale), {q, stride}, {k, stride, true},
             false, weights, keys);
    multiply(queries, keys, s_.size, T(1), {dout, stride}, {v, stride, true}, false, dscores, keys);
    for (int64_t i = 0; i < queries; ++i) {
      const T *dout_row = dout + i * stride, *out_row = out + i * stride;
      const T dot = sum_over<T>(s_.size, [=](int64_t d) { return dout_row[d] * out_row[d]; });
      const int64_t visible = s_.visible_in_block(first_query + i, first_key, keys);
      differentiate_row(weights + i * keys, dscores + i * keys, keys, visible, lse[i], dot);
    }
    multiply(keys, s_.size, queries, T(1), {weights, keys, true}, {dout, stride}, true,
             context.output<T>(2) + at_k, stride);
    multiply(keys, s_.size, queries, T(1), {dscores, keys, true}, {q, stride}, true,
             context.output<T>(1) + at_k, stride);
    multiply(queries, s_.size, keys, T(1), {dscores, keys}, {k, stride}, true,
             context.output<T>(0) + at_q, stride);
  }

  // In: scores and dP of one query; out: P and dS.
  void differentiate_row(T* weights, T* dscores, int64_t keys, int64_t visible, T lse,
                         T dot) const {
    const T scale = static_cast<T>(s_.scale);
#pragma omp simd
    for (int64_t c = 0; c < visible; ++c) {
      weights[c] = math::exp(weights[c] - lse);
      dscores[c] = scale * weights[c] * (dscores[c] - dot);
    }
    std::fill(weights + visible, weights + keys, T(0));
    std::fill(dscores + visible, dscores + keys, T(0));
  }

  AttentionBlocks s_;
};

COHORT_REGISTER_KERNEL("AttentionGrad", kCpu, make_floating<AttentionGrad>);

}  // namespace
}  // namespace cohort
