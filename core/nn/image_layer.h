#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/layer.h"
#include "core/nn/layer_inputs.h"

namespace cohort::nn {

// A layer without weights that is a function of images. Internal to core/nn.
class ImageLayer final : public LayerBase {
 public:
  using Function = std::function<Value(const Value&)>;
  ImageLayer(std::string type, std::string name, Function function)
      : LayerBase(std::move(type), std::move(name)), function_(std::move(function)) {}

 protected:
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    require_images(only_input(inputs).shape());
    return function_(inputs[0]);
  }

 private:
  Function function_;
};

}  // namespace cohort::nn
