// A program of a user of Cohort with an op of its own, x / (1 + |x|): it trains with it on two
// replicas, and with what is composed of other ops to give the same.
#include <cmath>
#include <cstdio>
#include <vector>

#include "cohort.h"
#include "core/base/threads.h"
#include "core/graph/op.h"
#include "core/kernels/kernel.h"

using namespace cohort;

namespace {

std::vector<TensorSpec> infer_softsign(const InferenceContext& c) {
  const TensorSpec& x = c.inputs[0];
  if (x.dtype != DType::kFloat32 && x.dtype != DType::kFloat64)
    invalid("takes float32 and float64, not ", x.dtype);
  return {x};
}

std::vector<Value> softsign_gradient(const Node& node, const std::vector<Value>& dys) {
  return {dys[0] / ops::square(ops::abs(node.inputs()[0]) + 1.0)};
}

void run_softsign(const KernelCall& call, const KernelContext& context) {
  const TensorSpec& x = call.input_specs[0];
  dispatch(TypeList<float, double>{}, x.dtype, "MySoftsign", [&]<typename T>() {
    const T* const in = context.input<T>(0);
    T* const out = context.output<T>(0);
    parallel_for(x.shape.num_elements(), /*grain=*/4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = in[i] / (1 + std::abs(in[i]));
    });
  });
}

COHORT_REGISTER_OP({.name = "MySoftsign",
                    .num_inputs = 1,
                    .infer = infer_softsign,
                    .gradient = softsign_gradient});
COHORT_REGISTER_KERNEL("MySoftsign", kCpu, stateless_kernel(run_softsign));

Value softsign(const Value& x) { return x.graph().add("MySoftsign", {x}).output(); }

Value composed(const Value& x) { return x / (ops::abs(x) + 1.0); }

double loss_after_training(const nn::Activation& activation) {
  auto model =
      nn::Sequential({nn::Flatten(), nn::Dense(16, {.activation = activation}), nn::Dense(10)});
  model.compile({.optimizer = optim::SGD(0.1),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const auto history =
      model.fit(data::synthetic_digits(256).batch(64), {.epochs = 2, .verbose = Verbose::kSilent});
  return history["loss"].back();
}

}  // namespace

int main() {
  return run_main([] {
    set_logical_cpus(2);
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    const auto scope = strategy.scope();
    std::printf("own=%.4f composed=%.4f\n", loss_after_training(softsign),
                loss_after_training(composed));
    try {
      function([](Value x) { return softsign(x); })({Tensor::scalar<int64_t>(1)});
    } catch (const Error& error) {
      std::printf("error: %s\n", error.message().c_str());
    }
  });
}
