#include <cstring>

#include "core/base/threads.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/cpu/floating_kernel.h"
#include "core/kernels/cpu/row_indices.h"
#include "core/kernels/kernel.h"
#include "core/tensor/scatter_op.h"

// Ops that change rows at integer positions.
namespace cohort {
namespace {

constexpr int64_t kMinBytesPerThread = 65536;
constexpr int64_t kMinElementsPerThread = kMinBytesPerThread / sizeof(float);
// Threads do not share cache lines when they split columns at multiples of this.
constexpr int64_t kLineElements = 16;

// Changes `count` elements of a row by those of an update.
template <typename T>
using ChangeRow = void (*)(T* row, const T* update, int64_t count);

// Half types are computed in float.
template <typename T, typename Op>
void change_row(T* row, const T* update, int64_t count) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  for (int64_t j = 0; j < count; ++j)
    row[j] = convert<T>(Op{}(convert<Wide>(row[j]), convert<Wide>(update[j])));
}

template <typename T>
void replace_row(T* row, const T* update, int64_t count) {
  std::copy(update, update + count, row);
}

template <typename T>
ChangeRow<T> change_of(ScatterOp op) {
  switch (op) {
    case ScatterOp::kAdd:
      return change_row<T, functors::Add>;
    case ScatterOp::kSub:
      return change_row<T, functors::Sub>;
    case ScatterOp::kMul:
      return change_row<T, functors::Mul>;
    case ScatterOp::kDiv:
      return change_row<T, functors::Div>;
    case ScatterOp::kMin:
      return change_row<T, functors::Minimum>;
    case ScatterOp::kMax:
      return change_row<T, functors::Maximum>;
    case ScatterOp::kUpdate:
      return replace_row<T>;
  }
  fail(Code::kInvalidArgument, static_cast<int64_t>(op), " is not a scatter op");
}

// Changes row indices[i] of `out` by updates[i], if it names one, in the order of i. Every element
// belongs to one thread: no atomics, and the same bits for any number of threads. Threads own
// ranges of columns, or ranges of rows where rows are short.
template <typename T, typename Index>
void change_rows(ChangeRow<T> change, const Index* indices, int64_t count, const T* updates, T* out,
                 int64_t rows, int64_t columns) {
  const auto change_part = [&](int64_t i, int64_t begin, int64_t end) {
    const auto row = static_cast<int64_t>(indices[i]);
    if (row != kNoRow)
      change(out + row * columns + begin, updates + i * columns + begin, end - begin);
  };
  if (count * columns < kMinElementsPerThread) {
    for (int64_t i = 0; i < count; ++i) change_part(i, 0, columns);
  } else if (columns >= kLineElements * num_threads()) {
    parallel_for(columns, kLineElements, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i) change_part(i, begin, end);
    });
  } else {
    parallel_for(rows, kLineElements, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i)
        if (const auto row = static_cast<int64_t>(indices[i]); row >= begin && row < end)
          change_part(i, 0, columns);
    });
  }
}

void fill_zero(void* target, size_t bytes) {
  parallel_for(static_cast<int64_t>(bytes), kMinBytesPerThread, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(target) + begin, 0, end - begin);
  });
}

// Inputs are indices, of `lowest` or more, and updates; what output 0 holds is changed, after
// `begin`, which follows the check of all indices.
template <typename Begin>
void scatter(std::string_view name, ScatterOp op, int64_t lowest, const KernelCall& call,
             const KernelContext& context, const Begin& begin) {
  const TensorSpec &indices = call.input_specs[0], &target = call.output_specs[0];
  const int64_t count = indices.shape.num_elements(), rows = target.shape[0];
  dispatch(IntegerTypes{}, indices.dtype, name, [&]<typename Index>() {
    check_indices(name, context.input<Index>(0), count, rows, lowest);
    begin();
    dispatch(NumberTypes{}, target.dtype, name, [&]<typename T>() {
      change_rows(change_of<T>(op), context.input<Index>(0), count, context.input<T>(1),
                  context.output<T>(0), rows, target.shape.count(1, target.shape.rank()));
    });
  });
}

void scatter_add(const KernelCall& call, const KernelContext& context) {
  scatter("ScatterAdd", ScatterOp::kAdd, kNoRow, call, context,
          [&] { fill_zero(context.outputs[0], call.output_specs[0].bytes()); });
}

// Sums of 16-bit numbers are rounded once, at the end.
std::unique_ptr<Kernel> make_scatter_add(const KernelSpec& spec) {
  const KernelFactory make = stateless_kernel(scatter_add);
  return has_16_bit(spec) ? make_widened(spec, make, kCpuHalfConversion) : make(spec);
}

// The op has no output in the graph: its kernel's output 0 is the variable's memory, in place.
void assign_scatter(const KernelCall& call, const KernelContext& context) {
  COHORT_CHECK(call.output_specs.size() == 1);
  const auto op = static_cast<ScatterOp>(call.attributes.get<int64_t>("op"));
  const int64_t lowest = call.attributes.get_or<bool>("allow_none", true) ? kNoRow : 0;
  scatter("AssignScatter", op, lowest, call, context, [] {});
}

COHORT_REGISTER_KERNEL("ScatterAdd", kCpu, make_scatter_add);
COHORT_REGISTER_KERNEL("AssignScatter", kCpu, stateless_kernel(assign_scatter));

}  // namespace
}  // namespace cohort
