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
  // Whether the statistics are those of all replicas' rows together, so that training is the same
  // for any number of replicas; else of the replica's own rows. One exchange a layer and direction.
  bool synchronized = false;
  initializers::Initializer beta_initializer = initializers::zeros();
  initializers::Initializer gamma_initializer = initializers::ones();
  std::string name = {};
};
// Over all axes but the last (Ioffe and Szegedy 2015). In training it normalises by the statistics
// of the batch and moves moving_mean and moving_variance towards them. Each replica moves its own
// by its share of the rows, so that their mean, which is their value outside replicas and what all
// replicas normalise by otherwise, has moved by the mean over all rows; a replica without rows adds
// nothing. They exchange it in each step that uses it, in the background from its beginning on, and
// where they are synchronized, which keeps their copies the same, not at all. Weights: gamma, beta,
// moving_mean, moving_variance, all [channels].
Layer BatchNormalization(const BatchNormalizationOptions& options = {});
// The same with options.synchronized on.
Layer SyncBatchNormalization(BatchNormalizationOptions options = {});

struct LayerNormalizationOptions {
  double epsilon = 1e-3;
  std::string name = {};
};
// Over the last axis (Ba et al. 2016). Weights: gamma, beta.
Layer LayerNormalization(const LayerNormalizationOptions& options = {});

struct RMSNormOptions {
  double epsilon = 1e-6;
  std::string name = {};
};
// x / rms(x) * scale over the last axis (Zhang and Sennrich 2019). Weight: scale.
Layer RMSNorm(const RMSNormOptions& options = {});

}  // namespace cohort::nn
