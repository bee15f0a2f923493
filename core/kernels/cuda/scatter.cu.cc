#include "core/kernels/common/convert.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/common/row_fault.h"
#include "core/kernels/cuda/launch.h"
#include "core/kernels/kernel.h"
#include "core/tensor/scatter_op.h"

// Ops that change rows at integer positions, with the same bits as one after the other: the updates
// of a row form a list, which one thread for each column walks.
namespace cohort::cuda {
namespace {

constexpr int64_t kNone = -1;

// The updates of each row as a list. row[i] is the row of update i where no earlier one is of that
// row, and kNone otherwise and where it names none; next[i] is the next update of the same row.
struct Lists {
  int64_t *row, *next;
};

template <typename Index>
void link_updates(const KernelContext& context, int64_t count, int64_t rows, const Lists lists) {
  const Index* indices = context.input<Index>(0);
  KernelFault* fault = context.fault;
  const int32_t number = context.number;
  for_each_row(*context.stream, count, count, [=] COHORT_DEVICE(const Team& team, int64_t i) {
    const auto row = static_cast<int64_t>(indices[i]);
    int64_t after = count, before = 0;
    for (int64_t j = team.rank(); j < count; j += team.size()) {
      if (static_cast<int64_t>(indices[j]) != row) continue;
      if (j < i) before = 1;
      if (j > i && j < after) after = j;
    }
    after = team.reduce(after, count, [](int64_t a, int64_t b) { return a < b ? a : b; });
    before = team.sum(before);
    if (team.rank() != 0) return;
    const bool names_row = row >= 0 && row < rows;
    if (!names_row && row != kNoRow) report(fault, number, row, i);
    lists.next[i] = after < count ? after : kNone;
    lists.row[i] = names_row && before == 0 ? row : kNone;
  });
}

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

// Half types are computed in float, and rounded after each update.
template <typename T>
void change_rows(const KernelContext& context, ScatterOp op, int64_t count, int64_t columns,
                 const Lists lists) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  const T* updates = context.input<T>(1);
  T* out = context.output<T>(0);
  for_each_element(*context.stream, count * columns, [=] COHORT_DEVICE(int64_t i) {
    int64_t update = i / columns;
    const int64_t column = i % columns, row = lists.row[update];
    if (row == kNone) return;
    T value = out[row * columns + column];
    for (; update != kNone; update = lists.next[update])
      value = convert<T>(
          apply(op, convert<Wide>(value), convert<Wide>(updates[update * columns + column])));
    out[row * columns + column] = value;
  });
}

void clear(Stream& stream, char* target, int64_t bytes) {
  for_each_element(stream, bytes, [=] COHORT_DEVICE(int64_t i) { target[i] = 0; });
}

class ScatterKernel final : public Kernel {
 public:
  // `from_zero`: output 0 is filled with zeros first; otherwise it is a variable, changed in place.
  ScatterKernel(const KernelSpec& spec, ScatterOp op, bool from_zero)
      : name_(spec.op),
        op_(op),
        from_zero_(from_zero),
        index_dtype_(spec.inputs[0].dtype),
        target_(spec.outputs[0]),
        count_(spec.inputs[0].shape.num_elements()),
        columns_(target_.shape.count(1, target_.shape.rank())) {
    if (op < ScatterOp::kAdd || op > ScatterOp::kUpdate)
      invalid(static_cast<int64_t>(op), " is not a scatter op");
  }

  size_t scratch_bytes() const override {
    return 2 * static_cast<size_t>(count_) * sizeof(int64_t);
  }

  void run(const KernelContext& context) override {
    auto* scratch = static_cast<int64_t*>(context.scratch);
    const Lists lists{scratch, scratch + count_};
    if (from_zero_)
      clear(*context.stream, context.output<char>(0), static_cast<int64_t>(target_.bytes()));
    dispatch(IntegerTypes{}, index_dtype_, name_, [&]<typename Index>() {
      link_updates<Index>(context, count_, target_.shape[0], lists);
    });
    dispatch(NumberTypes{}, target_.dtype, name_,
             [&]<typename T>() { change_rows<T>(context, op_, count_, columns_, lists); });
  }

  Error describe(const KernelFault& fault) const override {
    return index_error(name_, fault.value, fault.position, target_.shape[0]);
  }

 private:
  std::string name_;
  ScatterOp op_;
  bool from_zero_;
  DType index_dtype_;
  TensorSpec target_;
  int64_t count_, columns_;
};

COHORT_REGISTER_KERNEL("ScatterAdd", kGpu, [](const KernelSpec& spec) {
  return std::make_unique<ScatterKernel>(spec, ScatterOp::kAdd, true);
});
COHORT_REGISTER_KERNEL("AssignScatter", kGpu, [](const KernelSpec& spec) {
  return std::make_unique<ScatterKernel>(
      spec, static_cast<ScatterOp>(spec.attributes.get<int64_t>("op")), false);
});

}  // namespace
}  // namespace cohort::cuda
