#include <type_traits>

#include "core/kernels/common/convert.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/common/lines.h"
#include "core/kernels/cuda/launch.h"

// Ops that walk along one axis: ArgMax, CumSum and CumProd, a thread for each line, and TopK.
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

// What `Join` makes of the elements so far, which begins with `start`.
template <typename T, typename Join>
void accumulate_lines(const KernelContext& context, const Lines lines, int start, bool exclusive,
                      bool reverse) {
  using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  const T* x = context.input<T>(0);
  T* y = context.output<T>(0);
  for_each_element(*context.stream, lines.number(), [=] COHORT_DEVICE(int64_t line) {
    const int64_t first = lines.start(line);
    Total total = start;
    for (int64_t k = 0; k < lines.count; ++k) {
      const int64_t i = first + (reverse ? lines.count - 1 - k : k) * lines.inner;
      const Total next = Join{}(total, convert<Total>(x[i]));
      y[i] = convert<T>(exclusive ? total : next);
      total = next;
    }
  });
}

template <typename Join, int start>
void accumulate(const KernelCall& call, const KernelContext& context) {
  const bool exclusive = call.attributes.get<bool>("exclusive"),
             reverse = call.attributes.get<bool>("reverse");
  dispatch(NumberTypes{}, call.input_specs[0].dtype, "CumSum or CumProd", [&]<typename T>() {
    accumulate_lines<T, Join>(context, lines_along_axis(call), start, exclusive, reverse);
  });
}

// Whether element `a` of x comes before element `b` where the largest come first; `b` may be none.
template <typename T>
COHORT_DEVICE inline bool comes_first(const T* x, int64_t a, int64_t b) {
  const auto value = convert<Comparable<T>>(x[a]), other = convert<Comparable<T>>(x[b]);
  return larger(value, other) || (!larger(other, value) && a < b);
}

// Finds one element after the other, each the first behind the one before. k is small.
template <typename T>
void find_highest_k(const KernelContext& context, int64_t rows, int64_t columns, int64_t k) {
  const T* x = context.input<T>(0);
  T* values = context.output<T>(0);
  int32_t* indices = context.output<int32_t>(1);
  for_each_row(*context.stream, rows, columns, [=] COHORT_DEVICE(const Team& team, int64_t row) {
    constexpr int64_t kNone = -1;
    const T* from = x + row * columns;
    const auto first = [=](int64_t a, int64_t b) {
      if (a == kNone || b == kNone) return a == kNone ? b : a;
      return comes_first(from, a, b) ? a : b;
    };
    int64_t last = kNone;
    for (int64_t place = 0; place < k; ++place) {
      int64_t best = kNone;
      for (int64_t i = team.rank(); i < columns; i += team.size())
        if (last == kNone || (i != last && comes_first(from, last, i))) best = first(best, i);
      last = team.reduce(best, kNone, first);
      if (team.rank() != 0) continue;
      values[row * k + place] = from[last];
      indices[row * k + place] = static_cast<int32_t>(last);
    }
  });
}

void top_k(const KernelCall& call, const KernelContext& context) {
  const Shape& x = call.input_specs[0].shape;
  const int64_t columns = x.dim(-1), rows = x.count(0, x.rank() - 1);
  dispatch(NumberTypes{}, call.input_specs[0].dtype, "TopK", [&]<typename T>() {
    find_highest_k<T>(context, rows, columns, call.attributes.get<int64_t>("k"));
  });
}

COHORT_REGISTER_KERNEL("ArgMax", kGpu, stateless_kernel(argmax));
COHORT_REGISTER_KERNEL("CumSum", kGpu, stateless_kernel(accumulate<functors::Add, 0>));
COHORT_REGISTER_KERNEL("CumProd", kGpu, stateless_kernel(accumulate<functors::Mul, 1>));
COHORT_REGISTER_KERNEL("TopK", kGpu, stateless_kernel(top_k));

}  // namespace
}  // namespace cohort::cuda
