#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "core/base/threads.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/kernel.h"

namespace cohort {
namespace {

constexpr int64_t kNone = -1;
// Columns that are summed together, in registers and the first-level cache.
constexpr int64_t kColumns = 256;
constexpr int64_t kGrainElements = 4096;

// Finds the first place of a row among the slices: open addressing, in a table at most half full.
class FirstPlaces {
 public:
  explicit FirstPlaces(int64_t slices)
      : places_(std::bit_ceil(static_cast<size_t>(2 * slices + 1)), kNone),
        shift_(64 - std::countr_zero(places_.size())) {}

  void clear() { std::fill(places_.begin(), places_.end(), kNone); }

  // The place of the first slice of the row indices[slice], which is `slice` where it is new.
  template <typename Index>
  int64_t find_or_insert(const Index* indices, int64_t slice) {
    const auto row = static_cast<uint64_t>(static_cast<int64_t>(indices[slice]));
    size_t at = static_cast<size_t>((row * 0x9E3779B97F4A7C15u) >> shift_);  // Fibonacci hashing
    while (places_[at] != kNone && indices[places_[at]] != indices[slice])
      at = (at + 1) & (places_.size() - 1);
    if (places_[at] == kNone) places_[at] = slice;
    return places_[at];
  }

 private:
  std::vector<int64_t> places_;
  int shift_;
};

// Adds up the slices of each row in their order. The slices of one row form a list, so that rows
// are summed in parallel with the same bits on any number of threads.
class CombineSlicesKernel final : public Kernel {
 public:
  explicit CombineSlicesKernel(const KernelSpec& spec)
      : index_dtype_(spec.inputs[0].dtype),
        value_dtype_(spec.inputs[1].dtype),
        slices_(spec.inputs[1].shape[0]),
        columns_(spec.inputs[1].shape.count(1, spec.inputs[1].shape.rank())),
        places_(slices_),
        next_(static_cast<size_t>(slices_)),
        last_(static_cast<size_t>(slices_)) {}

  void run(const KernelContext& context) override {
    dispatch(TypeList<int32_t, int64_t>{}, index_dtype_, "CombineSlices", [&]<typename Index>() {
      link(context.input<Index>(0), context.output<Index>(0));
      dispatch(NumberTypes{}, value_dtype_, "CombineSlices", [&]<typename T>() {
        parallel_for(slices_, std::max<int64_t>(kGrainElements / std::max<int64_t>(columns_, 1), 1),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i)
                         sum(context.output<Index>(0)[i] != -1, context.input<T>(1), i,
                             context.output<T>(1));
                     });
      });
    });
  }

 private:
  // Writes the combined indices and, for every slice, which one of the same row follows it.
  template <typename Index>
  void link(const Index* indices, Index* combined) {
    places_.clear();
    for (int64_t i = 0; i < slices_; ++i) {
      const auto slice = static_cast<size_t>(i);
      next_[slice] = kNone;
      combined[i] = -1;
      if (indices[i] == -1) continue;
      const int64_t first = places_.find_or_insert(indices, i);
      if (first == i)
        combined[i] = indices[i];
      else
        next_[static_cast<size_t>(last_[static_cast<size_t>(first)])] = i;
      last_[static_cast<size_t>(first)] = i;
    }
  }

  // The sum of the list that begins with slice `first`, or zeros where none does.
  template <typename T>
  void sum(bool is_first, const T* values, int64_t first, T* sums) const {
    using A = std::conditional_t<sizeof(T) == 2, float, T>;  // half types are rounded once
    for (int64_t column = 0; column < columns_; column += kColumns) {
      const int64_t n = std::min(kColumns, columns_ - column);
      std::array<A, kColumns> total;
      std::fill_n(total.begin(), n, A(0));
      for (int64_t i = is_first ? first : kNone; i != kNone; i = next_[static_cast<size_t>(i)])
        for (int64_t c = 0; c < n; ++c) {
          A& so_far = total[static_cast<size_t>(c)];
          so_far = functors::Add{}(so_far, static_cast<A>(values[i * columns_ + column + c]));
        }
      for (int64_t c = 0; c < n; ++c)
        sums[first * columns_ + column + c] = static_cast<T>(total[static_cast<size_t>(c)]);
    }
  }

  DType index_dtype_, value_dtype_;
  int64_t slices_, columns_;
  FirstPlaces places_;
  std::vector<int64_t> next_, last_;  // next_[i]: after slice i; last_[first]: so far
};

COHORT_REGISTER_KERNEL("CombineSlices", kCpu, make_plain<CombineSlicesKernel>);

}  // namespace
}  // namespace cohort
