#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <vector>

namespace cohort {

// The extents of a tensor, outermost first; rank 0 is a scalar. A value type without heap memory.
// Extents are never negative, and the element count fits in int64_t; both are checked on
// construction (kInvalidArgument), so hostile sizes from a file stop here.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);
  explicit Shape(const std::vector<int64_t>& dims) : Shape(std::span<const int64_t>(dims)) {}

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis]; }  // 0 <= axis < rank()
  // As operator[], but -1 is the last axis; out of range throws kInvalidArgument.
  int64_t dim(int axis) const;
  // The non-negative form of `axis` (-rank() <= axis < rank()), or kInvalidArgument.
  int normalize_axis(int64_t axis) const;
  int64_t num_elements() const;
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  std::vector<int64_t> to_vector() const { return {begin(), end()}; }

  // Copies with one extent replaced, removed, or added in front of what is axis `axis` here; -1 is
  // the last axis of this shape, and for the added one that of the copy. Out of range throws
  // kInvalidArgument.
  Shape with_dim(int64_t axis, int64_t extent) const;
  Shape without_axis(int64_t axis) const;
  Shape with_inserted(int64_t axis, int64_t extent) const;
  // Product of the extents in [from, to).
  int64_t count(int from, int to) const;

  bool operator==(const Shape& other) const;

 private:
  void check() const;

  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);  // "[2,3]"

// The NumPy broadcast of two shapes; kInvalidArgument naming both when they do not fit.
Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace cohort
