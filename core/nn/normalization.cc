#include "core/nn/normalization.h"

#include "core/nn/layer_inputs.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"

namespace cohort::nn {
namespace {

class BatchNormalizationLayer final : public LayerBase {
 public:
  explicit BatchNormalizationLayer(const BatchNormalizationOptions& options)
      : LayerBase("BatchNormalization", options.name), options_(options) {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    const Shape channels{features_of(only_input(inputs), 2)};
    const DType dtype = weight_dtype(inputs[0]);
    if (options_.scale)
      gamma_ = &add_weight("gamma", channels, {.initializer = options_.gamma_initializer}, dtype);
    if (options_.center)
      beta_ = &add_weight("beta", channels, {.initializer = options_.beta_initializer}, dtype);
    moving_mean_ = &add_weight("moving_mean", channels, statistic(initializers::zeros()), dtype);
    moving_variance_ =
        &add_weight("moving_variance", channels, statistic(initializers::ones()), dtype);
  }

  Value call(const std::vector<Value>& inputs, const CallContext& context) override {
    const Value& x = only_input(inputs);
    const Value gamma = read_or(gamma_, 1), beta = read_or(beta_, 0);
    const Value moving_mean = moving_mean_->read(), moving_variance = moving_variance_->read();
    const bool empty = x.shape().num_elements() == 0;
    if (!context.training || !trainable() || empty)
      return ops::batch_norm_inference(x, gamma, beta, moving_mean, moving_variance,
                                       options_.epsilon);
    const ops::BatchNorm norm = ops::batch_norm(x, gamma, beta, options_.epsilon);
    moving_mean_->assign(moved(moving_mean, norm.mean));
    moving_variance_->assign(moved(moving_variance, norm.variance));
    return norm.y;
  }

 private:
  static WeightOptions statistic(initializers::Initializer initializer) {
    return {.initializer = std::move(initializer),
            .trainable = false,
            .synchronization = Synchronization::kOnRead,
            .aggregation = Aggregation::kMean};
  }

  Value read_or(const Weight* weight, double fallback) const {
    if (weight != nullptr) return weight->read();
    const TensorSpec& channels = moving_mean_->spec();
    return ops::constant(Tensor::full(channels.dtype, channels.shape, fallback));
  }

  Value moved(const Value& moving, const Value& batch) const {
    return moving * options_.momentum + ops::stop_gradient(batch) * (1 - options_.momentum);
  }

  BatchNormalizationOptions options_;
  Weight* gamma_ = nullptr;
  Weight* beta_ = nullptr;
  Weight* moving_mean_ = nullptr;
  Weight* moving_variance_ = nullptr;
};

class LayerNormalizationLayer final : public LayerBase {
 public:
  explicit LayerNormalizationLayer(const LayerNormalizationOptions& options)
      : LayerBase("LayerNormalization", options.name), epsilon_(options.epsilon) {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    const Shape features{features_of(only_input(inputs), 2)};
    gamma_ = &add_weight("gamma", features, {.initializer = initializers::ones()},
                         weight_dtype(inputs[0]));
    beta_ = &add_weight("beta", features, {.initializer = initializers::zeros()},
                        weight_dtype(inputs[0]));
  }
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    return ops::layer_norm(only_input(inputs), gamma_->read(), beta_->read(), epsilon_);
  }

 private:
  double epsilon_;
  Weight* gamma_ = nullptr;
  Weight* beta_ = nullptr;
};

class RMSNormLayer final : public LayerBase {
 public:
  explicit RMSNormLayer(const RMSNormOptions& options)
      : LayerBase("RMSNormalization", options.name), epsilon_(options.epsilon) {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    scale_ = &add_weight("scale", {features_of(only_input(inputs), 2)},
                         {.initializer = initializers::ones()}, weight_dtype(inputs[0]));
  }
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    return ops::rms_norm(only_input(inputs), scale_->read(), epsilon_);
  }

 private:
  double epsilon_;
  Weight* scale_ = nullptr;
};

void check_epsilon(std::string_view layer, double epsilon) {
  if (!(epsilon >= 0)) invalid(layer, ": epsilon must not be negative, got ", epsilon);
}

}  // namespace

Layer BatchNormalization(const BatchNormalizationOptions& options) {
  check_epsilon("BatchNormalization", options.epsilon);
  if (!(options.momentum >= 0 && options.momentum <= 1))
    invalid("BatchNormalization: momentum must be in [0, 1], got ", options.momentum);
  return std::make_shared<BatchNormalizationLayer>(options);
}

Layer LayerNormalization(const LayerNormalizationOptions& options) {
  check_epsilon("LayerNormalization", options.epsilon);
  return std::make_shared<LayerNormalizationLayer>(options);
}

Layer RMSNorm(const RMSNormOptions& options) {
  check_epsilon("RMSNorm", options.epsilon);
  return std::make_shared<RMSNormLayer>(options);
}

}  // namespace cohort::nn
