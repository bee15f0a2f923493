#include "core/distribute/packing.h"

#include <cstring>
#include <utility>

#include "core/tensor/bool_bytes.h"

namespace cohort {
namespace {

[[noreturn]] void corrupt() {
  fail(Code::kDataLoss, "what another worker says is cut off or garbled");
}

}  // namespace

void Packer::add(int64_t number) {
  bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void Packer::add(std::string_view text) {
  add(static_cast<int64_t>(text.size()));
  bytes_ += text;
}

void Packer::add(const TensorSpec& spec) {
  add(static_cast<int64_t>(spec.dtype) << 8 | spec.shape.rank());
  for (const int64_t extent : spec.shape.dims()) add(extent);
}

void Packer::add(const Signature& signature) {
  add(static_cast<int64_t>(signature.size()));
  for (const TensorSpec& spec : signature) add(spec);
}

void Packer::add(const Tensor& tensor) {
  add(tensor.spec());
  bytes_.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
}

void Packer::add(const Error& error) {
  add(static_cast<int64_t>(error.code()));
  add(error.message());
  add(error.peer());
}

std::string_view Unpacker::take(uint64_t bytes) {
  if (bytes > rest_.size()) corrupt();
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

int64_t Unpacker::number() {
  int64_t number;
  std::memcpy(&number, take(sizeof number).data(), sizeof number);
  return number;
}

int64_t Unpacker::count(int64_t most) {
  const int64_t value = number();
  if (value < 0 || value > most) corrupt();
  return value;
}

std::string Unpacker::text() {
  return std::string(take(static_cast<uint64_t>(count(static_cast<int64_t>(rest_.size())))));
}

TensorSpec Unpacker::spec() {
  const int64_t head = count((kNumDTypes << 8) - 1);
  if ((head & 0xff) > Shape::kMaxRank) corrupt();
  std::vector<int64_t> dims(static_cast<size_t>(head & 0xff));
  for (int64_t& extent : dims) extent = number();
  try {
    return {static_cast<DType>(head >> 8), Shape(dims)};
  } catch (const Error&) {
    corrupt();
  }
}

Signature Unpacker::signature() {
  Signature signature;
  for (int64_t left = count(static_cast<int64_t>(rest_.size())); left > 0; --left)
    signature.push_back(spec());
  return signature;
}

Tensor Unpacker::tensor() {
  const TensorSpec of = spec();
  if (of.shape.num_elements() > static_cast<int64_t>(rest_.size())) corrupt();
  const std::string_view bytes = take(of.bytes());
  Tensor tensor(of.dtype, of.shape);
  if (!bytes.empty()) std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  normalize_bools(tensor);
  return tensor;
}

Error Unpacker::error() {
  const Code code = code_of(number());
  std::string message = text();
  return Error(code, std::move(message), text());
}

}  // namespace cohort
