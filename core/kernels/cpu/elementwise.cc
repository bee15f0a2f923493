#include <algorithm>

#include "core/base/threads.h"
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

std::unique_ptr<Kernel> make_elementwise(const ElementwiseProgram& program, const KernelSpec& spec,
                                         size_t groups) {
  if (!any_dtype(spec, is_floating))
    return std::make_unique<ElementwiseKernel<int64_t>>(program, spec, groups);
  const bool has_float64 = any_dtype(spec, [](DType dtype) { return dtype == DType::kFloat64; });
  if (has_float64 || reads_wide_integer(program, spec))
    return std::make_unique<ElementwiseKernel<double>>(program, spec, groups);
  return std::make_unique<ElementwiseKernel<float>>(program, spec, groups);
}

std::unique_ptr<Kernel> make_single(Scalar op, const KernelSpec& spec) {
  const int arity = scalar_arity(op);
  const ElementwiseProgram::Instruction instruction{op, 0, arity > 1 ? 1 : 0, arity > 2 ? 2 : 0};
  return make_elementwise({.num_inputs = arity, .instructions = {instruction}, .outputs = {arity}},
                          spec, 1);
}

ElementwiseProgram program_attribute(const KernelSpec& spec) {
  return ElementwiseProgram::decode(spec.attributes.get<std::vector<int64_t>>("program"));
}

const bool kRegistered = [] {
  for (int64_t i = 0; i < static_cast<int64_t>(Scalar::kCount); ++i) {
    const auto op = static_cast<Scalar>(i);
    KernelRegistration(std::string(scalar_name(op)), DeviceType::kCpu,
                       [op](const KernelSpec& spec) { return make_single(op, spec); });
  }
  return true;
}();

COHORT_REGISTER_KERNEL("BroadcastTo", kCpu,
                       [](const KernelSpec& spec) { return make_single(Scalar::kCopy, spec); });
COHORT_REGISTER_KERNEL("FusedElementwise", kCpu, [](const KernelSpec& spec) {
  return make_elementwise(program_attribute(spec), spec, 1);
});
COHORT_REGISTER_KERNEL("MultiElementwise", kCpu, [](const KernelSpec& spec) {
  return make_elementwise(program_attribute(spec), spec, spec.attributes.get<int64_t>("groups"));
});

}  // namespace
}  // namespace cohort
