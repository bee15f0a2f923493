// What a plan makes of models that are written with layers: which kernels run, and that they
// compute what they do one by one.

#include <map>

#include "core/nn/losses.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "core/runtime/profiler.h"
#include "core/tensor/specs_of.h"
#include "tests/nn/testing.h"

namespace cohort::nn {
namespace {

using testing::random_tensor;
using Variables = std::vector<std::shared_ptr<Variable>>;
using Kernels = std::map<std::string, int>;  // how often each op runs in a step

// A run's outputs, then the values that it left in the variables.
std::vector<Tensor> results_of(Plan& plan, const std::vector<Tensor>& inputs,
                               const Variables& variables) {
  std::vector<Tensor> results = plan.run(inputs, {});
  for (const auto& variable : variables) results.push_back(variable->value().clone());
  return results;
}

// Runs a step as it is and fused, from the same values of `variables`, and compares all results.
Kernels kernels_of(const Function& step, const std::vector<Tensor>& inputs,
                   const Variables& variables = {}) {
  const GraphFunction& traced = step.trace(specs_of(inputs));
  Plan plain(traced, {.optimize = false}), fused(traced, {});
  std::vector<Tensor> before;
  for (const auto& variable : variables) before.push_back(variable->value().clone());
  const std::vector<Tensor> expected = results_of(plain, inputs, variables);
  for (size_t i = 0; i < variables.size(); ++i) variables[i]->assign(before[i]);
  const Profiler profiler;
  const std::vector<Tensor> actual = results_of(fused, inputs, variables);
  for (size_t i = 0; i < expected.size(); ++i)
    testing::expect_near(actual[i], testing::to_vector(expected[i]));
  Kernels kernels;
  for (const Profiler::Event& event : profiler.events()) ++kernels[event.kind];
  return kernels;
}

Kernels kernels_of(const Layer& layer, const Tensor& x) {
  return kernels_of(Function([&](const std::vector<Value>& in) {
                      return std::vector<Value>{layer(in, {.training = false})};
                    }),
                    {x});
}

// Of a step of training with labels 0 to 2.
Kernels train(const Layer& network, const Shape& input, const losses::Loss& loss,
              const optim::Optimizer& optimizer = optim::SGD(0.1)) {
  const Function step([&](const std::vector<Value>& in) {
    const Value value =
        ops::reduce_mean(loss.per_example(in[1], network(in[0], {.training = true})));
    optimizer.minimize(value, network.trainable_variables());
    return std::vector<Value>{value};
  });
  Tensor labels(DType::kInt32, {input[0]});
  for (int64_t i = 0; i < input[0]; ++i) labels.data<int32_t>()[i] = static_cast<int32_t>(i % 3);
  step.trace({{DType::kFloat32, input}, labels.spec()});  // makes the variables
  Variables variables = network.variables();
  for (const auto& variable : optimizer.variables()) variables.push_back(variable);
  return kernels_of(step, {random_tensor(input, 1), labels}, variables);
}

losses::Loss loss_of_logits() {
  return losses::SparseCategoricalCrossentropy({.from_logits = true});
}

TEST(FusionTest, ADenseLayerIsOneKernel) {
  for (const auto activation : {relu, gelu, gelu_tanh, tanh, sigmoid, silu})
    for (const Shape& input : {Shape{5, 4}, Shape{2, 3, 4}})
      EXPECT_EQ(kernels_of(Dense(3, {.activation = activation}), random_tensor(input)),
                (Kernels{{"FusedMatMul", 1}}));
  EXPECT_EQ(kernels_of(Dense(3), random_tensor({5, 4})), (Kernels{{"FusedMatMul", 1}}));
}

TEST(FusionTest, AConvolutionIsOneKernel) {
  const Tensor x = random_tensor({2, 6, 5, 4});
  for (const auto activation : {relu, gelu, gelu_tanh, tanh, sigmoid, silu}) {
    EXPECT_EQ(kernels_of(Conv2D(6, 3, {.groups = 2, .activation = activation}), x),
              (Kernels{{"FusedConv2D", 1}}));
    EXPECT_EQ(kernels_of(DepthwiseConv2D(3, {.strides = 2, .activation = activation}), x),
              (Kernels{{"FusedConv2D", 1}}));
  }
}

TEST(FusionTest, ABiasAndAnActivationAreFusedInTrainingToo) {
  const Layer network =
      make_sequential({Conv2D(4, 3, {.activation = relu}), Flatten(),
                       Dense(5, {.activation = tanh}), Dense(3, {.use_bias = false})});
  const Kernels kernels = train(network, {4, 5, 5, 2}, loss_of_logits());
  EXPECT_EQ(kernels.at("FusedConv2D"), 1);
  EXPECT_EQ(kernels.at("FusedMatMul"), 1);
  for (const char* op : {"Conv2D", "Relu", "Tanh"}) EXPECT_FALSE(kernels.contains(op)) << op;
}

TEST(FusionTest, ABatchNormAndItsReluAreOneKernelEachWay) {
  const Layer network =
      make_sequential({Conv2D(4, 3, {.use_bias = false}), BatchNormalization(),
                       ActivationLayer(relu), GlobalAveragePooling2D(), Dense(3)});
  const Kernels kernels = train(network, {4, 5, 5, 2}, loss_of_logits());
  EXPECT_EQ(kernels.at("BatchNorm"), 1);
  EXPECT_EQ(kernels.at("BatchNormGrad"), 1);
  EXPECT_FALSE(kernels.contains("Relu"));
  EXPECT_FALSE(kernels.contains("ReluGrad"));
}

TEST(FusionTest, ABatchNormAndItsReluAreOneElementwiseKernelOutsideTraining) {
  const Layer network = make_sequential({BatchNormalization(), ActivationLayer(relu)});
  // One for each of the channels' scale and shift, and one over the pixels.
  EXPECT_EQ(kernels_of(network, random_tensor({2, 5, 5, 3})), (Kernels{{"FusedElementwise", 2}}));
}

TEST(FusionTest, AnActivationOfSeveralOpsIsOneKernel) {
  for (const auto activation : {elu, selu, leaky_relu, relu6})
    EXPECT_EQ(kernels_of(ActivationLayer(activation), random_tensor({3, 4})),
              (Kernels{{"FusedElementwise", 1}}));
}

TEST(FusionTest, ASoftmaxAndItsCrossEntropyAreOneKernelEachWay) {
  const auto check = [](const Layer& network, const losses::Loss& loss, const std::string& op) {
    const Kernels kernels = train(network, {6, 4}, loss);
    EXPECT_EQ(kernels.at(op), 1);
    EXPECT_EQ(kernels.at(op + "Grad"), 1);
    for (const auto& [other, count] : kernels)
      EXPECT_TRUE(other.starts_with(op) || other.find("Softmax") == std::string::npos) << other;
  };
  const std::string sparse = "SparseSoftmaxCrossEntropy";
  check(Dense(3), loss_of_logits(), sparse);
  check(Dense(3, {.activation = softmax}), losses::SparseCategoricalCrossentropy(), sparse);
  check(make_sequential({Dense(3), ActivationLayer(softmax)}),
        losses::SparseCategoricalCrossentropy(), sparse);
  const losses::Loss dense("one_hot", [](const Value& labels, const Value& y) {
    return losses::CategoricalCrossentropy().per_example(ops::one_hot(labels, 3), y);
  });
  check(Dense(3, {.activation = softmax}), dense, "SoftmaxCrossEntropy");
}

TEST(FusionTest, AllVariablesAreUpdatedByOneKernel) {
  const std::pair<std::string, optim::Optimizer> optimizers[] = {
      {"SGD", optim::SGD(0.1)},
      {"momentum", optim::SGD(0.1, {.momentum = 0.9})},
      {"RMSprop", optim::RMSprop(0.01)},
      {"Adagrad", optim::Adagrad(0.01)},
      {"Adam", optim::Adam(0.01)},
      {"AdamW", optim::AdamW(0.01)},
      {"rates of groups",
       optim::AdamW(0.01, {.groups = {{.variables = {"bias"}, .learning_rate_multiplier = 0.1}}})}};
  for (const auto& [name, optimizer] : optimizers) {
    SCOPED_TRACE(name);
    const Layer network =
        make_sequential({Conv2D(4, 3, {.activation = relu}), Flatten(), Dense(7), Dense(3)});
    Kernels kernels = train(network, {4, 5, 5, 2}, loss_of_logits(), optimizer);
    EXPECT_EQ(kernels["MultiElementwise"], 1);
    EXPECT_LE(kernels["AssignVariable"], 1) << "of the number of steps";
  }
}

}  // namespace
}  // namespace cohort::nn
