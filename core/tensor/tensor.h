#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace cohort {

// A block of memory that tensors share. `data` is aligned to kBufferAlignment.
struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
};
inline constexpr size_t kBufferAlignment = 64;  // a cache line, and the widest vector register

// What `bytes` bytes take where the next begin at a multiple of kBufferAlignment.
constexpr size_t aligned_size(size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Allocates uninitialised host memory; kResourceExhausted that names the size when there is none.
std::shared_ptr<Buffer> allocate_host_buffer(size_t bytes);

// What a graph knows about a value before it exists.
struct TensorSpec {
  DType dtype = DType::kFloat32;
  Shape shape;
  size_t bytes() const { return dtype_size(dtype) * static_cast<size_t>(shape.num_elements()); }
  bool operator==(const TensorSpec&) const = default;
};
std::ostream& operator<<(std::ostream& out, const TensorSpec& spec);  // "float32[2,3]"

// A dense row-major array. A value type: copies share the buffer, `clone` copies the elements.
// Not synchronised: concurrent reads are safe, a write needs the callers to agree.
class Tensor {
 public:
  // A float32 scalar without storage: defined() is false, as it is of what was moved from.
  Tensor() = default;
  // Uninitialised elements in host memory.
  Tensor(DType dtype, Shape shape);
  // A view of existing memory starting `offset` bytes into `buffer`; kInvalidArgument when that is
  // null or too small.
  Tensor(DType dtype, Shape shape, std::shared_ptr<Buffer> buffer, size_t offset = 0);

  static Tensor zeros(DType dtype, Shape shape);
  // `value` is converted as `cast` does.
  static Tensor full(DType dtype, Shape shape, double value);
  template <typename T>
  static Tensor scalar(T value) {
    Tensor t(dtype_of<T>, Shape{});
    *t.data<T>() = value;
    return t;
  }
  // Copies `values`; kInvalidArgument when their number is not the shape's.
  template <typename T>
  static Tensor from(const std::vector<T>& values, Shape shape) {
    if constexpr (std::is_same_v<T, bool>)
      return from_bools(values, shape);
    else
      return from(std::span<const T>(values), shape);
  }
  template <typename T>
  static Tensor from(std::span<const T> values, Shape shape) {
    Tensor t(dtype_of<T>, shape);
    t.copy_from(values.data(), values.size() * sizeof(T));
    return t;
  }

  bool defined() const { return buffer_ != nullptr; }
  DType dtype() const { return spec_.dtype; }
  const Shape& shape() const { return spec_.shape; }
  const TensorSpec& spec() const { return spec_; }
  int64_t num_elements() const { return spec_.shape.num_elements(); }
  size_t bytes() const { return spec_.bytes(); }

  // Null where it is not defined().
  void* raw() { return defined() ? data_ : nullptr; }
  const void* raw() const { return defined() ? data_ : nullptr; }
  // Typed access; kInvalidArgument when T is not the dtype, or the tensor is not defined().
  template <typename T>
  T* data() {
    check_access(dtype_of<T>);
    return static_cast<T*>(data_);
  }
  template <typename T>
  const T* data() const {
    check_access(dtype_of<T>);
    return static_cast<const T*>(data_);
  }
  template <typename T>
  std::span<const T> values() const {
    return {data<T>(), static_cast<size_t>(num_elements())};
  }
  // The only element, converted to double; kInvalidArgument when there are several, or none.
  double item() const;

  // The same elements, sharing memory, under another shape of the same count; else
  // kInvalidArgument.
  Tensor reshape(Shape shape) const;
  // Rows [begin, end) of the first axis, sharing memory; kInvalidArgument where there are no such
  // rows.
  Tensor slice_rows(int64_t begin, int64_t end) const;
  // A copy whose axis i is axis perm[i] of this one, as ops::transpose; kInvalidArgument for what
  // does not name each axis once.
  Tensor transpose(const std::vector<int64_t>& perm) const;
  Tensor clone() const;
  // Elements converted one by one, in memory of their own. To bool is "not zero". From a floating
  // type to an integer truncates; what lies beyond the integer's range becomes its nearest end, and
  // NaN becomes 0. Between integers wraps around.
  Tensor cast(DType dtype) const;
  // Copies elements over this tensor's own memory; kInvalidArgument when the spec differs.
  void assign(const Tensor& value);
  // Number of owners of the buffer; 1 means that nobody else can see a write.
  long use_count() const { return buffer_.use_count(); }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }

 private:
  static Tensor from_bools(const std::vector<bool>& values, Shape shape);
  void check_access(DType wanted) const;
  void copy_from(const void* source, size_t bytes);

  TensorSpec spec_;
  std::shared_ptr<Buffer> buffer_;
  void* data_ = nullptr;
};

// "float32[2,3] {1, 2, 3, ...}", at most a few elements; for messages and debugging.
std::string to_string(const Tensor& tensor);

}  // namespace cohort
