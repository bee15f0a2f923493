#pragma once

#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"

// Checks that the layers of this folder share. The layer's name and its inputs are added by
// LayerBase.
namespace cohort::nn {

// The only input; kInvalidArgument when there is another number of them.
template <typename T>
const T& only_input(const std::vector<T>& inputs) {
  if (inputs.size() != 1) invalid("takes 1 input, got ", inputs.size());
  return inputs[0];
}

// The last extent of an input of at least `rank` axes, which sizes weights; it must not be 0.
inline int64_t features_of(const TensorSpec& input, int rank) {
  if (input.shape.rank() < rank) invalid("needs an input of rank ", rank, " at least");
  if (input.shape.dim(-1) == 0) invalid("needs an input with features");
  return input.shape.dim(-1);
}

// kInvalidArgument unless the last extent is what the layer was built for, which axis `axis` of a
// weight has, where its ops would take another one: 1 broadcasts.
inline void require_features(const Shape& input, const TensorSpec& weight, int axis) {
  const int64_t built = weight.shape.dim(axis);
  if (input.rank() == 0 || input.dim(-1) != built)
    invalid("was built for inputs with ", built, " features, with weights ", weight);
}

// kInvalidArgument unless the input has the axes of images. To be called for each call of the
// layer: an op might take something else, too.
inline void require_images(const Shape& input) {
  if (input.rank() != 4) invalid("needs images [batch, height, width, channels]");
}

// The dtype of weights for an input: float64 where it is, else float32.
inline DType weight_dtype(const TensorSpec& input) {
  return input.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// kInvalidArgument naming the layer and the argument unless value >= 1.
inline void check_positive(std::string_view layer, std::string_view argument, int64_t value) {
  if (value < 1) invalid(layer, ": ", argument, " must be at least 1, got ", value);
}

// kInvalidArgument unless 0 <= rate < 1.
inline void check_rate(std::string_view layer, double rate) {
  if (!(rate >= 0 && rate < 1)) invalid(layer, ": the rate must be in [0, 1), got ", rate);
}

}  // namespace cohort::nn
