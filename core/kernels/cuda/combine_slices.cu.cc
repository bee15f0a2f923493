#include <limits>
#include <type_traits>

#include "core/kernels/common/convert.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/cuda/update_lists.h"

namespace cohort::cuda {
namespace {

// Adds up the slices of each row in their order, one thread for each column.
template <typename Index, typename T>
void combine(const KernelContext& context, int64_t slices, int64_t columns,
             const UpdateLists lists) {
  using Sum = std::conditional_t<sizeof(T) == 2, float, T>;  // half types are rounded once
  const Index* indices = context.input<Index>(0);
  const T* values = context.input<T>(1);
  Index* combined = context.output<Index>(0);
  T* sums = context.output<T>(1);
  for_each_element(*context.stream, slices, [=] COHORT_DEVICE(int64_t i) {
    combined[i] = lists.row[i] == kNone ? static_cast<Index>(kNoRow) : indices[i];
  });
  for_each_element(*context.stream, slices * columns, [=] COHORT_DEVICE(int64_t i) {
    const int64_t first = i / columns, column = i % columns;
    Sum sum = 0;
    for (int64_t slice = lists.row[first] == kNone ? kNone : first; slice != kNone;
         slice = lists.next[slice])
      sum = functors::Add{}(sum, convert<Sum>(values[slice * columns + column]));
    sums[i] = convert<T>(sum);
  });
}

class CombineSlicesKernel final : public Kernel {
 public:
  explicit CombineSlicesKernel(const KernelSpec& spec)
      : index_dtype_(spec.inputs[0].dtype),
        value_dtype_(spec.inputs[1].dtype),
        slices_(spec.inputs[1].shape[0]),
        columns_(spec.inputs[1].shape.count(1, spec.inputs[1].shape.rank())) {}

  size_t scratch_bytes() const override { return UpdateLists::bytes(slices_); }

  void run(const KernelContext& context) override {
    using Limits = std::numeric_limits<int64_t>;
    const UpdateLists lists(context.scratch, slices_);
    dispatch(TypeList<int32_t, int64_t>{}, index_dtype_, "CombineSlices", [&]<typename Index>() {
      link_updates<Index>(context, slices_, Limits::min(), Limits::max(), lists);
      dispatch(NumberTypes{}, value_dtype_, "CombineSlices",
               [&]<typename T>() { combine<Index, T>(context, slices_, columns_, lists); });
    });
  }

 private:
  DType index_dtype_, value_dtype_;
  int64_t slices_, columns_;
};

COHORT_REGISTER_KERNEL("CombineSlices", kGpu, make_plain<CombineSlicesKernel>);

}  // namespace
}  // namespace cohort::cuda
