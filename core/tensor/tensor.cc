#include "core/tensor/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <set>
#include <string_view>
#include <sys/mman.h>
#include <type_traits>
#include <utility>

#include "core/base/comma_separated.h"
#include "core/base/memory_limit.h"
#include "core/tensor/narrow_to_odd.h"
#include "core/tensor/saturate.h"

namespace cohort {
namespace {

// One element as a To.
template <typename To, typename From>
To convert(From value) {
  constexpr bool from_half = std::is_same_v<From, bfloat16> || std::is_same_v<From, float16>;
  constexpr bool to_half = std::is_same_v<To, bfloat16> || std::is_same_v<To, float16>;
  constexpr bool to_integer = std::is_integral_v<To> && !std::is_same_v<To, bool>;
  if constexpr (from_half)
    return convert<To>(static_cast<float>(value));
  else if constexpr (to_half && std::is_same_v<From, double>)
    return To(narrow_to_odd(value));
  else if constexpr (to_integer && std::is_floating_point_v<From>)
    return saturate<To>(value);
  else
    return static_cast<To>(value);
}

// Of a large buffer, all but the end lies in huge pages where the system has them, since walks
// through a matrix by columns come to another page with each line.
void* allocate_aligned(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes < kHugePage) return std::aligned_alloc(kBufferAlignment, bytes);
  void* data = std::aligned_alloc(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage);
  // Advice: it may be refused.
  if (data != nullptr) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

void require_value(const Tensor& tensor, std::string_view what) {
  if (!tensor.defined()) invalid(what, " has no value; it was never assigned");
}

}  // namespace

std::shared_ptr<Buffer> allocate_host_buffer(size_t bytes) {
  // A zero-size tensor still gets an address of its own.
  const size_t taken = aligned_size(std::max<size_t>(bytes, 1));
  void* data = bytes > PTRDIFF_MAX ? nullptr : allocate_aligned(taken);
  if (data == nullptr)
    fail(Code::kResourceExhausted, "cannot allocate ", bytes, " bytes of host memory",
         memory_limit());
  return std::shared_ptr<Buffer>(new Buffer{data, bytes}, [](Buffer* b) {
    std::free(b->data);
    delete b;
  });
}

std::ostream& operator<<(std::ostream& out, const TensorSpec& spec) {
  return out << spec.dtype << spec.shape;
}

Tensor::Tensor(DType dtype, Shape shape) : spec_{dtype, shape} {
  if (static_cast<size_t>(shape.num_elements()) > PTRDIFF_MAX / dtype_size(dtype))
    fail(Code::kResourceExhausted, "cannot allocate ", spec_, ": no memory holds so many elements");
  buffer_ = allocate_host_buffer(spec_.bytes());
  data_ = buffer_->data;
}

Tensor::Tensor(DType dtype, Shape shape, std::shared_ptr<Buffer> buffer, size_t offset)
    : spec_{dtype, shape}, buffer_(std::move(buffer)) {
  if (buffer_ == nullptr) invalid("a ", spec_, " was given no buffer to lie in");
  // Compared by division: the product may overflow.
  if (offset > buffer_->bytes ||
      static_cast<size_t>(shape.num_elements()) > (buffer_->bytes - offset) / dtype_size(dtype))
    invalid("a ", spec_, " does not fit at byte ", offset, " of a buffer of ", buffer_->bytes,
            " bytes");
  data_ = static_cast<char*>(buffer_->data) + offset;
}

Tensor Tensor::zeros(DType dtype, Shape shape) {
  Tensor t(dtype, shape);
  std::memset(t.data_, 0, t.bytes());
  return t;
}

Tensor Tensor::full(DType dtype, Shape shape, double value) {
  Tensor t(dtype, shape);
  dispatch(AllTypes{}, dtype, "full", [&]<typename T>() {
    std::fill_n(static_cast<T*>(t.data_), t.num_elements(), convert<T>(value));
  });
  return t;
}

double Tensor::item() const {
  require_value(*this, "Tensor::item: the tensor");
  if (num_elements() != 1) invalid("item() needs exactly one element, the tensor is ", spec_);
  double value = 0;
  dispatch(AllTypes{}, dtype(), "item",
           [&]<typename T>() { value = static_cast<double>(*static_cast<const T*>(data_)); });
  return value;
}

Tensor Tensor::reshape(Shape shape) const {
  if (shape.num_elements() != num_elements()) invalid("cannot reshape ", spec_, " to ", shape);
  Tensor t = *this;
  t.spec_.shape = shape;
  return t;
}

Tensor Tensor::slice_rows(int64_t begin, int64_t end) const {
  if (shape().rank() == 0 || begin < 0 || end < begin || end > shape()[0])
    invalid("rows ", begin, " to ", end, " are not within ", spec_);
  Tensor t = *this;
  t.spec_.shape = shape().with_dim(0, end - begin);
  const size_t row_bytes =
      dtype_size(dtype()) * static_cast<size_t>(shape().count(1, shape().rank()));
  t.data_ = static_cast<char*>(data_) + static_cast<size_t>(begin) * row_bytes;
  return t;
}

Tensor Tensor::transpose(const std::vector<int64_t>& perm) const {
  require_value(*this, "Tensor::transpose: the tensor");
  std::vector<int64_t> dims, strides;
  std::set<int> named;
  for (const int64_t given : perm) {
    const int axis = shape().normalize_axis(given);
    named.insert(axis);
    dims.push_back(shape()[axis]);
    strides.push_back(shape().count(axis + 1, shape().rank()));
  }
  if (std::ssize(perm) != shape().rank() || named.size() != perm.size())
    invalid("cannot transpose ", spec_, " to axes ", comma_separated(perm),
            ": each has to be named once");
  Tensor t(dtype(), Shape(dims));
  const size_t size = dtype_size(dtype());
  const auto* from = static_cast<const char*>(data_);
  auto* to = static_cast<char*>(t.data_);
  std::vector<int64_t> index(dims.size(), 0);
  int64_t offset = 0;  // of the element at `index`
  for (int64_t i = 0; i < num_elements(); ++i, to += size) {
    std::memcpy(to, from + static_cast<size_t>(offset) * size, size);
    for (size_t axis = dims.size(); axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < dims[axis]) break;
      offset -= strides[axis] * std::exchange(index[axis], 0);
    }
  }
  return t;
}

Tensor Tensor::clone() const {
  require_value(*this, "Tensor::clone: the tensor");
  Tensor t(dtype(), shape());
  t.copy_from(data_, bytes());
  return t;
}

Tensor Tensor::cast(DType to) const {
  require_value(*this, "Tensor::cast: the tensor");
  if (to == dtype()) return clone();
  Tensor t(to, shape());
  dispatch(AllTypes{}, dtype(), "cast", [&]<typename From>() {
    dispatch(AllTypes{}, to, "cast", [&]<typename To>() {
      const From* in = static_cast<const From*>(data_);
      To* out = static_cast<To*>(t.data_);
      std::transform(in, in + num_elements(), out, convert<To, From>);
    });
  });
  return t;
}

void Tensor::assign(const Tensor& value) {
  require_value(*this, "Tensor::assign: the tensor to write to");
  require_value(value, "Tensor::assign: the tensor to copy");
  if (!(value.spec() == spec_)) invalid("cannot assign ", value.spec(), " to ", spec_);
  if (data_ != value.data_) copy_from(value.data_, value.bytes());
}

Tensor Tensor::from_bools(const std::vector<bool>& values, Shape shape) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  Tensor t(DType::kBool, shape);
  t.copy_from(bytes.data(), bytes.size());
  return t;
}

void Tensor::check_access(DType wanted) const {
  require_value(*this, "Tensor::data: the tensor");
  if (wanted != dtype()) invalid("a ", spec_, " tensor was accessed as ", wanted);
}

void Tensor::copy_from(const void* source, size_t size) {
  if (size != bytes())
    invalid(size, " bytes of values given for ", spec_, ", which holds ", bytes());
  if (size > 0) std::memmove(data_, source, size);  // assign()'s may overlap
}

namespace {

template <typename T>
std::string first_values(const Tensor& tensor) {
  constexpr int64_t kShown = 8;
  const int64_t count = tensor.num_elements();
  const Tensor shown =
      tensor.reshape({count}).slice_rows(0, std::min(kShown, count)).cast(dtype_of<T>);
  return str("{", comma_separated(shown.values<T>()), count > kShown ? ", ...}" : "}");
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined tensor";
  const bool is_exact = is_integer(tensor.dtype());
  return str(tensor.spec(), " ",
             is_exact ? first_values<int64_t>(tensor) : first_values<double>(tensor));
}

}  // namespace cohort
