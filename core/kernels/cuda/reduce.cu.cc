#include <algorithm>

#include "core/kernels/common/reduce_ops.h"
#include "core/kernels/cuda/launch.h"
#include "core/kernels/cuda/reduce_passes.h"

namespace cohort::cuda {
namespace {

template <typename Op, typename From, typename Acc>
void reduce_rows(Stream& stream, const ReducePass& p, const From* x, Acc identity, Acc* out) {
  const int64_t blocks = p.blocks(), count = p.count, block = p.block;
  for_each_row(stream, p.outer * blocks, std::min(block, count),
               [=] COHORT_DEVICE(const Team& team, int64_t item) {
                 const int64_t begin = item % blocks * block;
                 const int64_t end = begin + block < count ? begin + block : count;
                 const From* row = x + item / blocks * count;
                 Acc result = identity;
                 for (int64_t i = begin + team.rank(); i < end; i += team.size())
                   result = Op{}(result, convert<Acc>(row[i]));
                 result = team.reduce(result, identity, Op{});
                 if (team.rank() == 0) out[item] = result;
               });
}

template <typename Op, typename From, typename Acc>
void reduce_columns(Stream& stream, const ReducePass& p, const From* x, Acc identity, Acc* out) {
  const int64_t blocks = p.blocks(), count = p.count, block = p.block, inner = p.inner;
  for_each_element(stream, p.results(), [=] COHORT_DEVICE(int64_t i) {
    const int64_t column = i % inner, item = i / inner;
    const int64_t begin = item % blocks * block;
    const int64_t end = begin + block < count ? begin + block : count;
    const From* from = x + item / blocks * count * inner + column;
    Acc result = identity;
    for (int64_t k = begin; k < end; ++k) result = Op{}(result, convert<Acc>(from[k * inner]));
    out[i] = result;
  });
}

template <typename Op, typename From, typename Acc>
void run_pass(Stream& stream, const ReducePass& p, const From* x, Acc identity, Acc* out) {
  if (p.inner == 1)
    reduce_rows<Op>(stream, p, x, identity, out);
  else
    reduce_columns<Op>(stream, p, x, identity, out);
}

template <typename T, typename Acc>
void finish(Stream& stream, const Acc* result, int64_t count, int64_t divisor, T* out) {
  const Acc by = static_cast<Acc>(divisor);
  for_each_element(stream, count, [=] COHORT_DEVICE(int64_t i) {
    out[i] = convert<T>(divisor == 1 ? result[i] : functors::Div{}(result[i], by));
  });
}

template <typename T, typename Op>
class ReduceKernel final : public Kernel {
 public:
  // Long sums of float32 would lose digits in it, and cards add faster than they read.
  using Acc = std::conditional_t<std::is_same_v<T, float> && std::is_same_v<Op, functors::Add>,
                                 double, Accumulator<T>>;

  ReduceKernel(const KernelSpec& spec, Acc identity, bool mean)
      : identity_(identity),
        passes_(plan_reduce_passes(spec.inputs[0].shape,
                                   spec.attributes.get<std::vector<int64_t>>("axes"))),
        outputs_(spec.outputs[0].shape.num_elements()),
        divisor_(mean && outputs_ > 0 ? spec.inputs[0].shape.num_elements() / outputs_ : 1) {
    for (const ReducePass& pass : passes_) half_scratch_ = std::max(half_scratch_, pass.results());
  }

  // Passes go back and forth between two halves.
  size_t scratch_bytes() const override {
    return 2 * static_cast<size_t>(half_scratch_) * sizeof(Acc);
  }

  void run(const KernelContext& context) override {
    Acc* halves[2] = {static_cast<Acc*>(context.scratch),
                      static_cast<Acc*>(context.scratch) + half_scratch_};
    run_pass<Op>(*context.stream, passes_[0], context.input<T>(0), identity_, halves[0]);
    for (size_t i = 1; i < passes_.size(); ++i)
      run_pass<Op>(*context.stream, passes_[i], halves[(i + 1) % 2], identity_, halves[i % 2]);
    finish<T>(*context.stream, halves[(passes_.size() + 1) % 2], outputs_, divisor_,
              context.output<T>(0));
  }

 private:
  Acc identity_;
  std::vector<ReducePass> passes_;
  int64_t outputs_, divisor_;
  int64_t half_scratch_ = 0;  // elements
};

const bool kRegistered = [] {
  register_reductions<ReduceKernel>(DeviceType::kGpu);
  return true;
}();

}  // namespace
}  // namespace cohort::cuda
