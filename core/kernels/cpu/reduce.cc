#include <algorithm>

#include "core/base/threads.h"
#include "core/kernels/common/axis_groups.h"
#include "core/kernels/common/reduce_ops.h"

namespace cohort {
namespace {

constexpr int64_t kRowBlock = 1024;    // consecutive elements that one partial result covers
constexpr int64_t kColumnBlock = 128;  // the same of rows, where columns are reduced
// Columns that are accumulated at a time, so that they stay in the L1 cache.
constexpr int64_t kMaxColumns = 1024;
constexpr int64_t kMinElementsPerThread = 16384;

// Reduces [outer, count, inner] to [outer, blocks, inner], every block of `block` entries to one.
// The blocks depend on the shape only, hence so does the order of additions: results are the same
// for any number of threads, and rounding errors grow with the number of passes rather than of
// elements.
struct Pass {
  int64_t outer, count, inner, block;
  int64_t blocks() const { return count == 0 ? 1 : (count + block - 1) / block; }
};

// The passes that reduce `axes` of `shape`, innermost axes first.
std::vector<Pass> plan_passes(const Shape& shape, const std::vector<int64_t>& axes) {
  const std::vector<AxisGroup> groups = group_axes(shape, axes);
  std::vector<Pass> passes;
  int64_t inner = 1;
  for (size_t g = groups.size(); g-- > 0;) {
    int64_t count = groups[g].extent;
    if (!groups[g].reduced) {
      inner *= count;
      continue;
    }
    int64_t outer = 1;
    for (size_t i = 0; i < g; ++i) outer *= groups[i].extent;
    do {
      // A few columns are too short for vector code: neighbouring rows are laid side by side first.
      int64_t fold = 1;
      while (inner > 1 && 2 * fold * inner <= kMaxColumns / 2 && count % (2 * fold) == 0 &&
             count / fold > 16)
        fold *= 2;
      passes.push_back({outer, count / fold, inner * fold, inner == 1 ? kRowBlock : kColumnBlock});
      count = passes.back().blocks() * fold;
    } while (count > 1);
  }
  if (passes.empty()) passes.push_back({1, 1, shape.num_elements(), 1});
  return passes;
}

template <typename F, typename From, typename Acc>
Acc reduce_row(const From* x, int64_t n, Acc identity) {
  constexpr int kLanes = 32;  // independent partial results: as many as vector units keep in flight
  Acc lanes[kLanes];
  std::fill_n(lanes, kLanes, identity);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lanes[j] = F{}(lanes[j], convert<Acc>(x[i + j]));
  for (int j = 0; i < n; ++i, ++j) lanes[j] = F{}(lanes[j], convert<Acc>(x[i]));
  for (int width = std::min<int64_t>(n, kLanes) > 1 ? kLanes / 2 : 0; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] = F{}(lanes[j], lanes[j + width]);
  return lanes[0];
}

// Reduces `rows` rows of `columns` elements, `stride` apart, to out[columns].
template <typename F, typename From, typename Acc>
void reduce_columns(const From* x, int64_t rows, int64_t stride, int64_t columns, Acc identity,
                    Acc* out) {
  std::fill_n(out, columns, identity);
  const auto at = [&](int64_t row, int64_t j) { return convert<Acc>(x[row * stride + j]); };
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4)
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j)
      out[j] =
          F{}(out[j], F{}(F{}(at(row, j), at(row + 1, j)), F{}(at(row + 2, j), at(row + 3, j))));
  for (; row < rows; ++row)
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j) out[j] = F{}(out[j], at(row, j));
}

template <typename F, typename From, typename Acc>
void run_pass(const Pass& p, const From* x, Acc identity, Acc* out) {
  const int64_t blocks = p.blocks();
  const int64_t chunks = (p.inner + kMaxColumns - 1) / kMaxColumns;
  const int64_t cost = std::min(p.count, p.block) * std::min(p.inner, kMaxColumns);
  parallel_for(p.outer * blocks * chunks, kMinElementsPerThread / (cost + 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t item = begin; item < end; ++item) {
                   const int64_t column = item % chunks * kMaxColumns, target = item / chunks;
                   const int64_t first = target % blocks * p.block,
                                 rows = std::min(p.block, p.count - first);
                   const From* source = x + (target / blocks * p.count + first) * p.inner + column;
                   Acc* result = out + target * p.inner + column;
                   if (p.inner == 1)
                     *result = reduce_row<F>(source, rows, identity);
                   else
                     reduce_columns<F>(source, rows, p.inner,
                                       std::min(kMaxColumns, p.inner - column), identity, result);
                 }
               });
}

template <typename T, typename F>
class ReduceKernel final : public Kernel {
 public:
  using Acc = Accumulator<T>;

  ReduceKernel(const KernelSpec& spec, Acc identity, bool mean)
      : identity_(identity),
        passes_(
            plan_passes(spec.inputs[0].shape, spec.attributes.get<std::vector<int64_t>>("axes"))),
        outputs_(spec.outputs[0].shape.num_elements()),
        divisor_(mean && outputs_ > 0 ? spec.inputs[0].shape.num_elements() / outputs_ : 1) {
    for (size_t i = 0; i < passes_.size(); ++i)
      half_scratch_ =
          std::max(half_scratch_, passes_[i].outer * passes_[i].blocks() * passes_[i].inner);
  }

  // Passes go back and forth between two halves.
  size_t scratch_bytes() const override { return 2 * half_scratch_ * sizeof(Acc); }

  void run(const KernelContext& context) override {
    Acc* halves[2] = {static_cast<Acc*>(context.scratch),
                      static_cast<Acc*>(context.scratch) + half_scratch_};
    run_pass<F>(passes_[0], context.input<T>(0), identity_, halves[0]);
    for (size_t i = 1; i < passes_.size(); ++i)
      run_pass<F>(passes_[i], halves[(i + 1) % 2], identity_, halves[i % 2]);
    finish(halves[(passes_.size() + 1) % 2], context.output<T>(0));
  }

 private:
  void finish(const Acc* result, T* out) const {
    const Acc divisor = static_cast<Acc>(divisor_);
    parallel_for(outputs_, kMinElementsPerThread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        out[i] = convert<T>(divisor_ == 1 ? result[i] : functors::Div{}(result[i], divisor));
    });
  }

  Acc identity_;
  std::vector<Pass> passes_;
  int64_t outputs_, divisor_;
  int64_t half_scratch_ = 0;  // elements
};

const bool kRegistered = [] {
  register_reductions<ReduceKernel>(DeviceType::kCpu);
  return true;
}();

}  // namespace
}  // namespace cohort
