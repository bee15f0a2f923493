#include "core/nn/normalization.h"

#include <algorithm>
#include <numeric>

#include "core/distribute/strategy.h"
#include "core/nn/layer_inputs.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/runtime/replica_group.h"

namespace cohort::nn {
namespace {

// How the positions that are normalised together are spread over the replicas.
class Shares {
 public:
  explicit Shares(const Value& x) : own_(static_cast<double>(x.shape().num_elements())) {
    for (const Shape& shape : shapes_on_replicas(x))
      all_.push_back(static_cast<double>(shape.num_elements()));
    total_ = std::accumulate(all_.begin(), all_.end(), 0.0);
  }

  size_t replicas() const { return all_.size(); }
  bool none() const { return total_ == 0; }
  // Of each replica; they add up to 1.
  std::vector<double> fractions() const {
    std::vector<double> fractions;
    for (const double count : all_) fractions.push_back(count / total_);
    return fractions;
  }
  // This replica's share relative to an equal one.
  double weight() const { return own_ * static_cast<double>(replicas()) / total_; }

 private:
  double own_;
  std::vector<double> all_;
  double total_;
};

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

  // Replicas with and without rows make the same nodes, so that their gradients meet in order.
  Value call(const std::vector<Value>& inputs, const CallContext& context) override {
    const Value& x = only_input(inputs);
    require_features(x.shape(), moving_mean_->spec(), 0);
    const Value gamma = read_or(gamma_, 1), beta = read_or(beta_, 0);
    if (!context.training || !trainable()) {
      const auto moving = moving_statistics();
      return ops::batch_norm_inference(x, gamma, beta, moving[0], moving[1], options_.epsilon);
    }
    const Shares shares(x);
    const bool together = options_.synchronized && shares.replicas() > 1 && !shares.none();
    const ops::BatchNorm norm = together ? synchronized(x, gamma, beta, shares)
                                         : ops::batch_norm(x, gamma, beta, options_.epsilon);
    if (!shares.none()) {
      const double weight = together ? 1 : shares.weight();
      move(*moving_mean_, norm.mean, weight);
      move(*moving_variance_, norm.variance, weight);
    }
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

  // The mean and variance to normalise by outside training. Replicas merge theirs in the
  // background: the exchange begins with the step, for it needs nothing that is computed there.
  std::vector<Value> moving_statistics() const {
    const std::vector<Value> own = {moving_mean_->read(), moving_variance_->read()};
    const ReplicaContext* replica = get_replica_context();
    if (replica == nullptr || replica->num_replicas_in_sync() == 1) return own;
    if (options_.synchronized) return own;  // all replicas have the same
    replica->strategy().require_replica("BatchNormalization");
    std::vector<Value> merged = ops::all_reduce_async(own, ReduceOp::kMean);
    for (Value& statistic : merged) statistic = ops::stop_gradient(statistic);
    return merged;
  }

  // By the statistics of all rows, which follow from those of each replica (Chan, Golub and LeVeque
  // 1979).
  ops::BatchNorm synchronized(const Value& x, const Value& gamma, const Value& beta,
                              const Shares& shares) const {
    const Value wide = ops::cast(x, gamma.dtype());
    const int64_t channels = x.shape().dim(-1);
    const double rows = std::max(1.0, static_cast<double>(x.shape().num_elements() / channels));
    std::vector<int64_t> axes;
    for (int64_t axis = 0; axis + 1 < x.shape().rank(); ++axis) axes.push_back(axis);

    const Value own_mean = ops::reduce_sum(wide, axes) / rows;
    const Value own_variance = ops::reduce_sum(ops::square(wide - own_mean), axes) / rows;
    const Value row = ops::reshape(ops::concat({own_mean, own_variance}, 0), {1, -1});
    const auto replicas = static_cast<int64_t>(shares.replicas());
    const auto all = ops::split(ops::all_gather(row, std::vector<int64_t>(shares.replicas(), 1)),
                                {channels, channels}, 1);
    const Value fractions =
        ops::constant(Tensor::from(shares.fractions(), {replicas, 1}).cast(gamma.dtype()));
    const Value mean = ops::reduce_sum(all[0] * fractions, {0});
    const Value variance = ops::reduce_sum((all[1] + ops::square(all[0] - mean)) * fractions, {0});
    const Value scale = gamma * ops::rsqrt(variance + options_.epsilon);
    return {ops::cast((wide - mean) * scale + beta, x.dtype()), mean, variance};
  }

  void move(const Weight& moving, const Value& batch, double weight) const {
    const Value kept = moving.read() * options_.momentum;
    moving.assign(kept + ops::stop_gradient(batch) * ((1 - options_.momentum) * weight));
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

Layer SyncBatchNormalization(BatchNormalizationOptions options) {
  options.synchronized = true;
  return BatchNormalization(options);
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
