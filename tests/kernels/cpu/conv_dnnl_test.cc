#include "core/kernels/cpu/dnnl_sequence.h"
#include "tests/kernels/cpu/nn_testing.h"

namespace cohort {
namespace {

// What each op takes, and the shape of what it gives.
struct Product {
  const char* op;
  Shape a, b, result;
};

TEST(ConvDnnl, MultipliesBFloat16ItselfWhereTheProcessorDoes) {
  if (!dnnl_has(dnnl::cpu_isa::avx512_core_bf16)) GTEST_SKIP() << "no bfloat16 on this processor";
  const Shape x{2, 8, 8, 16}, filter{3, 3, 16, 32}, y{2, 8, 8, 32};
  const Attributes attributes = {{"strides", List{1, 1}},
                                 {"dilations", List{1, 1}},
                                 {"pads", List{1, 1, 1, 1}},
                                 {"groups", int64_t{1}}};
  for (const auto& [op, a, b, result] :
       {Product{"Conv2D", x, filter, y}, Product{"Conv2DGradInput", y, filter, x},
        Product{"Conv2DGradFilter", x, y, filter}})
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
      const auto kernel = make_kernel({op,
                                       {{DType::kBFloat16, a}, {DType::kBFloat16, b}},
                                       {{dtype, result}},
                                       attributes,
                                       Device{},
                                       num_threads()});
      EXPECT_NE(dynamic_cast<DnnlSequence*>(kernel.get()), nullptr) << op << " to " << dtype;
    }
}

}  // namespace
}  // namespace cohort
