#pragma once

#include <string>

#include "core/nn/activations.h"
#include "core/nn/layer.h"

// Normalisation layers, with Keras' names, defaults and weight names.
namespace cohort::nn {

struct BatchNormalizationOptions {
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;  // false: no beta
  bool scale = true;   // false: no gamma
  initializers::Initializer beta_initializer = initializers::zeros();
  initializers::Initializer gamma_initializer = initializers::ones();
  std::string name;
};
// Over all axes but the last (Ioffe and Szegedy 2015). In training it uses the statistics of the
// replica's own rows and moves moving_mean and moving_variance towards them; these are kept per
// replica, and read outside of replicas they are the mean over them. A replica without rows leaves
// them alone. Weights: gamma, beta, moving_mean, moving_variance, all [channels].
Layer BatchNormalization(const BatchNormalizationOptions& options = {});

struct LayerNormalizationOptions {
  double epsilon = 1e-3;
  std::string name;
};
// Over the last axis (Ba et al. 2016). Weights: gamma, beta.
Layer LayerNormalization(const LayerNormalizationOptions& options = {});

struct RMSNormOptions {
  double epsilon = 1e-6;
  std::string name;
};
// x / rms(x) * scale over the last axis (Zhang and Sennrich 2019). Weight: scale.
Layer RMSNorm(const RMSNormOptions& options = {});

}  // namespace cohort::nn
