#include <algorithm>

#include "core/base/threads.h"
#include "core/kernels/common/elementwise_spec.h"
#include "core/kernels/cpu/tile_program.h"
#include "core/kernels/kernel.h"

namespace cohort {
namespace {

using Specs = std::span<const TensorSpec>;

constexpr int64_t kMinTilesPerThread = 16;  // about 16 thousand elements

// One program over one or more groups of tensors, all as a single parallel loop. Inputs and outputs
// are ordered group by group.
template <typename T>
class ElementwiseKernel final : public Kernel {
 public:
  ElementwiseKernel(const ElementwiseProgram& program, const KernelSpec& spec, size_t groups)
      : width_in_(program.num_inputs),
        width_out_(program.outputs.size()),
        num_threads_(spec.num_threads) {
    COHORT_CHECK(spec.inputs.size() == groups * width_in_ &&
                 spec.outputs.size() == groups * width_out_);
    for (size_t g = 0; g < groups; ++g) {
      groups_.emplace_back(program, Specs(spec.inputs).subspan(g * width_in_, width_in_),
                           Specs(spec.outputs).subspan(g * width_out_, width_out_));
      first_tiles_.push_back(first_tiles_.back() + groups_[g].num_tiles());
      scratch_each_ = std::max(scratch_each_, groups_[g].scratch_bytes());
    }
  }

  size_t scratch_bytes() const override { return scratch_each_ * num_threads_; }

  bool can_run_in_place(int output, int input) const override {
    const size_t group = output / width_out_;
    return group == input / width_in_ &&
           groups_[group].can_run_in_place(output % width_out_, input % width_in_);
  }

  void run(const KernelContext& context) override {
    const int64_t tiles = first_tiles_.back();
    const int64_t workers = std::clamp<int64_t>(tiles / kMinTilesPerThread, 1, num_threads_);
    parallel_for(workers, 1, [&](int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w)
        run_tiles(tiles * w / workers, tiles * (w + 1) / workers, context, w);
    });
  }

 private:
  void run_tiles(int64_t begin, int64_t end, const KernelContext& context, int64_t worker) const {
    void* scratch = static_cast<char*>(context.scratch) + worker * scratch_each_;
    size_t g = std::upper_bound(first_tiles_.begin(), first_tiles_.end(), begin) -
               first_tiles_.begin() - 1;
    for (; g < groups_.size() && first_tiles_[g] < end; ++g)
      groups_[g].run(std::max(begin, first_tiles_[g]) - first_tiles_[g],
                     std::min(end, first_tiles_[g + 1]) - first_tiles_[g],
                     &context.inputs[g * width_in_], &context.outputs[g * width_out_], scratch);
  }

  size_t width_in_, width_out_;  // inputs and outputs of a group
  int num_threads_;
  size_t scratch_each_ = 0;
  std::vector<TileProgram<T>> groups_;
  std::vector<int64_t> first_tiles_ = {0};  // of each group, and the end
};

std::unique_ptr<Kernel> make_elementwise(const ElementwiseProgram& program, const KernelSpec& spec,
                                         size_t groups) {
  std::unique_ptr<Kernel> kernel;
  dispatch(TypeList<float, double, int64_t>{}, compute_dtype(program, spec), spec.op,
           [&]<typename T>() {
             kernel = std::make_unique<ElementwiseKernel<T>>(program, spec, groups);
           });
  return kernel;
}

const bool kRegistered = [] {
  register_elementwise(DeviceType::kCpu, make_elementwise);
  return true;
}();

}  // namespace
}  // namespace cohort
