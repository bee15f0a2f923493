#include "core/data/stored_type.h"

#include <algorithm>
#include <bit>

#include "core/tensor/bool_bytes.h"

namespace cohort::data {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename To, typename From>
Tensor widen(const Tensor& bytes, const Shape& shape) {
  Tensor out(dtype_of<To>, shape);
  const auto* from = static_cast<const From*>(bytes.raw());
  std::copy(from, from + shape.num_elements(), out.data<To>());
  return out;
}

void swap_bytes(Tensor& bytes, size_t item_bytes) {
  auto* begin = bytes.data<uint8_t>();
  for (auto* item = begin; item < begin + bytes.bytes(); item += item_bytes)
    std::reverse(item, item + item_bytes);
}

}  // namespace

std::optional<DType> dtype_of_stored(const StoredType& type) {
  switch (type.kind) {
    case 'f':
      if (type.bytes == 2) return DType::kFloat16;
      if (type.bytes == 4) return DType::kFloat32;
      if (type.bytes == 8) return DType::kFloat64;
      break;
    case 'i':
      if (type.bytes == 1 || type.bytes == 2 || type.bytes == 4) return DType::kInt32;
      if (type.bytes == 8) return DType::kInt64;
      break;
    case 'u':
      if (type.bytes == 1) return DType::kUInt8;
      if (type.bytes == 2) return DType::kInt32;
      if (type.bytes == 4) return DType::kInt64;
      break;
    case 'b':
      if (type.bytes == 1) return DType::kBool;
      break;
  }
  return std::nullopt;
}

Tensor decode(Tensor bytes, const StoredType& type, const Shape& shape) {
  if (type.big_endian && type.bytes > 1) swap_bytes(bytes, type.bytes);
  if (type.kind == 'i' && type.bytes == 1) return widen<int32_t, int8_t>(bytes, shape);
  if (type.kind == 'i' && type.bytes == 2) return widen<int32_t, int16_t>(bytes, shape);
  if (type.kind == 'u' && type.bytes == 2) return widen<int32_t, uint16_t>(bytes, shape);
  if (type.kind == 'u' && type.bytes == 4) return widen<int64_t, uint32_t>(bytes, shape);
  Tensor array(*dtype_of_stored(type), shape, bytes.buffer());
  normalize_bools(array);
  return array;
}

}  // namespace cohort::data
