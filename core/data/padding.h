#pragma once

#include <vector>

#include "core/data/dataset.h"

namespace cohort::data {

// How Dataset::padded_batch() makes tensors as long as each other.
class Padding {
 public:
  // kInvalidArgument for an extent below -1.
  explicit Padding(const PaddedBatchOptions& options);

  // Whether every shape is known before any element is.
  bool is_fixed() const { return is_fixed_; }
  // Pads what would be one batch. Leaves it to stack() to say that names or dtypes differ.
  // REQUIRES: there is an element.
  void pad(std::vector<Element>& batch) const;

 private:
  void check_names(const Element& element) const;
  // What the tensors of this name are padded to.
  Shape target(const std::string& name, const std::vector<Element>& batch) const;
  Tensor pad(const std::string& name, const Tensor& tensor, const Shape& shape) const;

  PaddedBatchOptions options_;
  bool is_fixed_;
};

}  // namespace cohort::data
