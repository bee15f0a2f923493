#include <type_traits>

#include "core/kernels/common/convert.h"
#include "core/kernels/common/draw.h"
#include "core/kernels/cuda/launch.h"
#include "core/kernels/kernel.h"

// The random ops: the CPU's bits, and its numbers but for the rounding of logarithm and cosine.
namespace cohort::cuda {
namespace {

enum class Distribution { kUniform, kNormal, kTruncatedNormal };

template <typename R>
COHORT_DEVICE inline draw::Numbers<R> draw_numbers(Distribution distribution,
                                                   const draw::StepRandom& random, int64_t index) {
  if (distribution == Distribution::kUniform) return draw::uniform<R>(random.block(index));
  if (distribution == Distribution::kNormal) return draw::normal<R>(random.block(index));
  return draw::truncated_normal<R>(random, index);
}

// Uniform numbers in [a, b), or normal ones of mean a and standard deviation b. The step is read on
// the device, because a recording of the kernel runs in many steps.
template <typename T>
void fill(const KernelContext& context, Distribution distribution, int64_t count, int64_t op_seed,
          double a, double b) {
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr int64_t kEach = draw::kPerBlock<R>;
  T* out = context.output<T>(0);
  const StepInfo* step = context.device_step;
  const bool is_uniform = distribution == Distribution::kUniform;
  const R base = static_cast<R>(a), width = static_cast<R>(is_uniform ? b - a : b),
          high = static_cast<R>(b);
  const T last = draw::last_of_range<T, R>(a, b);
  for_each_element(*context.stream, (count + kEach - 1) / kEach, [=] COHORT_DEVICE(int64_t index) {
    const draw::StepRandom random(op_seed, step->seed, step->step, step->replica_id);
    const draw::Numbers<R> numbers = draw_numbers<R>(distribution, random, index);
    for (int64_t k = 0; k < kEach && index * kEach + k < count; ++k) {
      const T value = convert<T>(base + width * numbers[k]);
      // Rounding may reach the end of a uniform range.
      out[index * kEach + k] = is_uniform && !(convert<R>(value) < high) ? last : value;
    }
  });
}

template <Distribution distribution>
void random(const KernelCall& call, const KernelContext& context) {
  const TensorSpec& y = call.output_specs[0];
  dispatch(FloatTypes{}, y.dtype, "a random op", [&]<typename T>() {
    fill<T>(context, distribution, y.shape.num_elements(), call.attributes.get<int64_t>("seed"),
            call.attributes.get<double>("a"), call.attributes.get<double>("b"));
  });
}

// Keeps where 32 random bits are not below `threshold`.
template <typename T>
void drop(const KernelContext& context, int64_t count, int64_t op_seed, uint32_t threshold,
          double scale) {
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr int64_t kEach = 4;  // words of a block
  const T* x = context.input<T>(0);
  T* y = context.output<T>(0);
  const StepInfo* step = context.device_step;
  const R factor = static_cast<R>(scale);
  for_each_element(*context.stream, (count + kEach - 1) / kEach, [=] COHORT_DEVICE(int64_t index) {
    const draw::StepRandom random(op_seed, step->seed, step->step, step->replica_id);
    const draw::Block bits = random.block(index);
    for (int64_t k = 0; k < kEach && index * kEach + k < count; ++k) {
      const int64_t i = index * kEach + k;
      y[i] = convert<T>(bits[k] >= threshold ? convert<R>(x[i]) * factor : R(0));
    }
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
    const auto threshold = static_cast<uint32_t>(rate_ * 0x1p32);
    dispatch(FloatTypes{}, spec_.dtype, "Dropout", [&]<typename T>() {
      drop<T>(context, spec_.shape.num_elements(), seed_, threshold, 1 / (1 - rate_));
    });
  }

 private:
  TensorSpec spec_;
  double rate_;
  int64_t seed_;
};

COHORT_REGISTER_KERNEL("RandomUniform", kGpu, stateless_kernel(random<Distribution::kUniform>));
COHORT_REGISTER_KERNEL("RandomNormal", kGpu, stateless_kernel(random<Distribution::kNormal>));
COHORT_REGISTER_KERNEL("TruncatedNormal", kGpu,
                       stateless_kernel(random<Distribution::kTruncatedNormal>));
COHORT_REGISTER_KERNEL("Dropout", kGpu, make_plain<DropoutKernel>);

}  // namespace
}  // namespace cohort::cuda
