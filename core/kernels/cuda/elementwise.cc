#include <algorithm>

#include "core/device/cuda/cuda_error.h"
#include "core/device/cuda/cuda_stream.h"
#include "core/device/cuda/gpus.h"
#include "core/kernels/common/broadcast_view.h"
#include "core/kernels/common/elementwise_spec.h"
#include "core/kernels/cuda/program_source.h"
#include "core/kernels/cuda/runtime_compiler.h"

namespace cohort::cuda {
namespace {

// Groups that one source fits: they differ in their number of elements alone.
struct Launch {
  ProgramSource source;
  cudaKernel_t kernel;
  std::vector<size_t> groups;
  std::vector<ProgramGroup> memory;  // of this run, group by group
};

// One program over one or more groups of tensors. Inputs and outputs are ordered group by group.
class ElementwiseKernel final : public Kernel {
 public:
  ElementwiseKernel(const ElementwiseProgram& program, const KernelSpec& spec, size_t groups)
      : spec_inputs_(spec.inputs),
        spec_outputs_(spec.outputs),
        width_in_(static_cast<size_t>(program.num_inputs)),
        width_out_(program.outputs.size()) {
    COHORT_CHECK(spec.inputs.size() == groups * width_in_ &&
                 spec.outputs.size() == groups * width_out_);
    const DType compute = compute_dtype(program, spec);
    for (size_t g = 0; g < groups; ++g) {
      ProgramSource source = program_source(program, compute, of_group(spec.inputs, width_in_, g),
                                            of_group(spec.outputs, width_out_, g));
      auto it = std::find_if(launches_.begin(), launches_.end(), [&](const Launch& launch) {
        return launch.source.text == source.text;
      });
      if (it == launches_.end()) {
        const cudaKernel_t kernel = load_source(source.text, spec.device);
        it = launches_.insert(it, {std::move(source), kernel, {}, {}});
        words_.resize(std::max(words_.size(), it->source.words()));
      }
      it->groups.push_back(g);
      it->memory.push_back({spec.outputs[g * width_out_].shape.num_elements(), {}, {}});
    }
  }

  void run(const KernelContext& context) override {
    for (Launch& launch : launches_) {
      for (size_t k = 0; k < launch.groups.size(); ++k) {
        const size_t g = launch.groups[k];
        launch.memory[k].inputs = context.inputs.subspan(g * width_in_, width_in_);
        launch.memory[k].outputs = context.outputs.subspan(g * width_out_, width_out_);
      }
      const auto most = static_cast<size_t>(launch.source.max_groups);
      for (size_t begin = 0; begin < launch.memory.size(); begin += most)
        run_groups(
            context, launch.kernel,
            std::span(launch.memory).subspan(begin, std::min(most, launch.memory.size() - begin)));
    }
  }

  // A thread has read its element of every input before it writes any output.
  bool can_run_in_place(int output, int input) const override {
    const auto out = static_cast<size_t>(output), in = static_cast<size_t>(input);
    return out / width_out_ == in / width_in_ &&
           spec_inputs_[in].dtype == spec_outputs_[out].dtype &&
           BroadcastView(spec_inputs_[in].shape, spec_outputs_[out].shape).same_order();
  }

 private:
  static std::vector<TensorSpec> of_group(const std::vector<TensorSpec>& specs, size_t width,
                                          size_t group) {
    const auto first = specs.begin() + static_cast<int64_t>(group * width);
    return {first, first + static_cast<int64_t>(width)};
  }

  void run_groups(const KernelContext& context, cudaKernel_t kernel,
                  std::span<const ProgramGroup> groups) {
    const int64_t blocks = write_groups(groups, words_);
    if (blocks == 0) return;
    void* arguments[] = {words_.data()};
    COHORT_CUDA(context.stream->device(),
                cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                 dim3(static_cast<unsigned>(kBlockThreads)), arguments, 0,
                                 cuda_stream(*context.stream)));
  }

  std::vector<TensorSpec> spec_inputs_, spec_outputs_;
  size_t width_in_, width_out_;  // inputs and outputs of a group
  std::vector<Launch> launches_;
  std::vector<int64_t> words_;  // of a launch
};

std::unique_ptr<Kernel> make_elementwise(const ElementwiseProgram& program, const KernelSpec& spec,
                                         size_t groups) {
  return std::make_unique<ElementwiseKernel>(program, spec, groups);
}

const bool kRegistered = [] {
  register_elementwise(DeviceType::kGpu, make_elementwise);
  return true;
}();

}  // namespace
}  // namespace cohort::cuda
