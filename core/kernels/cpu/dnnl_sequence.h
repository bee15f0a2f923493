#pragma once

#include <dnnl.hpp>

#include "core/kernels/common/scratch.h"
#include "core/kernels/cpu/epilogue.h"
#include "core/kernels/cpu/floating_kernel.h"
#include "core/kernels/kernel.h"

namespace cohort {

// That of all primitives.
dnnl::engine& dnnl_engine();

// Whether oneDNN uses these instructions here, and all that they build on.
bool dnnl_has(dnnl::cpu_isa instructions);

// Whether oneDNN should run a kernel itself: all tensors are float32, or bfloat16 on a processor
// that computes with it (oneDNN's emulation is slower than conversion to float32), and none is
// empty. It may still refuse extreme shapes with a dnnl::error.
bool dnnl_runs(const KernelSpec& spec);
// REQUIRES: float32 or bfloat16.
dnnl::memory::data_type dnnl_type(DType dtype);

// A kernel that runs oneDNN primitives one after another. Everything is prepared while it is built;
// primitives keep their temporary memory in the kernel's scratch. Running one only allocates what
// oneDNN does itself: a few hundred bytes to index the arguments.
class DnnlSequence final : public Kernel {
 public:
  // Where the memory of an argument is found at run time.
  struct Place {
    enum class Kind { kInput, kOutput, kScratch } kind;
    size_t value;  // number of the input or output, or offset into the scratch
  };
  struct Argument {
    int id;  // DNNL_ARG_...
    dnnl::memory::desc desc;
    Place place;
  };
  static Place input(size_t index) { return {Place::Kind::kInput, index}; }
  static Place output(size_t index) { return {Place::Kind::kOutput, index}; }
  Place scratch(const dnnl::memory::desc& desc) {
    return {Place::Kind::kScratch, layout_.add(desc.get_size())};
  }

  // Appends a primitive that was created with attributes(); the order of calls is that of
  // execution.
  void add(const dnnl::primitive& primitive, std::vector<Argument> arguments);
  // The place of the contents of `place`, laid out as `to`: a copy in scratch where `from` differs.
  Place reordered(Place place, const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  void add_reorder(Place from, const dnnl::memory::desc& from_desc, Place to,
                   const dnnl::memory::desc& to_desc);

  // Attributes for primitives of a sequence: scratch from us, followed by "Relu" where asked. Any
  // other activation takes a pass of its own over the float32 output.
  static dnnl::primitive_attr attributes(const std::string& activation = "");
  void finish_with(const std::string& activation, int64_t output_elements);

  void run(const KernelContext& context) override;
  size_t scratch_bytes() const override { return layout_.bytes(); }

 private:
  struct Step {
    dnnl::primitive primitive;
    std::vector<Place> places;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
  };

  dnnl::stream stream_{dnnl_engine()};
  std::vector<Step> steps_;
  ScratchLayout layout_;
  Epilogue<float> activation_{""};
  int64_t output_elements_ = 0;
};

// The kernel that `make` builds of oneDNN primitives: in float32, between conversions, where oneDNN
// cannot in 16 bits, and K<float> or K<double> where it cannot at all. Primitives are made for the
// calling thread's team, and need more scratch on a larger one.
template <template <typename> class K>
std::unique_ptr<Kernel> make_dnnl_or(const KernelSpec& spec,
                                     std::unique_ptr<Kernel> (*make)(const KernelSpec&)) {
  if (dnnl_runs(spec)) {
    COHORT_CHECK(num_threads() == spec.num_threads);
    try {
      return make(spec);
    } catch (const dnnl::error&) {  // it has no such primitive
    }
  }
  if (!has_16_bit(spec)) return make_floating<K>(spec);
  return make_widened(
      spec, [make](const KernelSpec& wide) { return make_dnnl_or<K>(wide, make); },
      kCpuHalfConversion);
}

}  // namespace cohort
