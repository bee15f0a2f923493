#include "core/runtime/precision.h"

#include "core/base/error.h"

namespace cohort {

Precision precision_from_name(std::string_view name) {
  for (Precision p : {Precision::kFloat32, Precision::kMixedBFloat16})
    if (precision_name(p) == name) return p;
  invalid("unknown precision \"", name, "\"; allowed are float32, mixed_bfloat16");
}

std::string_view precision_name(Precision precision) {
  return precision == Precision::kFloat32 ? "float32" : "mixed_bfloat16";
}

}  // namespace cohort
