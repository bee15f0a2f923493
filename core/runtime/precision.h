#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/dtype.h"

namespace cohort {

// In which type float32 matrix products and convolutions multiply; they still give float32. On
// GPUs attention is computed in it, too, and results of convolutions and attention are rounded to
// it; on CPUs attention stays float32.
// Variables and everything else stay as written (float32), so weights keep their full precision.
// What is beyond float16's range, 6e-8 to 65504, becomes 0 or infinite: gradients need a loss scale
// (optim::LossScale).
enum class Precision { kFloat32, kMixedBFloat16, kMixedFloat16 };

// "float32", "mixed_bfloat16", "mixed_float16": those that precision_from_name() knows, as choices
// of a flag are given.
std::vector<std::string> precision_names();
// kInvalidArgument lists the allowed names.
Precision precision_from_name(std::string_view name);
std::string_view precision_name(Precision precision);
// The type of what is multiplied.
DType operand_dtype(Precision precision);

}  // namespace cohort
