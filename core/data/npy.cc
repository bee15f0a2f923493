#include "core/data/npy.h"

#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/data/data_file.h"
#include "core/data/npy_header.h"

namespace cohort::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;         // of the elements in the file, as NumPy has it
constexpr size_t kMaxHeader = 64 * 1024;  // a plain array's header has about a hundred bytes

std::string read_header_text(DataFile& file) {
  std::array<char, kMagic.size() + 2> start;
  file.read(start.data(), start.size(), "the magic number");
  if (std::string_view(start.data(), kMagic.size()) != kMagic)
    file.fail_at(0, "this is not a .npy file, which starts with \\x93NUMPY");
  const int version = static_cast<uint8_t>(start[kMagic.size()]);
  if (version < 1 || version > 3)
    file.fail_at(kMagic.size(), "unknown version ", version, " of the .npy format");
  std::array<uint8_t, 4> size{};
  file.read(size.data(), version == 1 ? 2 : 4, "the header's length");
  const size_t length = size[0] | size[1] << 8 | size[2] << 16 | size_t{size[3]} << 24;
  if (length > kMaxHeader)
    file.fail_at(file.offset(), "the header has ", length, " bytes; at most ", kMaxHeader,
                 " are read");
  std::string text(length, '\0');
  file.read(text.data(), text.size(), "the header");
  return text;
}

// The row-major form of an array whose first axis varies fastest.
Tensor from_column_major(const Tensor& array) {
  const Shape& shape = array.shape();
  const size_t item = dtype_size(array.dtype());
  Tensor out(array.dtype(), shape);
  std::array<int64_t, Shape::kMaxRank> index{};
  char* to = static_cast<char*>(out.raw());
  for (int64_t i = 0; i < array.num_elements(); ++i, to += item) {
    int64_t from = 0;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) from = from * shape[axis] + index[axis];
    std::memcpy(to, static_cast<const char*>(array.raw()) + static_cast<size_t>(from) * item, item);
    for (int axis = shape.rank() - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis)
      index[axis] = 0;
  }
  return out;
}

std::string_view descr_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "<f4";
    case DType::kFloat64:
      return "<f8";
    case DType::kFloat16:
      return "<f2";
    case DType::kInt32:
      return "<i4";
    case DType::kInt64:
      return "<i8";
    case DType::kUInt8:
      return "|u1";
    case DType::kBool:
      return "|b1";
    case DType::kBFloat16:
      break;
  }
  fail(Code::kUnimplemented, "the .npy format has no ", dtype, "; cast to float32 first");
}

}  // namespace

Tensor read_npy(const std::string& path) {
  DataFile file(path);
  const std::string text = read_header_text(file);
  const NpyHeader header = parse_npy_header(text, file, file.offset() - text.size());
  Tensor bytes = file.read_array(header.dims, header.type.bytes);
  file.expect_end();
  Tensor array = decode(std::move(bytes), header.type, Shape(header.dims));
  return header.column_major ? from_column_major(array) : array;
}

Dataset npy(const std::string& path, NpyOptions options) {
  const Tensor array = read_npy(path);
  if (array.shape().rank() == 0) invalid(path, ": a scalar has no rows to read one by one");
  return from_tensor_slices({{std::move(options.name), array}});
}

void write_npy(const std::string& path, const Tensor& tensor) {
  if (!tensor.defined()) invalid(path, ": the tensor to write has no value; it was never assigned");
  std::string shape;
  for (const int64_t dim : tensor.shape()) shape += str(dim, ", ");
  std::string header = str("{'descr': '", descr_of(tensor.dtype()),
                           "', 'fortran_order': False, 'shape': (", shape, ")}");
  const size_t start = kMagic.size() + 4;  // then the version and the length
  header.append(kAlignment - 1 - (start + header.size()) % kAlignment, ' ');
  header += '\n';
  std::string content(kMagic);
  content +=
      {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  content += header;
  content.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
  write_file_atomically(path, content);
}

}  // namespace cohort::data
