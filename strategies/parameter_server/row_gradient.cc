#include "strategies/parameter_server/row_gradient.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/error.h"

namespace cohort {
namespace {

// In which numbers are added.
template <typename T>
using Wide = std::conditional_t<sizeof(T) == 2, float, T>;

template <typename T>
void add(T* target, const T* addend, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    target[i] = T(static_cast<Wide<T>>(target[i]) + static_cast<Wide<T>>(addend[i]));
}

// target = the sum of these rows of `source`, in their order, rounded once; `sum` is room for it.
template <typename T>
void add_up(const T* source, std::span<const size_t> rows, std::span<Wide<T>> sum, T* target) {
  const size_t columns = sum.size();
  if (rows.size() == 1) {
    std::memcpy(target, source + rows[0] * columns, columns * sizeof(T));
    return;
  }
  std::ranges::fill(sum, Wide<T>());
  for (const size_t row : rows)
    for (size_t i = 0; i < columns; ++i)
      sum[i] = Wide<T>(sum[i] + static_cast<Wide<T>>(source[row * columns + i]));
  for (size_t i = 0; i < columns; ++i) target[i] = T(sum[i]);
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
    T* target = combined.values.data<T>();
    std::vector<Wide<T>> sum(static_cast<size_t>(columns));
    for (size_t begin = 0, end = 0; begin < order.size(); begin = end, target += columns) {
      while (end < order.size() && gradient.rows[order[end]] == gradient.rows[order[begin]]) ++end;
      add_up(source, std::span(order).subspan(begin, end - begin), std::span(sum), target);
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
