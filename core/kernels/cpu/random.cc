#include <algorithm>

#include "core/base/threads.h"
#include "core/kernels/common/convert.h"
#include "core/kernels/common/draw.h"
#include "core/kernels/kernel.h"

namespace cohort {
namespace {

using draw::last_of_range;
using draw::normal;
using draw::Numbers;
using draw::StepRandom;
using draw::truncated_normal;
using draw::uniform;

constexpr int64_t kMinElementsPerThread = 4096;

StepRandom step_random(int64_t op_seed, const StepInfo& step) {
  return {op_seed, step.seed, step.step, step.replica_id};
}

// Fills output 0 with finish<T>(z) for the numbers z of draw_numbers<R>(random, index) for block
// after block, where R is double for float64 and else float.
template <typename DrawNumbers, typename Finish>
void fill(const KernelCall& call, const KernelContext& context, const DrawNumbers& draw_numbers,
          const Finish& finish) {
  const TensorSpec& y = call.output_specs[0];
  const StepRandom random = step_random(call.attributes.get<int64_t>("seed"), context.step);
  dispatch(FloatTypes{}, y.dtype, "a random op", [&]<typename T>() {
    using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
    constexpr int64_t kPerBlock = draw::kPerBlock<R>;
    T* out = context.output<T>(0);
    parallel_for(y.shape.num_elements(), kMinElementsPerThread, [&](int64_t begin, int64_t end) {
      for (; begin < end; begin += kPerBlock) {
        const Numbers<R> numbers = draw_numbers.template operator()<R>(random, begin / kPerBlock);
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
        return static_cast<R>(value) < static_cast<R>(high) ? value
                                                            : last_of_range<T, R>(low, high);
      });
}

// Scales standard normal numbers to the mean and standard deviation asked for.
template <typename DrawNumbers>
void fill_normal(const KernelCall& call, const KernelContext& context,
                 const DrawNumbers& draw_numbers) {
  const double mean = call.attributes.get<double>("a"), stddev = call.attributes.get<double>("b");
  fill(call, context, draw_numbers, [&]<typename T, typename R>(R z) {
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
    const StepRandom random = step_random(seed_, context.step);
    // An element is kept where its 32 random bits are not below it.
    const auto threshold = static_cast<uint32_t>(rate_ * 0x1p32);
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
        const draw::Block block = random.block(begin / 4 + b);
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
COHORT_REGISTER_KERNEL("Dropout", kCpu, make_plain<DropoutKernel>);

}  // namespace
}  // namespace cohort
