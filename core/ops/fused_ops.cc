#include <iterator>

#include "core/ops/shape_checks.h"
#include "core/tensor/elementwise_program.h"

// Made by the passes after gradients are taken, hence without gradients of their own.
namespace cohort::ops {
namespace {

// Of one node. Groups and a program's outputs multiply, so that a short message may mean more of
// them than there is memory for. Those of a whole graph that is imported need no limit: it lists
// them all, and the first node that has others ends the import.
constexpr int64_t kMaxOutputs = int64_t{1} << 20;

ElementwiseProgram program_attribute(const InferenceContext& c) {
  auto program = ElementwiseProgram::decode(c.attributes.get<std::vector<int64_t>>("program"));
  if (program.num_inputs < 1) invalid("the program has no input");
  return program;
}

std::vector<DType> dtypes_attribute(const InferenceContext& c, const ElementwiseProgram& program) {
  std::vector<DType> dtypes;
  for (int64_t number : list_attribute(c, "dtypes", static_cast<int>(program.outputs.size()), 0)) {
    if (number >= kNumDTypes) invalid(number, " is not a dtype");
    dtypes.push_back(static_cast<DType>(number));
  }
  return dtypes;
}

Specs infer_fused_elementwise(const InferenceContext& c) {
  const auto program = program_attribute(c);
  if (c.inputs.size() != static_cast<size_t>(program.num_inputs))
    invalid("the program takes ", program.num_inputs, " inputs, got ", c.inputs.size());
  const Shape shape = shape_attribute(c);
  for (const auto& input : c.inputs)
    if (broadcast_shapes(input.shape, shape) != shape)
      invalid(input.shape, " does not broadcast to ", shape);
  Specs outputs;
  for (DType dtype : dtypes_attribute(c, program)) outputs.push_back({dtype, shape});
  return outputs;
}

Specs infer_multi_elementwise(const InferenceContext& c) {
  const auto program = program_attribute(c);
  const auto dtypes = dtypes_attribute(c, program);
  const int64_t groups = count_attribute(c, "groups");
  const size_t width = program.num_inputs;
  if (c.inputs.size() % width != 0 || static_cast<int64_t>(c.inputs.size() / width) != groups ||
      groups == 0)
    invalid(groups, " groups of ", width, " inputs do not make ", c.inputs.size());
  if (groups > kMaxOutputs / std::ssize(dtypes))
    invalid(groups, " groups of ", dtypes.size(), " outputs are more than the limit of ",
            kMaxOutputs);
  Specs outputs;
  for (size_t first = 0; first < c.inputs.size(); first += width) {
    Shape shape;
    for (size_t i = first; i < first + width; ++i)
      shape = broadcast_shapes(shape, c.inputs[i].shape);
    for (DType dtype : dtypes) outputs.push_back({dtype, shape});
  }
  return outputs;
}

COHORT_REGISTER_OP({.name = "FusedElementwise",
                    .num_inputs = OpDef::kVariadic,
                    .attributes = {"program", "shape", "dtypes"},
                    .infer = infer_fused_elementwise});
COHORT_REGISTER_OP({.name = "MultiElementwise",
                    .num_inputs = OpDef::kVariadic,
                    .attributes = {"program", "groups", "dtypes"},
                    .infer = infer_multi_elementwise});

}  // namespace
}  // namespace cohort::ops
