#pragma once

#include <string_view>

namespace cohort {

// In which type matrix products and convolutions multiply. Variables and everything else stay as
// written (float32), so weights keep their full precision.
enum class Precision { kFloat32, kMixedBFloat16 };

// "float32", "mixed_bfloat16"; kInvalidArgument lists the allowed names.
Precision precision_from_name(std::string_view name);
std::string_view precision_name(Precision precision);

}  // namespace cohort
