#include "core/kernels/common/convert.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/cuda/fill.h"
#include "core/kernels/cuda/update_lists.h"
#include "core/tensor/scatter_op.h"

// Ops that change rows at integer positions, with the same bits as one after the other: the updates
// of a row form a list, which one thread for each column walks.
namespace cohort::cuda {
namespace {

template <typename T>
COHORT_DEVICE inline T apply(ScatterOp op, T value, T update) {
  switch (op) {
    case ScatterOp::kAdd:
      return functors::Add{}(value, update);
    case ScatterOp::kSub:
      return functors::Sub{}(value, update);
    case ScatterOp::kMul:
      return functors::Mul{}(value, update);
    case ScatterOp::kDiv:
      return functors::Div{}(value, update);
    case ScatterOp::kMin:
      return functors::Minimum{}(value, update);
    case ScatterOp::kMax:
      return functors::Maximum{}(value, update);
    case ScatterOp::kUpdate:
      break;
  }
  return update;
}

// Half types are computed in float, and rounded after each update or once at the end.
template <typename T>
void change_rows(const KernelContext& context, ScatterOp op, int64_t count, int64_t columns,
                 const UpdateLists lists, bool round_each) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  const T* updates = context.input<T>(1);
  T* out = context.output<T>(0);
  for_each_element(*context.stream, count * columns, [=] COHORT_DEVICE(int64_t i) {
    int64_t update = i / columns;
    const int64_t column = i % columns, row = lists.row[update];
    if (row == kNone) return;
    auto value = convert<Wide>(out[row * columns + column]);
    for (; update != kNone; update = lists.next[update]) {
      value = apply(op, value, convert<Wide>(updates[update * columns + column]));
      if (round_each) value = convert<Wide>(convert<T>(value));
    }
    out[row * columns + column] = convert<T>(value);
  });
}

// Word by word, as far as there are whole ones.
void clear(Stream& stream, char* target, int64_t bytes) {
  constexpr int64_t kWord = sizeof(uint64_t);
  const int64_t rest = bytes % kWord;
  fill(stream, reinterpret_cast<uint64_t*>(target), bytes / kWord, uint64_t{0});
  fill(stream, target + (bytes - rest), rest, char{0});
}

class ScatterKernel final : public Kernel {
 public:
  // `from_zero`: output 0 is filled with zeros first, and sums are rounded once; otherwise it is a
  // variable, changed in place. Indices are `lowest` or more.
  ScatterKernel(const KernelSpec& spec, ScatterOp op, bool from_zero, int64_t lowest)
      : name_(spec.op),
        op_(op),
        from_zero_(from_zero),
        lowest_(lowest),
        index_dtype_(spec.inputs[0].dtype),
        target_(spec.outputs[0]),
        count_(spec.inputs[0].shape.num_elements()),
        columns_(target_.shape.count(1, target_.shape.rank())) {
    if (op < ScatterOp::kAdd || op > ScatterOp::kUpdate)
      invalid(static_cast<int64_t>(op), " is not a scatter op");
  }

  size_t scratch_bytes() const override { return UpdateLists::bytes(count_); }

  void run(const KernelContext& context) override {
    const UpdateLists lists(context.scratch, count_);
    if (from_zero_)
      clear(*context.stream, context.output<char>(0), static_cast<int64_t>(target_.bytes()));
    dispatch(IntegerTypes{}, index_dtype_, name_, [&]<typename Index>() {
      link_updates<Index>(context, count_, lowest_, target_.shape[0], lists);
    });
    dispatch(NumberTypes{}, target_.dtype, name_, [&]<typename T>() {
      change_rows<T>(context, op_, count_, columns_, lists, !from_zero_);
    });
  }

  Error describe(const KernelFault& fault) const override {
    return index_error(name_, fault.value, fault.position, target_.shape[0], lowest_);
  }

 private:
  std::string name_;
  ScatterOp op_;
  bool from_zero_;
  int64_t lowest_;
  DType index_dtype_;
  TensorSpec target_;
  int64_t count_, columns_;
};

COHORT_REGISTER_KERNEL("ScatterAdd", kGpu, [](const KernelSpec& spec) {
  return std::make_unique<ScatterKernel>(spec, ScatterOp::kAdd, true, kNoRow);
});
COHORT_REGISTER_KERNEL("AssignScatter", kGpu, [](const KernelSpec& spec) {
  return std::make_unique<ScatterKernel>(
      spec, static_cast<ScatterOp>(spec.attributes.get<int64_t>("op")), false,
      spec.attributes.get_or<bool>("allow_none", true) ? kNoRow : 0);
});

}  // namespace
}  // namespace cohort::cuda
