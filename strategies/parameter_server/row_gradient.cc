#include "strategies/parameter_server/row_gradient.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/error.h"

namespace cohort {
namespace {

template <typename T>
void add(T* target, const T* addend, int64_t count) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  for (int64_t i = 0; i < count; ++i)
    target[i] = T(static_cast<Wide>(target[i]) + static_cast<Wide>(addend[i]));
}

}  // namespace

bool is_ascending(std::span<const int64_t> rows) {
  return std::ranges::adjacent_find(rows, std::greater_equal()) == rows.end();
}

RowGradient combine_rows(const RowGradient& gradient) {
  if (is_ascending(gradient.rows)) return gradient;
  std::vector<size_t> order(gradient.rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return gradient.rows[i]; });
  RowGradient combined;
  for (const size_t i : order)
    if (combined.rows.empty() || combined.rows.back() != gradient.rows[i])
      combined.rows.push_back(gradient.rows[i]);
  const Tensor& values = gradient.values;
  const auto rows = static_cast<int64_t>(combined.rows.size());
  combined.values = Tensor(values.dtype(), values.shape().with_dim(0, rows));
  const int64_t columns = values.shape().count(1, values.shape().rank());
  dispatch(NumberTypes{}, values.dtype(), "a gradient of rows", [&]<typename T>() {
    const T* source = values.data<T>();
    T* target = combined.values.data<T>() - columns;
    for (size_t k = 0; k < order.size(); ++k) {
      const T* row = source + static_cast<int64_t>(order[k]) * columns;
      if (k > 0 && gradient.rows[order[k]] == gradient.rows[order[k - 1]]) {
        add(target, row, columns);
      } else {
        target += columns;
        std::memcpy(target, row, static_cast<size_t>(columns) * sizeof(T));
      }
    }
  });
  return combined;
}

RowGradient combine_rows(std::span<const RowGradient> gradients) {
  RowGradient all;
  for (const RowGradient& gradient : gradients)
    all.rows.insert(all.rows.end(), gradient.rows.begin(), gradient.rows.end());
  const Tensor& first = gradients[0].values;
  all.values =
      Tensor(first.dtype(), first.shape().with_dim(0, static_cast<int64_t>(all.rows.size())));
  char* target = static_cast<char*>(all.values.raw());
  for (const RowGradient& gradient : gradients) {
    if (gradient.values.bytes() > 0)
      std::memcpy(target, gradient.values.raw(), gradient.values.bytes());
    target += gradient.values.bytes();
  }
  return combine_rows(all);
}

void add_to(Tensor& target, const Tensor& addend) {
  dispatch(NumberTypes{}, target.dtype(), "a gradient",
           [&]<typename T>() { add(target.data<T>(), addend.data<T>(), target.num_elements()); });
}

}  // namespace cohort
