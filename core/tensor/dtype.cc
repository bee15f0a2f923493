#include "core/tensor/dtype.h"

#include <array>
#include <ostream>

#include "core/base/comma_separated.h"

namespace cohort {
namespace {

struct DTypeInfo {
  std::string_view name;
  size_t size;
};

constexpr std::array<DTypeInfo, kNumDTypes> kInfo = {{{"float32", 4},
                                                      {"float64", 8},
                                                      {"bfloat16", 2},
                                                      {"float16", 2},
                                                      {"int32", 4},
                                                      {"int64", 8},
                                                      {"uint8", 1},
                                                      {"bool", 1}}};

const DTypeInfo& info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  COHORT_CHECK(index < kInfo.size());
  return kInfo[index];
}

}  // namespace

size_t dtype_size(DType dtype) { return info(dtype).size; }

bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || is_half(dtype);
}

bool is_half(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

bool is_integer(DType dtype) {
  return dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kUInt8;
}

std::string_view dtype_name(DType dtype) { return info(dtype).name; }

DType dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i)
    if (kInfo[i].name == name) return static_cast<DType>(i);
  invalid("unknown dtype \"", name, "\"; known are ", comma_separated(kInfo, &DTypeInfo::name));
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << dtype_name(dtype); }

}  // namespace cohort
