#include <algorithm>
#include <cstring>

#include "core/base/threads.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/cpu/row_indices.h"
#include "core/kernels/kernel.h"

// Ops that read rows, or write ones, at integer positions.
namespace cohort {
namespace {

constexpr int64_t kMinBytesPerThread = 65536;

int64_t rows_per_thread(int64_t row_bytes) { return kMinBytesPerThread / (row_bytes + 1) + 1; }

void gather(const KernelCall& call, const KernelContext& context) {
  const Shape& params = call.input_specs[0].shape;
  const int axis = static_cast<int>(call.attributes.get<int64_t>("axis"));
  const int64_t count = call.input_specs[1].shape.num_elements(), extent = params[axis];
  const int64_t lines = params.count(0, axis) * count;
  const int64_t row_bytes =
      params.count(axis + 1, params.rank()) * dtype_size(call.input_specs[0].dtype);
  const int64_t lowest = call.attributes.get_or<bool>("allow_none", false) ? kNoRow : 0;
  dispatch(IntegerTypes{}, call.input_specs[1].dtype, "Gather", [&]<typename Index>() {
    const Index* indices = context.input<Index>(1);
    check_indices("Gather", indices, count, extent, lowest);
    parallel_for(lines, rows_per_thread(row_bytes), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        char* target = context.output<char>(0) + line * row_bytes;
        const auto index = static_cast<int64_t>(indices[line % count]);
        if (index == kNoRow)
          std::memset(target, 0, row_bytes);
        else
          std::memcpy(target, context.input<char>(0) + (line / count * extent + index) * row_bytes,
                      row_bytes);
      }
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
COHORT_REGISTER_KERNEL("OneHot", kCpu, stateless_kernel(one_hot));

}  // namespace
}  // namespace cohort
