#include "core/tensor/shape.h"

#include <algorithm>
#include <ostream>

#include "core/base/error.h"

namespace cohort {
namespace {

// The non-negative form of `axis` among `count` axes that a copy of `shape` has or will have.
int from_start(int64_t axis, int count, const Shape& shape) {
  if (axis < -count || axis >= count)
    invalid("axis ", axis, " is out of range for shape ", shape, " (allowed: ", -count, " to ",
            count - 1, ")");
  return static_cast<int>(axis < 0 ? axis + count : axis);
}

}  // namespace

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) invalid("rank ", dims.size(), " is above the limit of ", kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
  rank_ = static_cast<int>(dims.size());
  check();
}

void Shape::check() const {
  int64_t product = 1;
  for (int64_t d : dims()) {
    if (d < 0) invalid("negative extent in shape ", *this);
    // Zero extents do not excuse the others: a later reshape could expose them.
    if (__builtin_mul_overflow(product, std::max<int64_t>(d, 1), &product))
      invalid("shape ", *this, " has more than 2^63 elements");
  }
}

int Shape::normalize_axis(int64_t axis) const { return from_start(axis, rank_, *this); }

int64_t Shape::dim(int axis) const { return dims_[normalize_axis(axis)]; }

int64_t Shape::num_elements() const { return count(0, rank_); }

int64_t Shape::count(int from, int to) const {
  int64_t product = 1;
  for (int i = from; i < to; ++i) product *= dims_[i];
  return product;
}

Shape Shape::with_dim(int64_t axis, int64_t extent) const {
  auto dims = to_vector();
  dims[normalize_axis(axis)] = extent;
  return Shape(dims);
}

Shape Shape::without_axis(int64_t axis) const {
  auto dims = to_vector();
  dims.erase(dims.begin() + normalize_axis(axis));
  return Shape(dims);
}

Shape Shape::with_inserted(int64_t axis, int64_t extent) const {
  auto dims = to_vector();
  dims.insert(dims.begin() + from_start(axis, rank_ + 1, *this), extent);
  return Shape(dims);
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int i = 0; i < shape.rank(); ++i) out << (i ? "," : "") << shape[i];
  return out << ']';
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> dims(rank);
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a[a.rank() - i] : 1;
    const int64_t y = i <= b.rank() ? b[b.rank() - i] : 1;
    if (x != y && x != 1 && y != 1) invalid("shapes ", a, " and ", b, " do not broadcast");
    dims[rank - i] = x == 1 ? y : x;
  }
  return Shape(dims);
}

}  // namespace cohort
