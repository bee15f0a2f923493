#include "core/kernels/cuda/bias_tail.h"

#include "core/tensor/elementwise_program.h"

namespace cohort::cuda {

BiasTail::BiasTail(const KernelSpec& spec) {
  ElementwiseProgram program{.num_inputs = 2, .instructions = {{Scalar::kAdd, 0, 1}}};
  Scalar activation;
  if (scalar_from_name(spec.attributes.get_or<std::string>("activation", ""), activation))
    program.instructions.push_back({activation, 2});
  program.outputs = {1 + static_cast<int64_t>(program.instructions.size())};
  const Attributes attributes = {{"program", program.encode()}};
  kernel_ = make_kernel({"FusedElementwise",
                         {spec.outputs[0], spec.inputs[2]},
                         {spec.outputs[0]},
                         attributes,
                         spec.device,
                         spec.num_threads});
}

void BiasTail::run(const KernelContext& context, void* scratch) const {
  const void* inputs[] = {context.outputs[0], context.inputs[2]};
  KernelContext after = context;
  after.inputs = inputs;
  after.scratch = scratch;
  kernel_->run(after);
}

}  // namespace cohort::cuda
