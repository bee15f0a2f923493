#include "core/kernels/common/elementwise_spec.h"

#include <algorithm>

namespace cohort {
namespace {

bool any_dtype(const KernelSpec& spec, bool (*test)(DType)) {
  const auto matches = [&](const TensorSpec& s) { return test(s.dtype); };
  return std::any_of(spec.inputs.begin(), spec.inputs.end(), matches) ||
         std::any_of(spec.outputs.begin(), spec.outputs.end(), matches);
}

// True when an instruction other than a copy reads an integer that float32 cannot hold.
bool reads_wide_integer(const ElementwiseProgram& program, const KernelSpec& spec) {
  const auto wide = [&](int64_t r) {
    if (r >= program.num_inputs) return false;
    const DType dtype = spec.inputs[r].dtype;
    return dtype == DType::kInt32 || dtype == DType::kInt64;
  };
  return std::any_of(program.instructions.begin(), program.instructions.end(), [&](const auto& i) {
    const int arity = scalar_arity(i.op);
    return i.op != Scalar::kCopy &&
           (wide(i.a) || (arity > 1 && wide(i.b)) || (arity > 2 && wide(i.c)));
  });
}

ElementwiseProgram single(Scalar op) {
  const int arity = scalar_arity(op);
  const ElementwiseProgram::Instruction instruction{op, 0, arity > 1 ? 1 : 0, arity > 2 ? 2 : 0};
  return {.num_inputs = arity, .instructions = {instruction}, .outputs = {arity}};
}

ElementwiseProgram program_attribute(const KernelSpec& spec) {
  return ElementwiseProgram::decode(spec.attributes.get<std::vector<int64_t>>("program"));
}

}  // namespace

DType compute_dtype(const ElementwiseProgram& program, const KernelSpec& spec) {
  if (!any_dtype(spec, is_floating)) return DType::kInt64;
  const bool has_float64 = any_dtype(spec, [](DType dtype) { return dtype == DType::kFloat64; });
  return has_float64 || reads_wide_integer(program, spec) ? DType::kFloat64 : DType::kFloat32;
}

void register_elementwise(DeviceType type, ElementwiseFactory factory) {
  for (int64_t i = 0; i < static_cast<int64_t>(Scalar::kCount); ++i) {
    const auto op = static_cast<Scalar>(i);
    KernelRegistration(std::string(scalar_name(op)), type, [op, factory](const KernelSpec& spec) {
      return factory(single(op), spec, 1);
    });
  }
  KernelRegistration("BroadcastTo", type, [factory](const KernelSpec& spec) {
    return factory(single(Scalar::kCopy), spec, 1);
  });
  KernelRegistration("FusedElementwise", type, [factory](const KernelSpec& spec) {
    return factory(program_attribute(spec), spec, 1);
  });
  KernelRegistration("MultiElementwise", type, [factory](const KernelSpec& spec) {
    return factory(program_attribute(spec), spec,
                   static_cast<size_t>(spec.attributes.get<int64_t>("groups")));
  });
}

}  // namespace cohort
