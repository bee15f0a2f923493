#include "core/data/padding.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/comma_separated.h"

namespace cohort::data {
namespace {

constexpr int64_t kLongest = -1;

// Copies values of `bytes` bytes, from `axis` on, to the corner of a larger block.
void copy_to_corner(const char* from, const Shape& extents, char* to, const Shape& room, int axis,
                    size_t bytes) {
  const int rank = extents.rank();
  if (axis + 1 >= rank) {
    std::memcpy(to, from, static_cast<size_t>(extents.count(axis, rank)) * bytes);
    return;
  }
  const size_t from_step = static_cast<size_t>(extents.count(axis + 1, rank)) * bytes;
  const size_t to_step = static_cast<size_t>(room.count(axis + 1, rank)) * bytes;
  for (int64_t i = 0; i < extents[axis]; ++i, from += from_step, to += to_step)
    copy_to_corner(from, extents, to, room, axis + 1, bytes);
}

}  // namespace

Padding::Padding(const PaddedBatchOptions& options)
    : options_(options), is_fixed_(!options.shapes.empty()) {
  for (const auto& [name, shape] : options_.shapes) {
    if (std::any_of(shape.begin(), shape.end(), [](int64_t extent) { return extent < kLongest; }))
      invalid("padded_batch(): the shape of \"", name, "\" is [", comma_separated(shape),
              "]; an extent is a length, or -1 for the longest of the batch");
    is_fixed_ = is_fixed_ && std::count(shape.begin(), shape.end(), kLongest) == 0;
  }
  for (const auto& [name, value] : options_.values)
    if (!options_.shapes.empty() && !options_.shapes.contains(name))
      invalid("padded_batch(): \"", name, "\" has the padding value ", value,
              ", but no shape, where others have one: give it a shape, too");
}

void Padding::pad(std::vector<Element>& batch) const {
  check_names(batch.front());
  for (const std::string& name : batch.front().names()) {
    if (!options_.shapes.empty() && !options_.shapes.contains(name)) continue;
    const Shape shape = target(name, batch);
    for (Element& element : batch)
      if (const Tensor* tensor = element.find(name)) element.set(name, pad(name, *tensor, shape));
  }
}

void Padding::check_names(const Element& element) const {
  const auto check = [&](const std::string& name) {
    if (!element.contains(name)) invalid("there is no tensor \"", name, "\" to pad in ", element);
  };
  for (const auto& [name, shape] : options_.shapes) check(name);
  for (const auto& [name, value] : options_.values) check(name);
}

Shape Padding::target(const std::string& name, const std::vector<Element>& batch) const {
  const auto given = options_.shapes.find(name);
  const auto rank = static_cast<size_t>(batch.front()[name].shape().rank());
  const std::vector<int64_t> wanted =
      given == options_.shapes.end() ? std::vector<int64_t>(rank, kLongest) : given->second;
  std::vector<int64_t> extents(wanted.size(), 0);
  for (const Element& element : batch) {
    const Tensor* tensor = element.find(name);
    if (tensor == nullptr) continue;
    const Shape& shape = tensor->shape();
    if (static_cast<size_t>(shape.rank()) != wanted.size())
      invalid("\"", name, "\" is ", tensor->spec(), ", whose rank is not ", wanted.size(),
              ", as that of ",
              given == options_.shapes.end() ? "the batch's first" : "the shape it is padded to");
    for (size_t i = 0; i < wanted.size(); ++i) {
      const int64_t extent = shape[static_cast<int>(i)];
      if (wanted[i] != kLongest && extent > wanted[i])
        invalid("\"", name, "\" is ", tensor->spec(), ", longer than the shape [",
                comma_separated(wanted), "] that it is to be padded to");
      extents[i] = wanted[i] == kLongest ? std::max(extents[i], extent) : wanted[i];
    }
  }
  return Shape(extents);
}

Tensor Padding::pad(const std::string& name, const Tensor& tensor, const Shape& shape) const {
  if (tensor.shape() == shape) return tensor;
  const auto given = options_.values.find(name);
  const double value = given == options_.values.end() ? 0 : given->second;
  const DType dtype = tensor.dtype();
  if (!is_floating(dtype) && Tensor::full(dtype, {}, value).item() != value)
    invalid("\"", name, "\" cannot be padded with ", value, ", because it is ", dtype);
  Tensor padded = Tensor::full(dtype, shape, value);
  copy_to_corner(static_cast<const char*>(tensor.raw()), tensor.shape(),
                 static_cast<char*>(padded.raw()), shape, /*axis=*/0, dtype_size(dtype));
  return padded;
}

}  // namespace cohort::data
