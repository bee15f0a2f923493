#include <type_traits>

#include "core/kernels/common/convert.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/common/lines.h"
#include "core/kernels/cuda/launch.h"

// Ops that walk along one axis, a thread for each line: ArgMax and CumSum.
namespace cohort::cuda {
namespace {

// 16-bit floats are compared as float32.
template <typename T>
using Comparable = std::conditional_t<sizeof(T) == 2, float, T>;

template <typename T>
void find_highest(const KernelContext& context, const Lines lines) {
  const T* x = context.input<T>(0);
  int64_t* out = context.output<int64_t>(0);
  for_each_element(*context.stream, lines.number(), [=] COHORT_DEVICE(int64_t line) {
    const T* first = x + lines.start(line);
    int64_t best = 0;
    auto highest = convert<Comparable<T>>(first[0]);
    for (int64_t i = 1; i < lines.count; ++i) {
      const auto value = convert<Comparable<T>>(first[i * lines.inner]);
      if (!larger(value, highest)) continue;
      best = i;
      highest = value;
    }
    out[line] = best;
  });
}

void argmax(const KernelCall& call, const KernelContext& context) {
  dispatch(NumberTypes{}, call.input_specs[0].dtype, "ArgMax",
           [&]<typename T>() { find_highest<T>(context, lines_along_axis(call)); });
}

template <typename T>
void add_up(const KernelContext& context, const Lines lines, bool exclusive, bool reverse) {
  using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  const T* x = context.input<T>(0);
  T* y = context.output<T>(0);
  for_each_element(*context.stream, lines.number(), [=] COHORT_DEVICE(int64_t line) {
    const int64_t start = lines.start(line);
    Sum sum = 0;
    for (int64_t k = 0; k < lines.count; ++k) {
      const int64_t i = start + (reverse ? lines.count - 1 - k : k) * lines.inner;
      const Sum next = functors::Add{}(sum, convert<Sum>(x[i]));
      y[i] = convert<T>(exclusive ? sum : next);
      sum = next;
    }
  });
}

void cumsum(const KernelCall& call, const KernelContext& context) {
  const bool exclusive = call.attributes.get<bool>("exclusive"),
             reverse = call.attributes.get<bool>("reverse");
  dispatch(NumberTypes{}, call.input_specs[0].dtype, "CumSum",
           [&]<typename T>() { add_up<T>(context, lines_along_axis(call), exclusive, reverse); });
}

COHORT_REGISTER_KERNEL("ArgMax", kGpu, stateless_kernel(argmax));
COHORT_REGISTER_KERNEL("CumSum", kGpu, stateless_kernel(cumsum));

}  // namespace
}  // namespace cohort::cuda
