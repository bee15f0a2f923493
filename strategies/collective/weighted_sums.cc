#include "strategies/collective/weighted_sums.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/error.h"
#include "core/collective/split.h"
#include "strategies/collective/collective.h"
#include "strategies/collective/tensor_header.h"

namespace cohort::collective {
namespace {

void check_tensors(Communicator& group, std::string_view topic, const Tensor& value) {
  const auto specs = exchange_specs(group, topic, value);
  for (size_t r = 1; r < specs.size(); ++r)
    if (specs[r] != specs[0])
      invalid("a weighted sum is of equal dtypes and shapes, but rank 0 gave ", specs[0],
              " and rank ", r, " gave ", specs[r]);
  if (!is_floating(value.dtype()))
    fail(Code::kUnimplemented,
         "a weighted sum (premultiplied_sum, adasum) needs a floating dtype, ", "got ",
         value.dtype());
}

void check_factors(Communicator& group, double factor) {
  const std::vector<double> factors = tell_all(group, "the factor of a weighted sum", factor);
  for (size_t r = 0; r < factors.size(); ++r) {
    if (!std::isfinite(factors[r])) invalid("rank ", r, " multiplies by ", factors[r]);
    if (factors[r] != factors[0])
      invalid("ranks multiply by the same factor, but rank 0 by ", factors[0], " and rank ", r,
              " by ", factors[r]);
  }
}

Tensor product(const Tensor& value, double factor) {
  Tensor result(value.dtype(), value.shape());
  dispatch(FloatTypes{}, value.dtype(), "a premultiplied sum", [&]<typename T>() {
    const T* in = value.data<T>();
    T* out = result.data<T>();
    for (int64_t i = 0; i < value.num_elements(); ++i)
      out[i] = static_cast<T>(static_cast<double>(in[i]) * factor);
  });
  return result;
}

// What the rank `partner` has, who gives what this one does.
Tensor exchanged(Communicator& group, const Tensor& own, int partner) {
  Tensor other(own.dtype(), own.shape());
  std::vector<int64_t> bytes(static_cast<size_t>(group.size()));
  bytes[static_cast<size_t>(partner)] = static_cast<int64_t>(own.bytes());
  group.all_to_all(own.raw(), bytes, other.raw(), bytes);
  return other;
}

// Which part of a vector stays, by its product with the other and with itself.
template <typename Wide>
Wide weight(Wide with_other, Wide with_itself) {
  return with_itself > 0 ? 1 - with_other / (2 * with_itself) : 1;
}

template <typename T>
void combine(const T* a, const T* b, T* result, int64_t count) {
  // Squares of T's numbers, and quotients of squares, are in its range.
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
  Wide ab = 0, aa = 0, bb = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Wide x = a[i], y = b[i];
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  const Wide of_a = weight(ab, aa), of_b = weight(ab, bb);
  for (int64_t i = 0; i < count; ++i) result[i] = static_cast<T>(of_a * a[i] + of_b * b[i]);
}

Tensor combined(const Tensor& a, const Tensor& b) {
  Tensor result(a.dtype(), a.shape());
  dispatch(TypeList<float, double>{}, a.dtype(), "Adasum", [&]<typename T>() {
    combine(a.data<T>(), b.data<T>(), result.data<T>(), a.num_elements());
  });
  return result;
}

}  // namespace

Tensor premultiplied_sum(Communicator& group, const Tensor& value, double factor) {
  check_tensors(group, "premultiplied_sum", value);
  check_factors(group, factor);
  return all_reduce(group, product(value, factor));
}

Tensor adasum(Communicator& group, const Tensor& value) {
  check_tensors(group, "adasum", value);
  const int size = group.size();
  if (!std::has_single_bit(static_cast<unsigned>(size)))
    invalid("Adasum combines pairs of ranks, and pairs of those: of 1, 2, 4, 8, ... ranks, not ",
            size);
  Tensor sum = value.cast(value.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  for (int distance = 1; distance < size; distance *= 2) {
    const int partner = group.rank() ^ distance;
    const Tensor other = exchanged(group, sum, partner);
    sum = group.rank() < partner ? combined(sum, other) : combined(other, sum);
  }
  return sum.cast(value.dtype());
}

}  // namespace cohort::collective
