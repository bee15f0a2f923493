#include <algorithm>
#include <numeric>

#include "core/base/threads.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/cpu/strided_copy.h"
#include "core/kernels/kernel.h"

namespace cohort {
namespace {

using Dims = std::vector<int64_t>;

constexpr int64_t kMinElementsPerThread = 16384;

// One box to copy, from byte `source_offset` of an input to byte `target_offset` of an output.
struct Box {
  StridedCopy copy;
  int input, output;
  int64_t source_offset, target_offset;
};

class CopyKernel final : public Kernel {
 public:
  explicit CopyKernel(std::vector<Box> boxes) : boxes_(std::move(boxes)) {}
  void run(const KernelContext& context) override {
    for (const Box& box : boxes_)
      box.copy.run(context.input<char>(box.input) + box.source_offset,
                   context.output<char>(box.output) + box.target_offset);
  }

 private:
  std::vector<Box> boxes_;
};

// Offset in elements of the element at `position`.
int64_t offset_of(const Dims& position, const Dims& strides) {
  return std::inner_product(position.begin(), position.end(), strides.begin(), int64_t{0});
}

// The box of `extents` at `source_position` of a dense tensor goes to `target_position` of another.
Box dense_box(const Dims& extents, const TensorSpec& source, int input, const Dims& source_position,
              const TensorSpec& target, int output, const Dims& target_position) {
  const Dims source_strides = dense_strides(source.shape),
             target_strides = dense_strides(target.shape);
  const size_t size = dtype_size(source.dtype);
  return {StridedCopy(extents, source_strides, target_strides, size), input, output,
          static_cast<int64_t>(size) * offset_of(source_position, source_strides),
          static_cast<int64_t>(size) * offset_of(target_position, target_strides)};
}

std::unique_ptr<Kernel> make_transpose(const KernelSpec& spec) {
  const TensorSpec &x = spec.inputs[0], &y = spec.outputs[0];
  const Dims input_strides = dense_strides(x.shape);
  Dims strides;
  for (int64_t axis : spec.attributes.get<Dims>("perm")) strides.push_back(input_strides[axis]);
  const StridedCopy copy(y.shape.to_vector(), strides, dense_strides(y.shape), dtype_size(x.dtype));
  return std::make_unique<CopyKernel>(std::vector<Box>{{copy, 0, 0, 0, 0}});
}

std::unique_ptr<Kernel> make_concat(const KernelSpec& spec) {
  const int64_t axis = spec.attributes.get<int64_t>("axis");
  Dims position(spec.outputs[0].shape.rank());
  const Dims origin = position;
  std::vector<Box> boxes;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const TensorSpec& x = spec.inputs[i];
    boxes.push_back(dense_box(x.shape.to_vector(), x, static_cast<int>(i), origin, spec.outputs[0],
                              0, position));
    position[axis] += x.shape[static_cast<int>(axis)];
  }
  return std::make_unique<CopyKernel>(std::move(boxes));
}

std::unique_ptr<Kernel> make_split(const KernelSpec& spec) {
  const int64_t axis = spec.attributes.get<int64_t>("axis");
  Dims position(spec.inputs[0].shape.rank());
  const Dims origin = position;
  std::vector<Box> boxes;
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const TensorSpec& y = spec.outputs[i];
    boxes.push_back(dense_box(y.shape.to_vector(), spec.inputs[0], 0, position, y,
                              static_cast<int>(i), origin));
    position[axis] += y.shape[static_cast<int>(axis)];
  }
  return std::make_unique<CopyKernel>(std::move(boxes));
}

std::unique_ptr<Kernel> make_slice(const KernelSpec& spec) {
  const TensorSpec& y = spec.outputs[0];
  const auto& begin = spec.attributes.get<Dims>("begin");
  return std::make_unique<CopyKernel>(std::vector<Box>{
      dense_box(y.shape.to_vector(), spec.inputs[0], 0, begin, y, 0, Dims(y.shape.rank()))});
}

// Fills the output with the padding first: it is at most a few per cent of the elements in
// practice.
class PadKernel final : public Kernel {
 public:
  explicit PadKernel(const KernelSpec& spec)
      : output_(spec.outputs[0]),
        value_(spec.attributes.get<double>("value")),
        inside_({dense_box(spec.inputs[0].shape.to_vector(), spec.inputs[0], 0,
                           Dims(output_.shape.rank()), output_, 0,
                           spec.attributes.get<Dims>("before"))}) {}

  void run(const KernelContext& context) override {
    dispatch(AllTypes{}, output_.dtype, "Pad", [&]<typename T>() {
      parallel_for(
          output_.shape.num_elements(), kMinElementsPerThread, [&](int64_t begin, int64_t end) {
            std::fill(context.output<T>(0) + begin, context.output<T>(0) + end, convert<T>(value_));
          });
    });
    inside_.run(context);
  }

 private:
  TensorSpec output_;
  double value_;
  CopyKernel inside_;
};

// Copies its input, or does nothing where the plan gave both the same memory.
class IdentityKernel final : public Kernel {
 public:
  explicit IdentityKernel(const KernelSpec& spec) : bytes_(spec.outputs[0].bytes()) {}
  void run(const KernelContext& context) override {
    parallel_copy(context.inputs[0], context.outputs[0], bytes_);
  }
  bool can_run_in_place(int, int) const override { return true; }

 private:
  size_t bytes_;
};

std::unique_ptr<Kernel> make_identity(const KernelSpec& spec) {
  return std::make_unique<IdentityKernel>(spec);
}

COHORT_REGISTER_KERNEL("Transpose", kCpu, make_transpose);
COHORT_REGISTER_KERNEL("Concat", kCpu, make_concat);
COHORT_REGISTER_KERNEL("Split", kCpu, make_split);
COHORT_REGISTER_KERNEL("Slice", kCpu, make_slice);
COHORT_REGISTER_KERNEL("Pad", kCpu,
                       [](const KernelSpec& spec) { return std::make_unique<PadKernel>(spec); });
COHORT_REGISTER_KERNEL("Identity", kCpu, make_identity);
COHORT_REGISTER_KERNEL("StopGradient", kCpu, make_identity);
// The plan makes the output the variable's memory.
COHORT_REGISTER_KERNEL("AssignVariable", kCpu, make_identity);

}  // namespace
}  // namespace cohort
