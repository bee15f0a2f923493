#include <numeric>

#include "core/kernels/common/convert.h"
#include "core/kernels/common/strides.h"
#include "core/kernels/cuda/box_copy.h"
#include "core/kernels/cuda/launch.h"
#include "core/kernels/kernel.h"

namespace cohort::cuda {
namespace {

using Dims = std::vector<int64_t>;

// One box to copy, from byte `source_offset` of an input to byte `target_offset` of an output.
struct PlacedBox {
  Box box;
  int input, output;
  int64_t source_offset, target_offset;
};

class CopyKernel final : public Kernel {
 public:
  CopyKernel(std::vector<PlacedBox> boxes, size_t element_bytes)
      : boxes_(std::move(boxes)), element_bytes_(element_bytes) {}
  void run(const KernelContext& context) override {
    for (const PlacedBox& b : boxes_)
      copy_box(*context.stream, b.box, context.input<char>(b.input) + b.source_offset,
               context.output<char>(b.output) + b.target_offset, element_bytes_);
  }

 private:
  std::vector<PlacedBox> boxes_;
  size_t element_bytes_;
};

// Offset in elements of the element at `position`.
int64_t offset_of(const Dims& position, const Dims& strides) {
  return std::inner_product(position.begin(), position.end(), strides.begin(), int64_t{0});
}

// The box of `extents` at `source_position` of a dense tensor goes to `target_position` of another.
PlacedBox dense_box(const Dims& extents, const TensorSpec& source, int input,
                    const Dims& source_position, const TensorSpec& target, int output,
                    const Dims& target_position) {
  const Dims source_strides = dense_strides(source.shape),
             target_strides = dense_strides(target.shape);
  const auto size = static_cast<int64_t>(dtype_size(source.dtype));
  return {Box(extents, source_strides, target_strides), input, output,
          size * offset_of(source_position, source_strides),
          size * offset_of(target_position, target_strides)};
}

std::unique_ptr<Kernel> make_copy(const KernelSpec& spec, std::vector<PlacedBox> boxes) {
  return std::make_unique<CopyKernel>(std::move(boxes), dtype_size(spec.inputs[0].dtype));
}

std::unique_ptr<Kernel> make_transpose(const KernelSpec& spec) {
  const Dims input_strides = dense_strides(spec.inputs[0].shape);
  Dims strides;
  for (int64_t axis : spec.attributes.get<Dims>("perm"))
    strides.push_back(input_strides[static_cast<size_t>(axis)]);
  const Shape& y = spec.outputs[0].shape;
  return make_copy(spec, {{Box(y.to_vector(), strides, dense_strides(y)), 0, 0, 0, 0}});
}

std::unique_ptr<Kernel> make_concat(const KernelSpec& spec) {
  const int64_t axis = spec.attributes.get<int64_t>("axis");
  Dims position(static_cast<size_t>(spec.outputs[0].shape.rank()));
  const Dims origin = position;
  std::vector<PlacedBox> boxes;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const TensorSpec& x = spec.inputs[i];
    boxes.push_back(dense_box(x.shape.to_vector(), x, static_cast<int>(i), origin, spec.outputs[0],
                              0, position));
    position[static_cast<size_t>(axis)] += x.shape[static_cast<int>(axis)];
  }
  return make_copy(spec, std::move(boxes));
}

std::unique_ptr<Kernel> make_split(const KernelSpec& spec) {
  const int64_t axis = spec.attributes.get<int64_t>("axis");
  Dims position(static_cast<size_t>(spec.inputs[0].shape.rank()));
  const Dims origin = position;
  std::vector<PlacedBox> boxes;
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const TensorSpec& y = spec.outputs[i];
    boxes.push_back(dense_box(y.shape.to_vector(), spec.inputs[0], 0, position, y,
                              static_cast<int>(i), origin));
    position[static_cast<size_t>(axis)] += y.shape[static_cast<int>(axis)];
  }
  return make_copy(spec, std::move(boxes));
}

std::unique_ptr<Kernel> make_slice(const KernelSpec& spec) {
  const TensorSpec& y = spec.outputs[0];
  return make_copy(
      spec, {dense_box(y.shape.to_vector(), spec.inputs[0], 0, spec.attributes.get<Dims>("begin"),
                       y, 0, Dims(static_cast<size_t>(y.shape.rank())))});
}

template <typename T>
void fill(Stream& stream, T* target, int64_t count, double value) {
  const T element = convert<T>(value);
  for_each_element(stream, count, [=] COHORT_DEVICE(int64_t i) { target[i] = element; });
}

// Fills the output with the padding first: it is at most a few per cent of the elements in
// practice.
class PadKernel final : public Kernel {
 public:
  explicit PadKernel(const KernelSpec& spec)
      : output_(spec.outputs[0]),
        value_(spec.attributes.get<double>("value")),
        inside_({dense_box(spec.inputs[0].shape.to_vector(), spec.inputs[0], 0,
                           Dims(static_cast<size_t>(output_.shape.rank())), output_, 0,
                           spec.attributes.get<Dims>("before"))},
                dtype_size(output_.dtype)) {}

  void run(const KernelContext& context) override {
    dispatch(AllTypes{}, output_.dtype, "Pad", [&]<typename T>() {
      fill<T>(*context.stream, context.output<T>(0), output_.shape.num_elements(), value_);
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
    context.stream->copy_within_device(context.inputs[0], context.outputs[0], bytes_);
  }
  bool can_run_in_place(int, int) const override { return true; }

 private:
  size_t bytes_;
};

std::unique_ptr<Kernel> make_identity(const KernelSpec& spec) {
  return std::make_unique<IdentityKernel>(spec);
}

COHORT_REGISTER_KERNEL("Transpose", kGpu, make_transpose);
COHORT_REGISTER_KERNEL("Concat", kGpu, make_concat);
COHORT_REGISTER_KERNEL("Split", kGpu, make_split);
COHORT_REGISTER_KERNEL("Slice", kGpu, make_slice);
COHORT_REGISTER_KERNEL("Pad", kGpu,
                       [](const KernelSpec& spec) { return std::make_unique<PadKernel>(spec); });
COHORT_REGISTER_KERNEL("Identity", kGpu, make_identity);
COHORT_REGISTER_KERNEL("StopGradient", kGpu, make_identity);
// The plan makes the output the variable's memory.
COHORT_REGISTER_KERNEL("AssignVariable", kGpu, make_identity);

}  // namespace
}  // namespace cohort::cuda
