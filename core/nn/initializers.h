#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor/tensor.h"

// First values of weights, by Keras' names and formulas. They are computed on the host and depend
// only on the seed and the spec, never on threads, devices or the number of replicas. Layers derive
// the seed from `global_seed()` and the weight's name: the same program gives the same bits,
// whatever the order in which its layers are made, and two models with equal names start out equal
// under one global seed. Fans are Keras': the last two axes are input and output channels, the axes
// before them the receptive field. What is drawn has a floating dtype (kUnimplemented for others).
namespace cohort::initializers {

using Initializer = std::function<Tensor(const TensorSpec& spec, uint64_t seed)>;

Initializer zeros();
Initializer ones();
Initializer constant(double value);
Initializer random_uniform(double low = -0.05, double high = 0.05);
Initializer random_normal(double mean = 0, double stddev = 0.05);
// Values beyond two standard deviations are drawn again.
Initializer truncated_normal(double mean = 0, double stddev = 0.05);

// Uniform in +-sqrt(3 v), or truncated normal of variance v, where v is
Initializer glorot_uniform();  // 2 / (fan in + fan out): Glorot and Bengio 2010
Initializer glorot_normal();
Initializer he_uniform();  // 2 / fan in: He et al. 2015
Initializer he_normal();
Initializer lecun_uniform();  // 1 / fan in: LeCun et al. 1998
Initializer lecun_normal();
// `gain` times a matrix with orthonormal rows or columns (Saxe et al. 2013); all axes but the last
// are rows. kInvalidArgument below rank 2.
Initializer orthogonal(double gain = 1);

}  // namespace cohort::initializers
