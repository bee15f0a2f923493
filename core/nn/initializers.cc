#include "core/nn/initializers.h"

#include <cmath>
#include <numbers>

#include "core/base/random.h"
#include "core/base/threads.h"

namespace cohort::initializers {
namespace {

double normal(RandomStream& random) {  // Box and Muller 1958
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

double normal_within_two(RandomStream& random) {
  double value = normal(random);
  while (std::abs(value) > 2) value = normal(random);
  return value;
}

// A tensor whose element i is sample(stream i of the seed), whichever thread computes it.
template <typename Sample>
Tensor sampled(const TensorSpec& spec, uint64_t seed, const Sample& sample) {
  constexpr int64_t kGrain = 4096;
  Tensor out(spec.dtype, spec.shape);
  dispatch(FloatTypes{}, spec.dtype, "a random initializer", [&]<typename T>() {
    T* data = out.data<T>();
    parallel_for(out.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RandomStream random(seed, static_cast<uint64_t>(i));
        data[i] = T(sample(random));
      }
    });
  });
  return out;
}

struct Fans {
  double in, out;
};

Fans fans_of(const Shape& shape) {
  const int rank = shape.rank();
  if (rank == 0) return {1, 1};
  if (rank == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  const auto receptive = static_cast<double>(shape.count(0, rank - 2));
  return {receptive * static_cast<double>(shape.dim(-2)),
          receptive * static_cast<double>(shape.dim(-1))};
}

double mean_fan(const Fans& fans) { return (fans.in + fans.out) / 2; }
double fan_in(const Fans& fans) { return fans.in; }

using FanFunction = double (*)(const Fans&);

Initializer scaled_uniform(double scale, FanFunction fan) {
  return [=](const TensorSpec& spec, uint64_t seed) {
    const double limit = std::sqrt(3 * scale / std::max(1.0, fan(fans_of(spec.shape))));
    return random_uniform(-limit, limit)(spec, seed);
  };
}

Initializer scaled_normal(double scale, FanFunction fan) {
  // The standard deviation of a standard normal truncated at 2.
  constexpr double kTruncated = 0.87962566103423978;
  return [=](const TensorSpec& spec, uint64_t seed) {
    const double stddev = std::sqrt(scale / std::max(1.0, fan(fans_of(spec.shape)))) / kTruncated;
    return truncated_normal(0, stddev)(spec, seed);
  };
}

// Makes the `count` vectors of `size` elements orthonormal, one after another (Gram-Schmidt). A
// second round removes what rounding left of the first.
void orthonormalise(double* vectors, int64_t count, int64_t size) {
  const auto dot = [size](const double* a, const double* b) {
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += a[k] * b[k];
    return sum;
  };
  for (int64_t i = 0; i < count; ++i) {
    double* v = vectors + i * size;
    for (int round = 0; round < 2; ++round) {
      for (int64_t j = 0; j < i; ++j) {
        const double* u = vectors + j * size;
        const double share = dot(u, v);
        for (int64_t k = 0; k < size; ++k) v[k] -= share * u[k];
      }
    }
    const double norm = std::sqrt(dot(v, v));
    for (int64_t k = 0; k < size; ++k) v[k] /= norm;
  }
}

void check_spread(const char* initializer, double mean, double stddev) {
  if (!(std::isfinite(mean) && std::isfinite(stddev) && stddev >= 0))
    invalid(initializer,
            ": the mean must be finite, and the standard deviation finite and not negative; got ",
            mean, " and ", stddev);
}

}  // namespace

Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer constant(double value) {
  return [value](const TensorSpec& spec, uint64_t) {
    return Tensor::full(spec.dtype, spec.shape, value);
  };
}

Initializer random_uniform(double low, double high) {
  if (!(std::isfinite(high - low) && low <= high))
    invalid(
        "random_uniform: the bounds and their difference must be finite, and the lower one not "
        "above the other; got ",
        low, " and ", high);
  return [=](const TensorSpec& spec, uint64_t seed) {
    return sampled(spec, seed,
                   [=](RandomStream& random) { return low + (high - low) * random.uniform(); });
  };
}

Initializer random_normal(double mean, double stddev) {
  check_spread("random_normal", mean, stddev);
  return [=](const TensorSpec& spec, uint64_t seed) {
    return sampled(spec, seed,
                   [=](RandomStream& random) { return mean + stddev * normal(random); });
  };
}

Initializer truncated_normal(double mean, double stddev) {
  check_spread("truncated_normal", mean, stddev);
  return [=](const TensorSpec& spec, uint64_t seed) {
    return sampled(spec, seed,
                   [=](RandomStream& random) { return mean + stddev * normal_within_two(random); });
  };
}

Initializer glorot_uniform() { return scaled_uniform(1, mean_fan); }
Initializer glorot_normal() { return scaled_normal(1, mean_fan); }
Initializer he_uniform() { return scaled_uniform(2, fan_in); }
Initializer he_normal() { return scaled_normal(2, fan_in); }
Initializer lecun_uniform() { return scaled_uniform(1, fan_in); }
Initializer lecun_normal() { return scaled_normal(1, fan_in); }

Initializer orthogonal(double gain) {
  return [gain](const TensorSpec& spec, uint64_t seed) {
    const int rank = spec.shape.rank();
    if (!is_floating(spec.dtype))
      fail(Code::kUnimplemented, "an orthogonal initializer does not support ", spec.dtype);
    if (rank < 2) invalid("an orthogonal initializer needs rank 2 at least, got ", spec.shape);
    const int64_t rows = spec.shape.count(0, rank - 1), cols = spec.shape.dim(-1);
    const int64_t count = std::min(rows, cols), size = std::max(rows, cols);
    Tensor vectors = random_normal(0, 1)({DType::kFloat64, Shape{count, size}}, seed);
    const double* v = vectors.data<double>();
    orthonormalise(vectors.data<double>(), count, size);
    Tensor out(DType::kFloat64, spec.shape);
    double* target = out.data<double>();
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        target[r * cols + c] = gain * (rows < cols ? v[r * size + c] : v[c * size + r]);
    return out.cast(spec.dtype);
  };
}

}  // namespace cohort::initializers
