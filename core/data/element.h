#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort::data {

// One tensor of an element, under the name that models and losses know it by.
struct Field {
  std::string name;
  Tensor tensor;
};

// What a dataset yields: a few named tensors, in order. Training takes "label" as the target,
// "weight" as the optional weight of each sample (of several outputs "label/NAME" and
// "weight/NAME"), and everything else as inputs of the model. A value type: copies share the
// tensors. Tensors that a dataset yields may share memory with it, so change a clone of one, never
// the tensor itself.
class Element {
 public:
  Element() = default;
  // kInvalidArgument when a name comes twice or a tensor is not defined().
  Element(std::initializer_list<Field> fields) : Element(std::vector<Field>(fields)) {}
  explicit Element(std::vector<Field> fields);

  size_t size() const { return fields_.size(); }
  bool empty() const { return fields_.empty(); }
  const std::vector<Field>& fields() const { return fields_; }
  std::vector<Field>::const_iterator begin() const { return fields_.begin(); }
  std::vector<Field>::const_iterator end() const { return fields_.end(); }
  std::vector<std::string> names() const;

  // nullptr when there is no such name.
  const Tensor* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // kNotFound, listing the names there are, when there is no such name.
  const Tensor& operator[](std::string_view name) const;
  const Tensor& operator[](std::nullptr_t) const = delete;  // element[0]
  // Replaces the tensor of that name, or adds one at the end; it has to be defined().
  void set(std::string_view name, Tensor tensor);

  // The first extent that all tensors share: the number of rows of a batch. kInvalidArgument when
  // there is no tensor, one is a scalar, or two differ.
  int64_t rows() const;

 private:
  std::vector<Field> fields_;
};

// An element whose tensors have one row for each example.
using Batch = Element;

// "{image: float32[28,28,1], label: int32[]}".
std::ostream& operator<<(std::ostream& out, const Element& element);

}  // namespace cohort::data
