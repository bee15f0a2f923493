#include <algorithm>
#include <cstring>

#include "core/base/threads.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/kernel.h"

// Ops that read or write rows at integer positions.
namespace cohort {
namespace {

constexpr int64_t kMinBytesPerThread = 65536;
constexpr int64_t kMinElementsPerThread = kMinBytesPerThread / sizeof(float);
constexpr int64_t kLineElements =
    16;  // threads do not share cache lines when they split columns at multiples

// Throws unless all indices are in [0, rows).
template <typename Index>
void check_indices(std::string_view op, const Index* indices, int64_t count, int64_t rows) {
  for (int64_t i = 0; i < count; ++i)
    if (indices[i] < 0 || static_cast<int64_t>(indices[i]) >= rows)
      fail(Code::kOutOfRange, op, ": index ", static_cast<int64_t>(indices[i]), " at position ", i,
           " is out of range (allowed: 0 to ", rows - 1, ")");
}

int64_t rows_per_thread(int64_t row_bytes) { return kMinBytesPerThread / (row_bytes + 1) + 1; }

void fill_zero(void* target, size_t bytes) {
  parallel_for(static_cast<int64_t>(bytes), kMinBytesPerThread, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(target) + begin, 0, end - begin);
  });
}

void gather(const KernelCall& call, const KernelContext& context) {
  const Shape& params = call.input_specs[0].shape;
  const int axis = static_cast<int>(call.attributes.get<int64_t>("axis"));
  const int64_t count = call.input_specs[1].shape.num_elements(), extent = params[axis];
  const int64_t lines = params.count(0, axis) * count;
  const int64_t row_bytes =
      params.count(axis + 1, params.rank()) * dtype_size(call.input_specs[0].dtype);
  dispatch(IntegerTypes{}, call.input_specs[1].dtype, "Gather", [&]<typename Index>() {
    const Index* indices = context.input<Index>(1);
    check_indices("Gather", indices, count, extent);
    parallel_for(lines, rows_per_thread(row_bytes), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const int64_t row = line / count * extent + static_cast<int64_t>(indices[line % count]);
        std::memcpy(context.output<char>(0) + line * row_bytes,
                    context.input<char>(0) + row * row_bytes, row_bytes);
      }
    });
  });
}

// Adds updates[i] to row indices[i] of `out`. Every element belongs to one thread, which adds its
// updates in order: no atomics, and the same bits for any number of threads. Threads own ranges of
// columns, or ranges of rows where rows are short.
template <typename T, typename Index>
void add_rows(const Index* indices, int64_t count, const T* updates, T* out, int64_t rows,
              int64_t columns) {
  using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
  const auto add = [&](int64_t i, int64_t begin, int64_t end) {
    T* row = out + static_cast<int64_t>(indices[i]) * columns;
    const T* update = updates + i * columns;
    for (int64_t j = begin; j < end; ++j)
      row[j] = convert<T>(functors::Add{}(convert<Sum>(row[j]), convert<Sum>(update[j])));
  };
  if (count * columns < kMinElementsPerThread) {
    for (int64_t i = 0; i < count; ++i) add(i, 0, columns);
  } else if (columns >= kLineElements * num_threads()) {
    parallel_for(columns, kLineElements, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i) add(i, begin, end);
    });
  } else {
    parallel_for(rows, kLineElements, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i)
        if (const auto row = static_cast<int64_t>(indices[i]); row >= begin && row < end)
          add(i, 0, columns);
    });
  }
}

// Inputs are indices and updates; `target` is what output 0 holds, zeros or a variable.
void scatter_add(std::string_view op, const KernelCall& call, const KernelContext& context) {
  const TensorSpec &indices = call.input_specs[0], &target = call.output_specs[0];
  const int64_t count = indices.shape.num_elements(), rows = target.shape[0];
  dispatch(IntegerTypes{}, indices.dtype, op, [&]<typename Index>() {
    check_indices(op, context.input<Index>(0), count, rows);
    dispatch(NumberTypes{}, target.dtype, op, [&]<typename T>() {
      if (op == "ScatterAdd") fill_zero(context.outputs[0], target.bytes());
      add_rows(context.input<Index>(0), count, context.input<T>(1), context.output<T>(0), rows,
               target.shape.count(1, target.shape.rank()));
    });
  });
}

void one_hot(const KernelCall& call, const KernelContext& context) {
  const int64_t count = call.input_specs[0].shape.num_elements(),
                depth = call.attributes.get<int64_t>("depth");
  dispatch(IntegerTypes{}, call.input_specs[0].dtype, "OneHot", [&]<typename Index>() {
    const Index* indices = context.input<Index>(0);
    dispatch(AllTypes{}, call.output_specs[0].dtype, "OneHot", [&]<typename T>() {
      parallel_for(count, rows_per_thread(depth * sizeof(T)), [&](int64_t begin, int64_t end) {
        T* out = context.output<T>(0);
        std::fill(out + begin * depth, out + end * depth, convert<T>(0));
        for (int64_t i = begin; i < end; ++i)
          if (indices[i] >= 0 && static_cast<int64_t>(indices[i]) < depth)
            out[i * depth + indices[i]] = convert<T>(1);
      });
    });
  });
}

COHORT_REGISTER_KERNEL("Gather", kCpu, stateless_kernel(gather));
COHORT_REGISTER_KERNEL("ScatterAdd", kCpu,
                       stateless_kernel([](const KernelCall& call, const KernelContext& context) {
                         scatter_add("ScatterAdd", call, context);
                       }));
// The op has no output in the graph: its kernel's output 0 is the variable's memory, in place.
COHORT_REGISTER_KERNEL("AssignScatterAdd", kCpu,
                       stateless_kernel([](const KernelCall& call, const KernelContext& context) {
                         COHORT_CHECK(call.output_specs.size() == 1);
                         scatter_add("AssignScatterAdd", call, context);
                       }));
COHORT_REGISTER_KERNEL("OneHot", kCpu, stateless_kernel(one_hot));

}  // namespace
}  // namespace cohort
