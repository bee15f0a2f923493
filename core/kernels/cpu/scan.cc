#include <algorithm>
#include <numeric>

#include "core/base/threads.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/common/lines.h"

// Ops that walk along one axis: ArgMax, CumSum, CumProd and TopK.
namespace cohort {
namespace {

constexpr int64_t kMinElementsPerThread = 16384;

// Lines that a thread should have at least.
int64_t grain(const Lines& lines) { return kMinElementsPerThread / (lines.count + 1) + 1; }

void argmax(const KernelCall& call, const KernelContext& context) {
  const Lines lines = lines_along_axis(call);
  int64_t* out = context.output<int64_t>(0);
  dispatch(NumberTypes{}, call.input_specs[0].dtype, "ArgMax", [&]<typename T>() {
    const T* x = context.input<T>(0);
    parallel_for(lines.number(), grain(lines), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const T* first = x + lines.start(line);
        int64_t best = 0;
        for (int64_t i = 1; i < lines.count; ++i)
          if (larger(first[i * lines.inner], first[best * lines.inner])) best = i;
        out[line] = best;
      }
    });
  });
}

// What `Join` makes of the elements so far, which begins with `start`.
template <typename Join, int start>
void accumulate(const KernelCall& call, const KernelContext& context) {
  const Lines lines = lines_along_axis(call);
  const bool exclusive = call.attributes.get<bool>("exclusive"),
             reverse = call.attributes.get<bool>("reverse");
  dispatch(NumberTypes{}, call.input_specs[0].dtype, "CumSum or CumProd", [&]<typename T>() {
    using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    parallel_for(lines.number(), grain(lines), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const int64_t first = lines.start(line);
        Total total = start;
        for (int64_t k = 0; k < lines.count; ++k) {
          const int64_t i = first + (reverse ? lines.count - 1 - k : k) * lines.inner;
          const Total next = Join{}(total, convert<Total>(context.input<T>(0)[i]));
          context.output<T>(0)[i] = convert<T>(exclusive ? total : next);
          total = next;
        }
      }
    });
  });
}

// Sorts the indices of each row in scratch, one stretch of it for each worker.
class TopKKernel final : public Kernel {
 public:
  explicit TopKKernel(const KernelSpec& spec)
      : input_(spec.inputs[0]),
        lines_(input_.shape, input_.shape.rank() - 1),
        k_(spec.attributes.get<int64_t>("k")),
        workers_(std::clamp<int64_t>(lines_.number() / grain(lines_), 1, spec.num_threads)) {}

  size_t scratch_bytes() const override { return workers_ * lines_.count * sizeof(int32_t); }

  void run(const KernelContext& context) override {
    dispatch(NumberTypes{}, input_.dtype, "TopK", [&]<typename T>() {
      parallel_for(workers_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t w = begin; w < end; ++w) {
          int32_t* order = static_cast<int32_t*>(context.scratch) + w * lines_.count;
          for (int64_t row = lines_.outer * w / workers_; row < lines_.outer * (w + 1) / workers_;
               ++row)
            run_row(context.input<T>(0) + row * lines_.count, order,
                    context.output<T>(0) + row * k_, context.output<int32_t>(1) + row * k_);
        }
      });
    });
  }

 private:
  template <typename T>
  void run_row(const T* x, int32_t* order, T* values, int32_t* indices) const {
    std::iota(order, order + lines_.count, 0);
    std::partial_sort(order, order + k_, order + lines_.count, [x](int32_t a, int32_t b) {
      return larger(x[a], x[b]) || (!larger(x[b], x[a]) && a < b);
    });
    for (int64_t i = 0; i < k_; ++i) {
      values[i] = x[order[i]];
      indices[i] = order[i];
    }
  }

  TensorSpec input_;
  Lines lines_;
  int64_t k_, workers_;
};

COHORT_REGISTER_KERNEL("ArgMax", kCpu, stateless_kernel(argmax));
COHORT_REGISTER_KERNEL("CumSum", kCpu, stateless_kernel(accumulate<functors::Add, 0>));
COHORT_REGISTER_KERNEL("CumProd", kCpu, stateless_kernel(accumulate<functors::Mul, 1>));
COHORT_REGISTER_KERNEL("TopK", kCpu, make_plain<TopKKernel>);

}  // namespace
}  // namespace cohort
