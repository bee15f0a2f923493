#include "core/nn/basic_layers.h"

#include <algorithm>
#include <numeric>

#include "core/base/comma_separated.h"
#include "core/nn/layer_inputs.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/random_ops.h"

namespace cohort::nn {
namespace {

class DenseLayer final : public LayerBase {
 public:
  DenseLayer(int64_t units, const DenseOptions& options)
      : LayerBase("Dense", options.name), units_(units), options_(options) {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    const int64_t features = features_of(only_input(inputs), 2);
    const DType dtype = weight_dtype(inputs[0]);
    kernel_ = &add_weight("kernel", {features, units_},
                          {.initializer = options_.kernel_initializer,
                           .regularizer = options_.kernel_regularizer,
                           .constraint = options_.kernel_constraint},
                          dtype);
    if (options_.use_bias)
      bias_ = &add_weight("bias", {units_},
                          {.initializer = options_.bias_initializer,
                           .regularizer = options_.bias_regularizer,
                           .constraint = options_.bias_constraint},
                          dtype);
  }

  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    Value y = ops::matmul(only_input(inputs), kernel_->read());
    if (bias_ != nullptr) y = y + bias_->read();
    return options_.activation ? options_.activation(y) : y;
  }

 private:
  int64_t units_;
  DenseOptions options_;
  Weight* kernel_ = nullptr;
  Weight* bias_ = nullptr;
};

class DropoutLayer final : public LayerBase {
 public:
  DropoutLayer(double rate, std::string name)
      : LayerBase("Dropout", std::move(name)), rate_(rate) {}

 protected:
  Value call(const std::vector<Value>& inputs, const CallContext& context) override {
    const Value& x = only_input(inputs);
    return context.training && rate_ > 0 ? ops::dropout(x, rate_) : x;
  }

 private:
  double rate_;
};

// A layer that is a function of its inputs and nothing else.
class StatelessLayer final : public LayerBase {
 public:
  using Function = std::function<Value(const std::vector<Value>&)>;
  StatelessLayer(std::string type, std::string name, Function function)
      : LayerBase(std::move(type), std::move(name)), function_(std::move(function)) {}

 protected:
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    return function_(inputs);
  }

 private:
  Function function_;
};

Layer stateless(std::string type, std::string name, std::function<Value(const Value&)> function) {
  if (!function) invalid(type, " needs a function");
  return std::make_shared<StatelessLayer>(
      std::move(type), std::move(name),
      [f = std::move(function)](const std::vector<Value>& inputs) {
        return f(only_input(inputs));
      });
}

Value sum(const std::vector<Value>& inputs) {
  if (inputs.size() < 2) invalid("adds at least 2 inputs, got ", inputs.size());
  Value total = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].shape() != total.shape())
      invalid("adds inputs of one shape, got ", total.shape(), " and ", inputs[i].shape());
    total = total + inputs[i];
  }
  return total;
}

}  // namespace

Layer Dense(int64_t units, const DenseOptions& options) {
  check_positive("Dense", "units", units);
  return std::make_shared<DenseLayer>(units, options);
}

Layer ActivationLayer(Activation activation, std::string name) {
  return stateless("Activation", std::move(name), std::move(activation));
}

Layer Softmax(int64_t axis, std::string name) {
  return stateless("Softmax", std::move(name), [axis](const Value& x) {
    const int rank = x.shape().rank(), moved = x.shape().normalize_axis(axis);
    if (moved == rank - 1) return ops::softmax(x);
    std::vector<int64_t> swapped(static_cast<size_t>(rank));
    std::iota(swapped.begin(), swapped.end(), 0);
    std::swap(swapped[static_cast<size_t>(moved)], swapped.back());
    return ops::transpose(ops::softmax(ops::transpose(x, swapped)), swapped);
  });
}

Layer Dropout(double rate, std::string name) {
  check_rate("Dropout", rate);
  return std::make_shared<DropoutLayer>(rate, std::move(name));
}

Layer Flatten(std::string name) {
  return stateless("Flatten", std::move(name), [](const Value& x) {
    return x.shape().rank() == 1 ? ops::expand_dims(x, 1) : ops::flatten_from(x, 1);
  });
}

Layer Reshape(std::vector<int64_t> shape, std::string name) {
  if (std::ranges::any_of(shape, [](int64_t extent) { return extent < -1; }) ||
      std::ranges::count(shape, -1) > 1)
    invalid("Reshape: one extent may be -1, the others are at least 0, got ",
            comma_separated(shape));
  return stateless("Reshape", std::move(name), [shape = std::move(shape)](const Value& x) {
    std::vector<int64_t> dims = {x.shape().dim(0)};
    dims.insert(dims.end(), shape.begin(), shape.end());
    return ops::reshape(x, dims);
  });
}

Layer Permute(std::vector<int64_t> order, std::string name) {
  std::vector<int64_t> axes(order.size());
  std::iota(axes.begin(), axes.end(), 1);
  if (!std::ranges::is_permutation(order, axes))
    invalid("Permute: the order must have each axis from 1 to the last once, got ",
            comma_separated(order));
  order.insert(order.begin(), 0);  // the batch
  return stateless("Permute", std::move(name),
                   [order](const Value& x) { return ops::transpose(x, order); });
}

Layer Add(std::string name) {
  return std::make_shared<StatelessLayer>("Add", std::move(name), sum);
}

Layer Concatenate(int64_t axis, std::string name) {
  return std::make_shared<StatelessLayer>(
      "Concatenate", std::move(name),
      [axis](const std::vector<Value>& inputs) { return ops::concat(inputs, axis); });
}

Layer Lambda(std::function<Value(const Value&)> function, std::string name) {
  return stateless("Lambda", std::move(name), std::move(function));
}

}  // namespace cohort::nn
