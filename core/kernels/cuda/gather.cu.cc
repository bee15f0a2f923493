#include "core/kernels/common/convert.h"
#include "core/kernels/common/row_fault.h"
#include "core/kernels/cuda/launch.h"
#include "core/kernels/kernel.h"

// Ops that read rows, or write ones, at integer positions.
namespace cohort::cuda {
namespace {

// The largest type that divides a row evenly, so that rows are copied in few accesses.
template <typename F>
void with_word(size_t row_bytes, const F& f) {
  if (row_bytes % 8 == 0)
    f(uint64_t{});
  else if (row_bytes % 4 == 0)
    f(uint32_t{});
  else if (row_bytes % 2 == 0)
    f(uint16_t{});
  else
    f(uint8_t{});
}

struct GatherSizes {
  int64_t outer, count, extent;  // out[o, i] = params[o, indices[i]], rows of `words`
  int64_t words;
  int64_t lowest;
};

template <typename Index, typename Word>
void gather_rows(const KernelContext& context, const GatherSizes s) {
  const Index* indices = context.input<Index>(1);
  const Word* params = context.input<Word>(0);
  Word* out = context.output<Word>(0);
  KernelFault* fault = context.fault;
  const int32_t number = context.number;
  for_each_element(*context.stream, s.outer * s.count * s.words, [=] COHORT_DEVICE(int64_t i) {
    const int64_t word = i % s.words, line = i / s.words, position = line % s.count;
    const auto index = static_cast<int64_t>(indices[position]);
    Word value = 0;
    if (index < s.lowest || index >= s.extent)
      report(fault, number, index, position);
    else if (index != kNoRow)
      value = params[(line / s.count * s.extent + index) * s.words + word];
    out[i] = value;
  });
}

class GatherKernel final : public Kernel {
 public:
  explicit GatherKernel(const KernelSpec& spec) : index_dtype_(spec.inputs[1].dtype) {
    const Shape& params = spec.inputs[0].shape;
    const int axis = static_cast<int>(spec.attributes.get<int64_t>("axis"));
    row_bytes_ = static_cast<size_t>(params.count(axis + 1, params.rank())) *
                 dtype_size(spec.inputs[0].dtype);
    sizes_ = {params.count(0, axis), spec.inputs[1].shape.num_elements(), params[axis], 0,
              spec.attributes.get_or<bool>("allow_none", false) ? kNoRow : 0};
  }

  void run(const KernelContext& context) override {
    dispatch(IntegerTypes{}, index_dtype_, "Gather", [&]<typename Index>() {
      with_word(row_bytes_, [&]<typename Word>(Word) {
        GatherSizes sizes = sizes_;
        sizes.words = static_cast<int64_t>(row_bytes_ / sizeof(Word));
        gather_rows<Index, Word>(context, sizes);
      });
    });
  }

  Error describe(const KernelFault& fault) const override {
    return index_error("Gather", fault.value, fault.position, sizes_.extent, sizes_.lowest);
  }

 private:
  DType index_dtype_;
  size_t row_bytes_;
  GatherSizes sizes_;
};

template <typename Index, typename T>
void write_ones(const KernelContext& context, int64_t count, int64_t depth) {
  const Index* indices = context.input<Index>(0);
  T* out = context.output<T>(0);
  const T one = convert<T>(1), zero = convert<T>(0);
  for_each_element(*context.stream, count * depth, [=] COHORT_DEVICE(int64_t i) {
    out[i] = static_cast<int64_t>(indices[i / depth]) == i % depth ? one : zero;
  });
}

void one_hot(const KernelCall& call, const KernelContext& context) {
  const int64_t count = call.input_specs[0].shape.num_elements(),
                depth = call.attributes.get<int64_t>("depth");
  dispatch(IntegerTypes{}, call.input_specs[0].dtype, "OneHot", [&]<typename Index>() {
    dispatch(AllTypes{}, call.output_specs[0].dtype, "OneHot",
             [&]<typename T>() { write_ones<Index, T>(context, count, depth); });
  });
}

COHORT_REGISTER_KERNEL("Gather", kGpu, make_plain<GatherKernel>);
COHORT_REGISTER_KERNEL("OneHot", kGpu, stateless_kernel(one_hot));

}  // namespace
}  // namespace cohort::cuda
