#pragma once

#include <functional>

#include "core/graph/graph.h"

// Activation functions by Keras' names and definitions, for `{.activation = nn::relu}` and for
// direct use.
namespace cohort::nn {

// Any function of one value to one of the same shape; empty means linear.
using Activation = std::function<Value(const Value&)>;

Value linear(const Value& x);
Value relu(const Value& x);
Value relu6(const Value& x);       // min(max(x, 0), 6)
Value leaky_relu(const Value& x);  // slope 0.2 below 0 (Maas et al. 2013)
Value elu(const Value& x);         // exp(x) - 1 below 0 (Clevert et al. 2015)
Value selu(const Value& x);        // Klambauer et al. 2017
Value gelu(const Value& x);        // exact (Hendrycks and Gimpel 2016)
Value gelu_tanh(const Value& x);   // the approximation GPT-2 uses
Value silu(const Value& x);        // x * sigmoid(x), also called swish (Ramachandran et al. 2017)
Value sigmoid(const Value& x);
Value tanh(const Value& x);
Value softplus(const Value& x);
Value softmax(const Value& x);      // over the last axis
Value log_softmax(const Value& x);  // over the last axis

}  // namespace cohort::nn
