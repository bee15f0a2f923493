#include "strategies/parameter_server/finite.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace cohort::parameter_server {

bool is_finite(const Tensor& tensor) {
  if (!is_floating(tensor.dtype())) return true;
  bool finite = false;
  dispatch(FloatTypes{}, tensor.dtype(), "a value that may have diverged", [&]<typename T>() {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    finite = std::ranges::all_of(
        tensor.values<T>(), [](const T& value) { return std::isfinite(static_cast<Wide>(value)); });
  });
  return finite;
}

}  // namespace cohort::parameter_server
