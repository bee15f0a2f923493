#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/nn/activations.h"
#include "core/nn/layer.h"

// The everyday layers, with Keras' names, defaults and weight names. Arguments out of range are
// kInvalidArgument at once.
namespace cohort::nn {

struct DenseOptions {
  Activation activation = {};
  bool use_bias = true;
  initializers::Initializer kernel_initializer = initializers::glorot_uniform();
  initializers::Initializer bias_initializer = initializers::zeros();
  regularizers::Regularizer kernel_regularizer = {};
  regularizers::Regularizer bias_regularizer = {};
  constraints::Constraint kernel_constraint = {};
  constraints::Constraint bias_constraint = {};
  std::string name = {};
};
// activation(x kernel + bias) over the last axis: [.., n] -> [.., units]. Weights: kernel [n,
// units], bias.
Layer Dense(int64_t units, const DenseOptions& options = {});

// The function as a layer of its own.
Layer ActivationLayer(Activation activation, std::string name = "");
// softmax over `axis` (counted with the batch) as a layer.
Layer Softmax(int64_t axis = -1, std::string name = "");

// In training, zeroes each element with probability `rate` in [0, 1) and scales the others up
// (Srivastava et al. 2014).
Layer Dropout(double rate, std::string name = "");

Layer Flatten(std::string name = "");  // [batch, ..] -> [batch, product of the rest]
// The shape without the batch; one extent may be -1.
Layer Reshape(std::vector<int64_t> shape, std::string name = "");
// The axes in another order: axis i of the result is axis order[i - 1] of the input, both counted
// from 1, which is the one after the batch.
Layer Permute(std::vector<int64_t> order, std::string name = "");

// Of several inputs: their elementwise sum; and one after another along `axis` (counted with the
// batch).
Layer Add(std::string name = "");
Layer Concatenate(int64_t axis = -1, std::string name = "");

// Any function of the input without weights of its own.
Layer Lambda(std::function<Value(const Value&)> function, std::string name = "");

}  // namespace cohort::nn
