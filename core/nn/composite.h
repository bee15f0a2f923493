#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/nn/activations.h"
#include "core/nn/layer.h"

// Networks made of layers. Every network is itself a Layer.
namespace cohort::nn {

// A value in a network that is being drawn: what nn::Input starts and layers connect. Shapes are
// checked as the network is drawn, so a mistake is reported on the line that makes it.
class Symbol {
 public:
  struct Node;
  explicit Symbol(std::shared_ptr<const Node> node, size_t output = 0)
      : node_(std::move(node)), output_(output) {}

  Shape shape() const;  // without the batch
  DType dtype() const;
  const Node& node() const { return *node_; }
  size_t output() const { return output_; }  // which one of its node

 private:
  std::shared_ptr<const Node> node_;
  size_t output_;
};

struct InputOptions {
  DType dtype = DType::kFloat32;
  std::string name = "input";  // for messages
};
// An input of a network; `shape` is without the batch. What the network is given later must have
// this shape and dtype (kInvalidArgument, naming the input and both).
Symbol Input(const Shape& shape, const InputOptions& options = {});

// Each layer on the result of the one before.
Layer make_sequential(const std::vector<Layer>& layers, std::string name = "");
// The part of a drawn network that leads from `inputs` to `output`. kInvalidArgument when the
// output needs an input that is not listed, or an input is not used or listed twice.
Layer make_functional(const std::vector<Symbol>& inputs, const Symbol& output,
                      std::string name = "");
// The same for several outputs. Each has the name of the layer that makes it, or what that layer
// calls it; these must differ (kInvalidArgument when the network is built).
Layer make_functional(const std::vector<Symbol>& inputs, const std::vector<Symbol>& outputs,
                      std::string name = "");

struct ResidualOptions {
  Activation activation = {};  // of the sum
  std::string name = {};
};
// activation(inner(x) + shortcut(x)), each list applied in order; no shortcut layers mean x itself
// (He et al. 2015).
Layer Residual(const std::vector<Layer>& inner, const std::vector<Layer>& shortcut = {},
               const ResidualOptions& options = {});

}  // namespace cohort::nn
