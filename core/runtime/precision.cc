#include "core/runtime/precision.h"

#include "core/base/comma_separated.h"
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

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const Policy& each : kPolicies) names.emplace_back(each.name);
  return names;
}

Precision precision_from_name(std::string_view name) {
  for (Precision p : {Precision::kFloat32, Precision::kMixedBFloat16, Precision::kMixedFloat16})
    if (precision_name(p) == name) return p;
  invalid("unknown precision \"", name, "\"; allowed are ", comma_separated(precision_names()));
}

std::string_view precision_name(Precision precision) { return policy(precision).name; }

DType operand_dtype(Precision precision) { return policy(precision).operands; }

}  // namespace cohort
