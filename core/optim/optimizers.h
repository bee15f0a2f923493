#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/optim/optimizer.h"

// Optimizers with the names, defaults and formulas of Keras 3 (keras.io/api/optimizers). In the
// formulas g is the gradient, w the variable, t the number of the update from 1. Arguments out of
// range are kInvalidArgument at once.
namespace cohort::optim {

struct SGDOptions {
  double momentum = 0;
  bool nesterov = false;
  WeightDecay weight_decay = {};
  std::vector<VariableGroup> groups = {};
  GradientOptions gradients = {};
  std::optional<EmaOptions> ema = {};
  std::string name = "optimizer";
};
// m = momentum m - lr g; w += m, or with nesterov w += momentum m - lr g. Slot: momentum.
Optimizer SGD(LearningRate learning_rate = 0.01, const SGDOptions& options = {});

struct AdamOptions {
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  // Whether a sparse gradient moves its own rows and their slots only, where Adam itself lets the
  // slots of all rows decay and moves all rows (TensorFlow Addons' LazyAdam).
  bool lazy = false;
  WeightDecay weight_decay = {};
  std::vector<VariableGroup> groups = {};
  GradientOptions gradients = {};
  std::optional<EmaOptions> ema = {};
  std::string name = "optimizer";
};
// m += (g - m)(1 - beta_1); v += (g^2 - v)(1 - beta_2);
// w -= lr sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(v) + epsilon), amsgrad with the largest v
// so far (Kingma and Ba 2014; Reddi et al. 2018). Slots: momentum, velocity, velocity_hat.
Optimizer Adam(LearningRate learning_rate = 0.001, const AdamOptions& options = {});
// Adam whose factor of weight decay, where none is given, is 0.004 (Loshchilov and Hutter 2017).
Optimizer AdamW(LearningRate learning_rate = 0.001, AdamOptions options = {});

struct RMSpropOptions {
  double rho = 0.9;
  double momentum = 0;
  double epsilon = 1e-7;
  bool centered = false;
  WeightDecay weight_decay = {};
  std::vector<VariableGroup> groups = {};
  GradientOptions gradients = {};
  std::optional<EmaOptions> ema = {};
  std::string name = "optimizer";
};
// v = rho v + (1 - rho) g^2, centered also a = rho a + (1 - rho) g; step = lr g / sqrt(v [- a^2] +
// epsilon); w -= step, or with momentum m = momentum m + step, w -= m (Hinton 2012). Slots:
// velocity, average_gradient, momentum.
Optimizer RMSprop(LearningRate learning_rate = 0.001, const RMSpropOptions& options = {});

struct AdagradOptions {
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
  WeightDecay weight_decay = {};
  std::vector<VariableGroup> groups = {};
  GradientOptions gradients = {};
  std::optional<EmaOptions> ema = {};
  std::string name = "optimizer";
};
// a += g^2; w -= lr g / sqrt(a + epsilon) (Duchi et al. 2011). Slot: accumulator.
Optimizer Adagrad(LearningRate learning_rate = 0.001, const AdagradOptions& options = {});

struct LambOptions {
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  WeightDecay weight_decay = {};
  std::vector<VariableGroup> groups = {};
  GradientOptions gradients = {};
  std::optional<EmaOptions> ema = {};
  std::string name = "optimizer";
};
// r = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) with Adam's m and v; w -= lr r |w|
// / |r|, where a norm of 0 makes the ratio 1 (You et al. 2019). Weight decay is no part of r, as in
// Keras and unlike the paper. Slots: momentum, velocity.
Optimizer Lamb(LearningRate learning_rate = 0.001, const LambOptions& options = {});

}  // namespace cohort::optim
