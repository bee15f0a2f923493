#include "core/kernels/common/scratch.h"
#include "core/kernels/cuda/attention_chunks.h"
#include "core/kernels/cuda/attention_problem.h"
#include "core/kernels/cuda/box_copy.h"
#include "core/kernels/cuda/floating_kernel.h"
#include "core/kernels/cuda/row_math.h"

// Attention and its gradient: by the library where it has a plan, else composed of matrix products
// and of what is done to rows of scores, for as many heads at a time as have scores of kScoreBytes.
// With P the weights, dP = dout v^T and D = sum(dout * out) of each query: dS = scale * P * (dP -
// D), dv = P^T dout, dk = dS^T q and dq = dS k.
namespace cohort::cuda {
namespace {

constexpr size_t kScoreBytes = size_t{256} << 20;

// A product of `items` pairs of matrices, whose memory is dense.
class Product {
 public:
  Product(const KernelSpec& like, int64_t items, std::pair<int64_t, int64_t> a,
          std::pair<int64_t, int64_t> b, bool transpose_a, bool transpose_b) {
    const DType dtype = like.inputs[0].dtype;
    const Attributes attributes = {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}};
    const Shape y{items, transpose_a ? a.second : a.first, transpose_b ? b.first : b.second};
    kernel_ =
        make_kernel({"MatMul",
                     {{dtype, {items, a.first, a.second}}, {dtype, {items, b.first, b.second}}},
                     {{dtype, y}},
                     attributes,
                     like.device,
                     like.num_threads});
  }
  size_t scratch_bytes() const { return kernel_->scratch_bytes(); }
  void run(const KernelContext& context, const void* a, const void* b, void* y,
           void* scratch) const {
    const void* inputs[] = {a, b};
    void* outputs[] = {y};
    KernelContext inner = context;
    inner.inputs = inputs;
    inner.outputs = outputs;
    inner.scratch = scratch;
    kernel_->run(inner);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
};

// The heads of a chunk between tensors [batch, positions, heads, size] and dense matrices
// [positions, size].
class Heads {
 public:
  Heads(const AttentionSizes& s, const AttentionChunks& chunks, int64_t positions,
        size_t element_bytes)
      : sizes_(s),
        chunks_(chunks),
        positions_(positions),
        element_bytes_(element_bytes),
        gather_(extents(), strides(), dense()),
        scatter_(extents(), dense(), strides()) {}

  size_t bytes() const {
    return static_cast<size_t>(chunks_.items() * positions_ * sizes_.size) * element_bytes_;
  }
  void gather(Stream& stream, int64_t chunk, const void* tensor, void* matrices) const {
    copy_box(stream, gather_, static_cast<const char*>(tensor) + offset(chunk), matrices,
             element_bytes_);
  }
  void scatter(Stream& stream, int64_t chunk, const void* matrices, void* tensor) const {
    copy_box(stream, scatter_, matrices, static_cast<char*>(tensor) + offset(chunk),
             element_bytes_);
  }

 private:
  std::vector<int64_t> extents() const {
    return {chunks_.batches, chunks_.heads, positions_, sizes_.size};
  }
  std::vector<int64_t> strides() const {
    return {positions_ * sizes_.stride(), sizes_.size, sizes_.stride(), 1};
  }
  std::vector<int64_t> dense() const {
    const int64_t head = positions_ * sizes_.size;
    return {chunks_.heads * head, head, sizes_.size, 1};
  }
  // In bytes, of the chunk's first head.
  size_t offset(int64_t chunk) const {
    const int64_t item = chunk * chunks_.items();
    const int64_t elements =
        item / sizes_.heads * positions_ * sizes_.stride() + item % sizes_.heads * sizes_.size;
    return static_cast<size_t>(elements) * element_bytes_;
  }

  AttentionSizes sizes_;
  AttentionChunks chunks_;
  int64_t positions_;
  size_t element_bytes_;
  Box gather_, scatter_;
};

// Rows of products become weights; each row is a query's.
template <typename T>
void weigh(Stream& stream, const AttentionSizes& sizes, int64_t rows, T* scores, T* lse) {
  const AttentionSizes s = sizes;
  const T scale = static_cast<T>(s.scale);
  for_each_row(stream, rows, s.keys, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const int64_t visible = s.visible_keys(row % s.queries);
    T* x = scores + row * s.keys;
    for (int64_t i = team.rank(); i < visible; i += team.size()) x[i] *= scale;
    const T high = max_of(team, x, visible);
    const T sum = sum_over<T>(team, visible, [=](int64_t i) { return math::exp(x[i] - high); });
    for (int64_t i = team.rank(); i < s.keys; i += team.size())
      x[i] = i < visible ? math::exp(x[i] - high) / sum : T(0);
    if (team.rank() == 0) lse[row] = high + math::log(sum);
  });
}

// Products q k^T become weights, and products dout v^T the gradients of scores.
template <typename T>
void differentiate(Stream& stream, const AttentionSizes& sizes, int64_t rows, const T* lse,
                   const T* delta, T* scores, T* slopes) {
  const AttentionSizes s = sizes;
  const T scale = static_cast<T>(s.scale);
  for_each_element(stream, rows * s.keys, [=] COHORT_DEVICE(int64_t i) {
    const int64_t row = i / s.keys;
    const bool visible = i % s.keys < s.visible_keys(row % s.queries);
    const T weight = visible ? math::exp(scores[i] * scale - lse[row]) : T(0);
    scores[i] = weight;
    slopes[i] = visible ? scale * weight * (slopes[i] - delta[row]) : T(0);
  });
}

// delta[row] = sum(a * b) of a row of `size` elements.
template <typename T>
void multiply_rows(Stream& stream, int64_t rows, int64_t size, const T* a, const T* b, T* delta) {
  for_each_row(stream, rows, size, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const T *x = a + row * size, *y = b + row * size;
    const T sum = sum_over<T>(team, size, [=](int64_t i) { return x[i] * y[i]; });
    if (team.rank() == 0) delta[row] = sum;
  });
}

// What both directions are made of. T is float or double.
template <typename T>
class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const KernelSpec& spec, size_t q)
      : s_(spec.inputs[q].shape, spec.inputs[q + 1].shape, spec.attributes),
        chunks_(s_, sizeof(T), kScoreBytes),
        of_queries_(s_, chunks_, s_.queries, sizeof(T)),
        of_keys_(s_, chunks_, s_.keys, sizeof(T)),
        rows_(chunks_.items() * s_.queries),
        scores_(of_queries_and_keys(spec, false, true)),
        values_(spec, chunks_.items(), {s_.queries, s_.keys}, {s_.keys, s_.size}, false, false) {}

  size_t scratch_bytes() const final { return layout_.bytes(); }

 protected:
  // Of [queries, size] and [keys, size] matrices.
  Product of_queries_and_keys(const KernelSpec& spec, bool transpose_a, bool transpose_b) const {
    return {spec,        chunks_.items(), {s_.queries, s_.size}, {s_.keys, s_.size},
            transpose_a, transpose_b};
  }
  size_t add_queries() { return layout_.add(of_queries_.bytes()); }
  size_t add_keys() { return layout_.add(of_keys_.bytes()); }
  size_t add_scores() { return layout_.add(static_cast<size_t>(rows_ * s_.keys) * sizeof(T)); }
  T* at(const KernelContext& context, size_t place) const { return scratch_at<T>(context, place); }

  const AttentionSizes s_;
  const AttentionChunks chunks_;
  const Heads of_queries_, of_keys_;
  const int64_t rows_;             // queries of a chunk, of all heads
  const Product scores_, values_;  // q k^T, and weights times values
  ScratchLayout layout_;
};

template <typename T>
class Attention final : public AttentionKernel<T> {
  using Base = AttentionKernel<T>;
  using Base::at, Base::chunks_, Base::of_keys_, Base::of_queries_, Base::rows_, Base::s_;

 public:
  explicit Attention(const KernelSpec& spec)
      : Base(spec, 0),
        q_(Base::add_queries()),
        k_(Base::add_keys()),
        v_(Base::add_keys()),
        weights_(Base::add_scores()),
        products_(Base::layout_.add(
            std::max(Base::scores_.scratch_bytes(), Base::values_.scratch_bytes()))) {}

  void run(const KernelContext& context) override {
    for (int64_t chunk = 0; chunk < chunks_.count; ++chunk) run_chunk(context, chunk);
  }

 private:
  void run_chunk(const KernelContext& context, int64_t chunk) const {
    Stream& stream = *context.stream;
    T *q = at(context, q_), *k = at(context, k_), *v = at(context, v_),
      *weights = at(context, weights_);
    void* scratch = at(context, products_);
    of_queries_.gather(stream, chunk, context.inputs[0], q);
    of_keys_.gather(stream, chunk, context.inputs[1], k);
    of_keys_.gather(stream, chunk, context.inputs[2], v);
    Base::scores_.run(context, q, k, weights, scratch);
    weigh(stream, s_, rows_, weights, context.output<T>(1) + chunk * rows_);
    T* out = q;  // which is done with
    Base::values_.run(context, weights, v, out, scratch);
    of_queries_.scatter(stream, chunk, out, context.outputs[0]);
  }

  size_t q_, k_, v_, weights_, products_;
};

template <typename T>
class AttentionGrad final : public AttentionKernel<T> {
  using Base = AttentionKernel<T>;
  using Base::at, Base::chunks_, Base::of_keys_, Base::of_queries_, Base::rows_, Base::s_;

 public:
  explicit AttentionGrad(const KernelSpec& spec)
      : Base(spec, 1),
        by_weights_(spec, chunks_.items(), {s_.queries, s_.keys}, {s_.queries, s_.size}, true,
                    false),
        q_(Base::add_queries()),
        k_(Base::add_keys()),
        v_(Base::add_keys()),
        dout_(Base::add_queries()),
        out_(Base::add_queries()),
        result_(Base::add_keys()),
        weights_(Base::add_scores()),
        slopes_(Base::add_scores()),
        delta_(Base::layout_.add(static_cast<size_t>(rows_) * sizeof(T))),
        products_(Base::layout_.add(
            std::max({Base::scores_.scratch_bytes(), Base::values_.scratch_bytes(),
                      by_weights_.scratch_bytes()}))) {}

  // dk and dv of no queries are 0, as the products are.
  void run(const KernelContext& context) override {
    for (int64_t chunk = 0; chunk < chunks_.count; ++chunk) {
      gather(context, chunk);
      run_chunk(context, chunk);
    }
  }

 private:
  void gather(const KernelContext& context, int64_t chunk) const {
    Stream& stream = *context.stream;
    of_queries_.gather(stream, chunk, context.inputs[0], at(context, dout_));
    of_queries_.gather(stream, chunk, context.inputs[1], at(context, q_));
    of_keys_.gather(stream, chunk, context.inputs[2], at(context, k_));
    of_keys_.gather(stream, chunk, context.inputs[3], at(context, v_));
    of_queries_.gather(stream, chunk, context.inputs[4], at(context, out_));
  }

  void run_chunk(const KernelContext& context, int64_t chunk) const {
    Stream& stream = *context.stream;
    T *q = at(context, q_), *k = at(context, k_), *dout = at(context, dout_),
      *result = at(context, result_), *weights = at(context, weights_),
      *slopes = at(context, slopes_), *delta = at(context, delta_);
    void* scratch = at(context, products_);
    multiply_rows(stream, rows_, s_.size, dout, at(context, out_), delta);
    Base::scores_.run(context, q, k, weights, scratch);
    Base::scores_.run(context, dout, at(context, v_), slopes, scratch);
    differentiate(stream, s_, rows_, context.input<T>(5) + chunk * rows_, delta, weights, slopes);
    by_weights_.run(context, weights, dout, result, scratch);
    of_keys_.scatter(stream, chunk, result, context.outputs[2]);
    by_weights_.run(context, slopes, q, result, scratch);
    of_keys_.scatter(stream, chunk, result, context.outputs[1]);
    Base::values_.run(context, slopes, k, q, scratch);  // q is done with
    of_queries_.scatter(stream, chunk, q, context.outputs[0]);
  }

  const Product by_weights_;  // the transpose of weights, or of slopes, times [queries, size]
  size_t q_, k_, v_, dout_, out_, result_, weights_, slopes_, delta_, products_;
};

template <template <typename> class Composed>
std::unique_ptr<Kernel> make_attention(const KernelSpec& spec) {
  const AttentionProblem problem(spec);
  if (problem.is_for_libraries())
    if (auto plan = find_attention_plan(problem, spec.device))
      return std::make_unique<LibraryKernel>(std::move(plan));
  return make_floating<Composed>(spec);
}

COHORT_REGISTER_KERNEL("Attention", kGpu, make_attention<Attention>);
COHORT_REGISTER_KERNEL("AttentionGrad", kGpu, make_attention<AttentionGrad>);

}  // namespace
}  // namespace cohort::cuda
