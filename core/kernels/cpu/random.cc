#include "core/base/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/threads.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/kernel.h"

namespace cohort {
namespace {

using Block = std::array<uint32_t, 4>;

constexpr int64_t kMinElementsPerThread = 4096;

// The random bits of one op in one step on one replica. Element i uses fixed blocks, so that values
// depend on nothing but its position.
class StepRandom {
 public:
  StepRandom(int64_t op_seed, const StepInfo& step)
      : key_(split64(mix(mix(step.seed, static_cast<uint64_t>(op_seed)),
                         static_cast<uint64_t>(step.step),
                         static_cast<uint64_t>(step.replica_id)))) {}

  // `attempt` numbers further blocks at the same index.
  Block block(int64_t index, uint32_t attempt = 0) const {
    const auto words = split64(static_cast<uint64_t>(index));
    return philox({words[0], words[1], attempt, 0}, key_);
  }

 private:
  std::array<uint32_t, 2> key_;
};

// Random numbers of type R = float or double: how many a block makes, and how.
template <typename R>
struct Draw;

template <>
struct Draw<float> {
  static constexpr int kPerBlock = 4;
  // [0, 1), all 24 bits of the mantissa random.
  static float uniform(const Block& block, int i) {
    return static_cast<float>(block[i] >> 8) * 0x1p-24f;
  }
};

template <>
struct Draw<double> {
  static constexpr int kPerBlock = 2;
  static double uniform(const Block& block, int i) {
    return static_cast<double>(join64(block[2 * i], block[2 * i + 1]) >> 11) * 0x1p-53;
  }
};

// One number for each of the elements that share a block.
template <typename R>
using Numbers = std::array<R, Draw<R>::kPerBlock>;

template <typename R>
Numbers<R> uniform(const Block& block) {
  Numbers<R> numbers;
  for (int i = 0; i < Draw<R>::kPerBlock; ++i) numbers[i] = Draw<R>::uniform(block, i);
  return numbers;
}

// Standard normal numbers by the method of Box and Muller.
template <typename R>
Numbers<R> normal(const Block& block) {
  Numbers<R> numbers = uniform<R>(block);
  for (int i = 0; i < Draw<R>::kPerBlock; i += 2) {
    const R radius = std::sqrt(R(-2) * std::log(R(1) - numbers[i])),
            angle = R(2) * std::numbers::pi_v<R> * numbers[i + 1];
    numbers[i] = radius * std::cos(angle);
    numbers[i + 1] = radius * std::sin(angle);
  }
  return numbers;
}

// Standard normal numbers, each drawn again until it is within two standard deviations.
template <typename R>
Numbers<R> truncated_normal(const StepRandom& random, int64_t index) {
  constexpr R kLimit = 2;
  Numbers<R> numbers = normal<R>(random.block(index));
  const auto outside = [](R z) { return std::abs(z) > kLimit; };
  for (uint32_t attempt = 1; std::any_of(numbers.begin(), numbers.end(), outside); ++attempt) {
    const Numbers<R> others = normal<R>(random.block(index, attempt));
    for (size_t i = 0; i < numbers.size(); ++i)
      if (outside(numbers[i])) numbers[i] = others[i];
  }
  return numbers;
}

// Fills output 0 with finish<T>(z) for the numbers z of draw<R>(random, index) for block after
// block, where R is double for float64 and else float.
template <typename DrawNumbers, typename Finish>
void fill(const KernelCall& call, const KernelContext& context, const DrawNumbers& draw,
          const Finish& finish) {
  const TensorSpec& y = call.output_specs[0];
  const StepRandom random(call.attributes.get<int64_t>("seed"), context.step);
  dispatch(FloatTypes{}, y.dtype, "a random op", [&]<typename T>() {
    using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
    constexpr int64_t kPerBlock = Draw<R>::kPerBlock;
    T* out = context.output<T>(0);
    parallel_for(y.shape.num_elements(), kMinElementsPerThread, [&](int64_t begin, int64_t end) {
      for (; begin < end; begin += kPerBlock) {
        const Numbers<R> numbers = draw.template operator()<R>(random, begin / kPerBlock);
        const int64_t n = std::min(kPerBlock, end - begin);
        for (int64_t k = 0; k < n; ++k) out[begin + k] = finish.template operator()<T>(numbers[k]);
      }
    });
  });
}

void random_uniform(const KernelCall& call, const KernelContext& context) {
  const double low = call.attributes.get<double>("a"), high = call.attributes.get<double>("b");
  fill(
      call, context,
      []<typename R>(const StepRandom& random, int64_t index) {
        return uniform<R>(random.block(index));
      },
      [&]<typename T, typename R>(R u) {
        const T value = convert<T>(static_cast<R>(low) + u * static_cast<R>(high - low));
        return static_cast<R>(value) < static_cast<R>(high)
                   ? value
                   : convert<T>(low);  // rounding may reach `high`
      });
}

// Scales standard normal numbers to the mean and standard deviation asked for.
template <typename DrawNumbers>
void fill_normal(const KernelCall& call, const KernelContext& context, const DrawNumbers& draw) {
  const double mean = call.attributes.get<double>("a"), stddev = call.attributes.get<double>("b");
  fill(call, context, draw, [&]<typename T, typename R>(R z) {
    return convert<T>(static_cast<R>(mean) + static_cast<R>(stddev) * z);
  });
}

void random_normal(const KernelCall& call, const KernelContext& context) {
  fill_normal(call, context, []<typename R>(const StepRandom& random, int64_t index) {
    return normal<R>(random.block(index));
  });
}

void random_truncated_normal(const KernelCall& call, const KernelContext& context) {
  fill_normal(call, context, []<typename R>(const StepRandom& random, int64_t index) {
    return truncated_normal<R>(random, index);
  });
}

class DropoutKernel final : public Kernel {
 public:
  explicit DropoutKernel(const KernelSpec& spec)
      : spec_(spec.inputs[0]),
        rate_(spec.attributes.get<double>("rate")),
        seed_(spec.attributes.get<int64_t>("seed")) {}

  bool can_run_in_place(int, int) const override { return true; }

  void run(const KernelContext& context) override {
    const StepRandom random(seed_, context.step);
    const auto threshold =
        static_cast<uint32_t>(rate_ * 0x1p32);  // keep where 32 random bits are not below it
    dispatch(FloatTypes{}, spec_.dtype, "Dropout", [&]<typename T>() {
      using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
      const R scale = static_cast<R>(1 / (1 - rate_));
      parallel_for(
          spec_.shape.num_elements(), kMinElementsPerThread, [&](int64_t begin, int64_t end) {
            drop(random, threshold, scale, context.input<T>(0), context.output<T>(0), begin, end);
          });
    });
  }

 private:
  // Random bits are made for a tile first, which the compiler turns into vector code.
  template <typename T, typename R>
  static void drop(const StepRandom& random, uint32_t threshold, R scale, const T* x, T* y,
                   int64_t begin, int64_t end) {
    constexpr int64_t kTile = 256;
    static_assert(kMinElementsPerThread % kTile == 0);
    for (; begin < end; begin += kTile) {
      uint32_t bits[kTile];
      for (int64_t b = 0; b < kTile / 4; ++b) {
        const Block block = random.block(begin / 4 + b);
        for (int k = 0; k < 4; ++k) bits[4 * b + k] = block[k];
      }
      const int64_t n = std::min(kTile, end - begin);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i)
        y[begin + i] = convert<T>(bits[i] >= threshold ? convert<R>(x[begin + i]) * scale : R(0));
    }
  }

  TensorSpec spec_;
  double rate_;
  int64_t seed_;
};

COHORT_REGISTER_KERNEL("RandomUniform", kCpu, stateless_kernel(random_uniform));
COHORT_REGISTER_KERNEL("RandomNormal", kCpu, stateless_kernel(random_normal));
COHORT_REGISTER_KERNEL("TruncatedNormal", kCpu, stateless_kernel(random_truncated_normal));
COHORT_REGISTER_KERNEL("Dropout", kCpu, [](const KernelSpec& spec) {
  return std::make_unique<DropoutKernel>(spec);
});

}  // namespace
}  // namespace cohort
