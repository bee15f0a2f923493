#include "core/runtime/precision.h"

#include "core/base/error.h"

namespace cohort {
namespace {

struct Policy {
  std::string_view name;
  DType operands;
};

// By Precision.
constexpr Policy kPolicies[] = {{"float32", DType::kFloat32},
                                {"mixed_bfloat16", DType::kBFloat16},
                                {"mixed_float16", DType::kFloat16}};

const Policy& policy(Precision precision) { return kPolicies[static_cast<size_t>(precision)]; }

}  // namespace

Precision precision_from_name(std::string_view name) {
  for (Precision p : {Precision::kFloat32, Precision::kMixedBFloat16, Precision::kMixedFloat16})
    if (precision_name(p) == name) return p;
  invalid("unknown precision \"", name, "\"; allowed are float32, mixed_bfloat16, mixed_float16");
}

std::string_view precision_name(Precision precision) { return policy(precision).name; }

DType operand_dtype(Precision precision) { return policy(precision).operands; }

}  // namespace cohort
