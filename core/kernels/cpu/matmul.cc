#include <utility>

#include <Eigen/Core>

#include "core/base/prefetch.h"
#include "core/kernels/cpu/dnnl_sequence.h"
#include "core/kernels/cpu/floating_kernel.h"

// MatMul(a, b) and FusedMatMul(a, b, bias): oneDNN for float32 and, where the processor has it,
// bfloat16; Eigen for float64 and for empty operands. The attribute `rows`, {begin, end}, says that
// no others of the product are needed, of one with a transposed; what those hold is undefined.
namespace cohort {
namespace {

using dnnl::memory;

// A product of [batch, m, k] and [batch, k, n]. One b for all batches of an a that is not
// transposed makes a single tall product.
struct MatMulSizes {
  int64_t batch, m, n, k;
  int64_t first_row = 0;
  int64_t other_rows = 0;  // of the product, which are not computed
  bool transpose_a, transpose_b, fused;
  std::string activation;

  explicit MatMulSizes(const KernelSpec& spec)
      : transpose_a(spec.attributes.get<bool>("transpose_a")),
        transpose_b(spec.attributes.get<bool>("transpose_b")),
        fused(spec.inputs.size() == 3),
        activation(spec.attributes.get_or<std::string>("activation", "")) {
    const Shape &a = spec.inputs[0].shape, &b = spec.inputs[1].shape;
    const int rank = a.rank();
    batch = a.count(0, rank - 2);
    m = a.dim(transpose_a ? -1 : -2);
    k = a.dim(transpose_a ? -2 : -1);
    n = b.dim(transpose_b ? -2 : -1);
    if (b.rank() == 2 && !transpose_a) m *= std::exchange(batch, 1);
    if (!spec.attributes.has("rows")) return;
    const auto& rows = spec.attributes.get<std::vector<int64_t>>("rows");
    if (!transpose_a || batch != 1 || fused || rows.size() != 2 || rows[0] < 0 ||
        rows[0] >= rows[1] || rows[1] > m)
      invalid("MatMul: rows must be the first and one past the last of the ", m,
              " rows of one product with a transposed");
    first_row = rows[0];
    other_rows = m - (rows[1] - rows[0]);
    m -= other_rows;
  }
};

// Rows and columns of a batch of matrices, stored transposed or not, with `gap` elements between
// the lines that are stored one after the other.
memory::desc matrix(DType dtype, int64_t batch, int64_t rows, int64_t columns, bool transposed,
                    int64_t gap = 0) {
  const int64_t lines = transposed ? columns : rows;
  const int64_t distance = (transposed ? rows : columns) + gap;
  const memory::dims strides = transposed ? memory::dims{lines * distance, 1, distance}
                                          : memory::dims{lines * distance, distance, 1};
  return {{batch, rows, columns}, dnnl_type(dtype), strides};
}

// The gap between lines that a matrix is copied with before it is multiplied, as often as `uses`; 0
// where it is multiplied as it is. Without AVX-512, oneDNN reads it in place, a piece of each of
// its s.k lines after the other. Lines at distances of 2 KiB share few sets of the caches, so that
// many come from memory each time: on a Zen 3 that was half the speed, the copy included.
int64_t gap_of(const MatMulSizes& s, DType dtype, int64_t line, int64_t uses) {
  constexpr int64_t kDistance = 2048, kManyLines = 512, kManyUses = 16;
  const auto element = static_cast<int64_t>(dtype_size(dtype));
  const bool is_slow = line * element % kDistance == 0 && s.k >= kManyLines && s.batch == 1;
  const bool pays = is_slow && uses >= kManyUses && !dnnl_has(dnnl::cpu_isa::avx512_core);
  return pays ? static_cast<int64_t>(kCacheLine) / element : 0;
}

// Hands a kernel the memory where its rows begin.
class RowsKernel final : public Kernel {
 public:
  RowsKernel(std::unique_ptr<Kernel> kernel, const KernelSpec& spec, const MatMulSizes& sizes)
      : kernel_(std::move(kernel)),
        offset_a_(static_cast<size_t>(sizes.first_row) * dtype_size(spec.inputs[0].dtype)),
        offset_y_(static_cast<size_t>(sizes.first_row * sizes.n) *
                  dtype_size(spec.outputs[0].dtype)) {}

  size_t scratch_bytes() const override { return kernel_->scratch_bytes(); }

  void run(const KernelContext& context) override {
    const void* const inputs[] = {context.input<char>(0) + offset_a_, context.inputs[1]};
    void* const outputs[] = {context.output<char>(0) + offset_y_};
    kernel_->run({inputs, outputs, context.scratch, context.step});
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  size_t offset_a_, offset_y_;  // in bytes
};

std::unique_ptr<Kernel> make_dnnl_matmul(const KernelSpec& spec) {
  const MatMulSizes s(spec);
  const DType of_a = spec.inputs[0].dtype, of_b = spec.inputs[1].dtype;
  const int64_t line_a = s.m + s.other_rows,
                gap_a = s.transpose_a ? gap_of(s, of_a, line_a, s.n) : 0;
  const int64_t gap_b = s.transpose_b ? 0 : gap_of(s, of_b, s.n, s.m);
  auto kernel = std::make_unique<DnnlSequence>();
  const auto stored_a = matrix(of_a, s.batch, s.m, s.k, s.transpose_a, s.other_rows);
  const auto stored_b = matrix(of_b, s.batch, s.k, s.n, s.transpose_b);
  const auto a = gap_a > 0 ? matrix(of_a, s.batch, s.m, s.k, s.transpose_a, gap_a) : stored_a;
  const auto b = matrix(of_b, s.batch, s.k, s.n, s.transpose_b, gap_b);
  const auto y = matrix(spec.outputs[0].dtype, s.batch, s.m, s.n, false);
  const auto bias = s.fused ? matrix(spec.inputs[2].dtype, 1, 1, s.n, false) : memory::desc();
  const auto desc = s.fused ? dnnl::matmul::desc(a, b, bias, y) : dnnl::matmul::desc(a, b, y);
  const dnnl::matmul::primitive_desc prepared(desc, DnnlSequence::attributes(s.activation),
                                              dnnl_engine());

  std::vector<DnnlSequence::Argument> arguments = {
      {DNNL_ARG_SRC, a, kernel->reordered(DnnlSequence::input(0), stored_a, a)},
      {DNNL_ARG_WEIGHTS, b, kernel->reordered(DnnlSequence::input(1), stored_b, b)},
      {DNNL_ARG_DST, y, DnnlSequence::output(0)}};
  if (s.fused) arguments.push_back({DNNL_ARG_BIAS, bias, DnnlSequence::input(2)});
  kernel->add(dnnl::matmul(prepared), std::move(arguments));
  kernel->finish_with(s.activation, s.batch * s.m * s.n);
  if (s.other_rows == 0) return kernel;
  return std::make_unique<RowsKernel>(std::move(kernel), spec, s);
}

template <typename T>
class EigenMatMul final : public Kernel {
 public:
  explicit EigenMatMul(const KernelSpec& spec) : s_(spec), epilogue_(s_.activation) {}

  void run(const KernelContext& context) override {
    const T *a = context.input<T>(0) + s_.first_row, *b = context.input<T>(1);
    T* y = context.output<T>(0) + s_.first_row * s_.n;
    for (int64_t i = 0; i < s_.batch; ++i)
      product(a + i * s_.m * s_.k, b + i * s_.k * s_.n, y + i * s_.m * s_.n);
    epilogue_.run(y, s_.batch * s_.m, s_.n, s_.fused ? context.input<T>(2) : nullptr);
  }

 private:
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  using View = Eigen::Map<const Matrix, Eigen::Unaligned, Strides>;

  static View view(const T* data, int64_t rows, int64_t columns, bool transposed, int64_t gap = 0) {
    return View(data, rows, columns, transposed ? Strides(1, rows + gap) : Strides(columns, 1));
  }
  void product(const T* a, const T* b, T* y) const {
    Eigen::Map<Matrix>(y, s_.m, s_.n).noalias() =
        view(a, s_.m, s_.k, s_.transpose_a, s_.other_rows) * view(b, s_.k, s_.n, s_.transpose_b);
  }

  MatMulSizes s_;
  Epilogue<T> epilogue_;
};

std::unique_ptr<Kernel> make_matmul(const KernelSpec& spec) {
  return make_dnnl_or<EigenMatMul>(spec, make_dnnl_matmul);
}

COHORT_REGISTER_KERNEL("MatMul", kCpu, make_matmul);
COHORT_REGISTER_KERNEL("FusedMatMul", kCpu, make_matmul);

}  // namespace
}  // namespace cohort
