#include "core/tensor/bool_bytes.h"

#include <algorithm>

namespace cohort {

void normalize_bools(Tensor& tensor) {
  if (tensor.dtype() != DType::kBool) return;
  auto* begin = static_cast<unsigned char*>(tensor.raw());
  std::transform(begin, begin + tensor.bytes(), begin,
                 [](unsigned char value) { return value != 0; });
}

}  // namespace cohort
