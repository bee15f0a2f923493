#include <cmath>

#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/floating_kernel.h"
#include "core/kernels/cuda/row_norm_problem.h"

// LayerNorm, RmsNorm and their gradients, by the library where it has a plan: statistics for each
// row. Rows of no columns have mean and mean square 0.
namespace cohort::cuda {
namespace {

// Centered: LayerNorm, else RmsNorm.
template <typename T, bool kCentered>
void normalise_rows(const KernelContext& context, RowSizes sizes, T epsilon) {
  const T *x = context.input<T>(0), *gamma = context.input<T>(1),
          *beta = kCentered ? context.input<T>(2) : nullptr;
  T *y = context.output<T>(0), *means = kCentered ? context.output<T>(1) : nullptr,
    *rstds = context.output<T>(kCentered ? 2 : 1);
  const int64_t n = sizes.columns, divisor = std::max<int64_t>(n, 1);
  for_each_row(*context.stream, sizes.rows, n, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const T* from = x + row * n;
    const T mean = beta == nullptr
                       ? T(0)
                       : sum_over<T>(team, n, [=](int64_t c) { return from[c]; }) / T(divisor);
    const T variance =
        sum_over<T>(team, n, [=](int64_t c) { return (from[c] - mean) * (from[c] - mean); }) /
        T(divisor);
    const T rstd = 1 / std::sqrt(variance + epsilon);
    for (int64_t c = team.rank(); c < n; c += team.size())
      y[row * n + c] = (from[c] - mean) * rstd * gamma[c] + (beta == nullptr ? T(0) : beta[c]);
    if (team.rank() != 0) return;
    if (means != nullptr) means[row] = mean;
    rstds[row] = rstd;
  });
}

template <typename T, bool kCentered>
class RowNorm : public Kernel {
 public:
  explicit RowNorm(const KernelSpec& spec)
      : sizes_(spec.inputs[0].shape),
        epsilon_(static_cast<T>(spec.attributes.get<double>("epsilon"))) {}
  bool can_run_in_place(int output, int input) const override { return output == 0 && input == 0; }
  void run(const KernelContext& context) override {
    normalise_rows<T, kCentered>(context, sizes_, epsilon_);
  }

 private:
  RowSizes sizes_;
  T epsilon_;
};

// dgamma = sum(dy * xhat) and, where it is not null, dbeta = sum(dy).
template <typename T>
void parameter_gradients(const KernelContext& context, const ColumnChunks& chunks, const T* means,
                         const T* rstds, Pair<T>* partial, T* dgamma, T* dbeta) {
  const T *dy = context.input<T>(0), *x = context.input<T>(1);
  const int64_t n = chunks.columns;
  sum_chunks<T>(*context.stream, chunks, partial,
                [=] COHORT_DEVICE(int64_t row, int64_t c, int64_t) -> Pair<T> {
                  const T d = dy[row * n + c], mean = means == nullptr ? T(0) : means[row];
                  return {d * (x[row * n + c] - mean) * rstds[row], d};
                });
  for_each_column(*context.stream, chunks, [=] COHORT_DEVICE(const Team& team, int64_t c) {
    const Pair<double> total = add_chunks(team, chunks, partial, c);
    if (team.rank() != 0) return;
    dgamma[c] = static_cast<T>(total.a);
    if (dbeta != nullptr) dbeta[c] = static_cast<T>(total.b);
  });
}

// With xhat = (x - mean) * rstd and g = dy * gamma:
//   LayerNorm: dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
//   RmsNorm:   the same with mean = 0, without mean(g).
template <typename T>
void input_gradient(const KernelContext& context, RowSizes sizes, const T* means, const T* rstds) {
  const T *dy = context.input<T>(0), *x = context.input<T>(1), *gamma = context.input<T>(2);
  T* dx = context.output<T>(0);
  const int64_t n = sizes.columns, divisor = std::max<int64_t>(n, 1);
  for_each_row(*context.stream, sizes.rows, n, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    const T *slope = dy + row * n, *value = x + row * n;
    const T rstd = rstds[row], mean = means == nullptr ? T(0) : means[row];
    const T center = means == nullptr ? T(0) : sum_over<T>(team, n, [=](int64_t c) {
                                                 return slope[c] * gamma[c];
                                               }) / T(divisor);
    const T pull =
        rstd *
        sum_over<T>(team, n, [=](int64_t c) { return slope[c] * gamma[c] * (value[c] - mean); }) /
        T(divisor);
    for (int64_t c = team.rank(); c < n; c += team.size())
      dx[row * n + c] = rstd * (slope[c] * gamma[c] - center - (value[c] - mean) * rstd * pull);
  });
}

template <typename T, bool kCentered>
class RowNormGrad : public Kernel {
 public:
  explicit RowNormGrad(const KernelSpec& spec)
      : sizes_(spec.inputs[1].shape),
        chunks_(sizes_),
        partial_(layout_.add(static_cast<size_t>(chunks_.sums()) * sizeof(Pair<T>))) {}

  size_t scratch_bytes() const override { return layout_.bytes(); }
  bool can_run_in_place(int output, int input) const override { return output == 0 && input <= 1; }

  // dx may be dy or x, and is written last.
  void run(const KernelContext& context) override {
    const T *means = kCentered ? context.input<T>(3) : nullptr,
            *rstds = context.input<T>(kCentered ? 4 : 3);
    parameter_gradients<T>(context, chunks_, means, rstds, scratch_at<Pair<T>>(context, partial_),
                           context.output<T>(1), kCentered ? context.output<T>(2) : nullptr);
    input_gradient<T>(context, sizes_, means, rstds);
  }

 private:
  RowSizes sizes_;
  ColumnChunks chunks_;
  ScratchLayout layout_;
  size_t partial_;
};

template <typename T>
using LayerNorm = RowNorm<T, true>;
template <typename T>
using RmsNorm = RowNorm<T, false>;
template <typename T>
using LayerNormGrad = RowNormGrad<T, true>;
template <typename T>
using RmsNormGrad = RowNormGrad<T, false>;

template <template <typename> class Own>
std::unique_ptr<Kernel> make_row_norm(const KernelSpec& spec) {
  const RowNormProblem problem(spec);
  if (problem.is_for_libraries())
    if (auto plan = find_row_norm_plan(problem, spec.device))
      return std::make_unique<LibraryKernel>(std::move(plan));
  return make_floating<Own>(spec);
}

COHORT_REGISTER_KERNEL("LayerNorm", kGpu, make_row_norm<LayerNorm>);
COHORT_REGISTER_KERNEL("LayerNormGrad", kGpu, make_row_norm<LayerNormGrad>);
COHORT_REGISTER_KERNEL("RmsNorm", kGpu, make_row_norm<RmsNorm>);
COHORT_REGISTER_KERNEL("RmsNormGrad", kGpu, make_row_norm<RmsNormGrad>);

}  // namespace
}  // namespace cohort::cuda
