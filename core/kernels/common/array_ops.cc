#include "core/kernels/common/array_ops.h"

#include <numeric>

#include "core/kernels/common/strides.h"

namespace cohort {
namespace {

using Dims = std::vector<int64_t>;
using Boxes = std::vector<TensorBox>;

// Offset in elements of the element at `position`.
int64_t offset_of(const Dims& position, const Dims& strides) {
  return std::inner_product(position.begin(), position.end(), strides.begin(), int64_t{0});
}

// The box of `extents` at `source_position` of a dense tensor goes to `target_position` of another.
TensorBox dense_box(const Dims& extents, const TensorSpec& source, int input,
                    const Dims& source_position, const TensorSpec& target, int output,
                    const Dims& target_position) {
  const Dims source_strides = dense_strides(source.shape),
             target_strides = dense_strides(target.shape);
  const auto size = static_cast<int64_t>(dtype_size(source.dtype));
  return {extents,
          source_strides,
          target_strides,
          input,
          output,
          size * offset_of(source_position, source_strides),
          size * offset_of(target_position, target_strides)};
}

Dims origin(const TensorSpec& tensor) { return Dims(static_cast<size_t>(tensor.shape.rank())); }

Boxes transposed(const KernelSpec& spec) {
  const Dims input_strides = dense_strides(spec.inputs[0].shape);
  Dims strides;
  for (int64_t axis : spec.attributes.get<Dims>("perm"))
    strides.push_back(input_strides[static_cast<size_t>(axis)]);
  const Shape& y = spec.outputs[0].shape;
  return {{y.to_vector(), strides, dense_strides(y)}};
}

// Calls visit(i, position) for `parts` that lie one behind the other along the attribute "axis".
template <typename F>
void for_each_part(const KernelSpec& spec, const std::vector<TensorSpec>& parts, F visit) {
  const int64_t axis = spec.attributes.get<int64_t>("axis");
  Dims position = origin(parts[0]);
  for (size_t i = 0; i < parts.size(); ++i) {
    visit(i, position);
    position[static_cast<size_t>(axis)] += parts[i].shape[static_cast<int>(axis)];
  }
}

Boxes concatenated(const KernelSpec& spec) {
  Boxes boxes;
  for_each_part(spec, spec.inputs, [&](size_t i, const Dims& position) {
    const TensorSpec& x = spec.inputs[i];
    boxes.push_back(dense_box(x.shape.to_vector(), x, static_cast<int>(i), origin(x),
                              spec.outputs[0], 0, position));
  });
  return boxes;
}

Boxes split(const KernelSpec& spec) {
  Boxes boxes;
  for_each_part(spec, spec.outputs, [&](size_t i, const Dims& position) {
    const TensorSpec& y = spec.outputs[i];
    boxes.push_back(dense_box(y.shape.to_vector(), spec.inputs[0], 0, position, y,
                              static_cast<int>(i), origin(y)));
  });
  return boxes;
}

Boxes sliced(const KernelSpec& spec) {
  const TensorSpec& y = spec.outputs[0];
  return {dense_box(y.shape.to_vector(), spec.inputs[0], 0, spec.attributes.get<Dims>("begin"), y,
                    0, origin(y))};
}

Boxes padded(const KernelSpec& spec) {
  const TensorSpec& x = spec.inputs[0];
  return {dense_box(x.shape.to_vector(), x, 0, origin(x), spec.outputs[0], 0,
                    spec.attributes.get<Dims>("before"))};
}

void register_boxes(const char* op, DeviceType type, ArrayFactories::CopyFactory factory,
                    Boxes (*boxes)(const KernelSpec&)) {
  KernelRegistration(op, type, [=](const KernelSpec& spec) { return factory(spec, boxes(spec)); });
}

}  // namespace

void register_array_ops(DeviceType type, const ArrayFactories& factories) {
  register_boxes("Transpose", type, factories.copy, transposed);
  register_boxes("Concat", type, factories.copy, concatenated);
  register_boxes("Split", type, factories.copy, split);
  register_boxes("Slice", type, factories.copy, sliced);
  register_boxes("Pad", type, factories.fill, padded);
  // The plan makes the output of AssignVariable the variable's memory.
  for (const char* op : {"Identity", "StopGradient", "CustomGradient", "AssignVariable"})
    KernelRegistration(op, type, factories.identity);
  KernelRegistration("Require", type, factories.require);
}

}  // namespace cohort
