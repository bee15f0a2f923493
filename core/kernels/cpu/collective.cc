#include <cstring>

#include "core/collective/communicator.h"
#include "core/kernels/kernel.h"

namespace cohort {
namespace {

// Reduces its inputs over the replicas as one bucket. With one replica every reduction is the
// identity.
class AllReduceKernel final : public Kernel {
 public:
  explicit AllReduceKernel(const KernelSpec& spec)
      : specs_(spec.inputs),
        op_(static_cast<ReduceOp>(spec.attributes.get<int64_t>("op"))),
        segments_(specs_.size()) {}

  bool can_run_in_place(int output, int input) const override { return output == input; }

  void run(const KernelContext& context) override {
    for (size_t i = 0; i < specs_.size(); ++i)
      segments_[i] = {context.inputs[i], context.outputs[i], specs_[i].shape.num_elements()};
    if (context.step.communicator == nullptr) return copy(context);
    // Runs of one dtype form a bucket each.
    for (size_t begin = 0; begin < specs_.size();) {
      size_t end = begin + 1;
      while (end < specs_.size() && specs_[end].dtype == specs_[begin].dtype) ++end;
      context.step.communicator->all_reduce(std::span(segments_).subspan(begin, end - begin),
                                            specs_[begin].dtype, op_);
      begin = end;
    }
  }

 private:
  void copy(const KernelContext& context) const {
    for (size_t i = 0; i < specs_.size(); ++i)
      if (context.outputs[i] != context.inputs[i])
        std::memcpy(context.outputs[i], context.inputs[i], specs_[i].bytes());
  }

  std::vector<TensorSpec> specs_;
  ReduceOp op_;
  std::vector<Segment> segments_;
};

COHORT_REGISTER_KERNEL("AllReduce", kCpu, [](const KernelSpec& spec) -> std::unique_ptr<Kernel> {
  return std::make_unique<AllReduceKernel>(spec);
});

}  // namespace
}  // namespace cohort
