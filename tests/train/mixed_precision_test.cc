// fit() in mixed_float16, with the loss scale that comes with it.
#include <gmock/gmock.h>

#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::bits;
using cohort::testing::error_of;
using cohort::testing::make_folder;
using cohort::testing::points;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr Precision kHalf = Precision::kMixedFloat16;

FitOptions quietly(int64_t epochs, std::vector<CallbackPtr> callbacks = {}) {
  return {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent};
}

// The same weights each time it is made.
Model network(Precision precision, const optim::Optimizer& optimizer) {
  set_global_seed(3);
  auto model = nn::Sequential({nn::Dense(16, {.activation = nn::tanh}), nn::BatchNormalization(),
                               nn::Dropout(0.1), nn::Dense(2)});
  model.build({{DType::kFloat32, {1, 2}}});
  model.compile({.optimizer = optimizer,
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {metrics::SparseCategoricalAccuracy("accuracy")},
                 .precision = precision});
  return model;
}

// With a scale at which the first updates overflow.
optim::Optimizer adam_from(double scale, int64_t growth_steps = 2000) {
  return optim::Adam(
      0.02, {.gradients = {.loss_scale = optim::LossScale{.initial_scale = scale,
                                                          .dynamic_growth_steps = growth_steps}}});
}

std::vector<float> values(const Model& model, std::string_view name) {
  for (const auto& variable : model.variables()) {
    if (variable->name().find(name) == std::string::npos) continue;
    const Tensor value = variable->value();
    return {value.values<float>().begin(), value.values<float>().end()};
  }
  ADD_FAILURE() << "no variable " << name;
  return {};
}

int64_t skipped(const Model& model) {
  for (const auto& variable : model.optimizer().variables())
    if (variable->name() == "optimizer/skipped_updates")
      return static_cast<int64_t>(variable->value().item());
  ADD_FAILURE() << "no count of skipped updates";
  return 0;
}

TEST(MixedFloat16, LearnsAsInFloat32OnAnyNumberOfReplicas) {
  const auto train = points(400).shuffle(400, {.seed = 5}).batch(32),
             test = points(200, /*seed=*/8).batch(50);
  const auto expected = network(Precision::kFloat32, optim::SGD(0.1)).fit(train, quietly(6));
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(str(replicas, " replicas"));
    set_logical_cpus(replicas, 1);
    MirroredStrategy strategy;
    const auto scope = strategy.scope();
    auto model = network(kHalf, optim::SGD(0.1));
    EXPECT_EQ(model.optimizer().loss_scale(), 0x1p15) << "compile turns it on";
    const auto found = model.fit(train, quietly(6));
    // Dropout and batch statistics differ between replicas.
    const double tolerance = replicas == 1 ? 0.01 : 0.1;
    for (size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(found["loss"][i], expected["loss"][i], tolerance) << "epoch " << i + 1;
    EXPECT_GT(model.evaluate(test).at("accuracy"), 0.9);
    EXPECT_EQ(model.optimizer().loss_scale(), 0x1p15);
  }
  set_logical_cpus(1);
}

TEST(MixedFloat16, AnOverflowIsNoDivergence) {
  auto model = network(kHalf, adam_from(0x1p30));
  const auto before = values(model, "dense/kernel"), mean = values(model, "moving_mean");
  const auto train = points(400).batch(32);
  model.fit(train.take(1), quietly(1));
  EXPECT_EQ(values(model, "dense/kernel"), before);
  EXPECT_NE(values(model, "moving_mean"), mean) << "the forward pass was good";
  EXPECT_EQ(skipped(model), 1);
  const auto history = model.fit(train, quietly(15, {callbacks::TerminateOnNaN()}));
  EXPECT_GT(skipped(model), 5);
  EXPECT_LT(history["loss"].back(), 0.6 * history["loss"].front());
}

TEST(MixedFloat16, ALossThatIsNoNumberIsAnErrorAsEver) {
  auto model = network(kHalf, adam_from(0x1p15));
  const Tensor x = Tensor::full(DType::kFloat32, {8, 2}, 1e30);  // infinite as float16
  const auto rows =
      data::from_tensor_slices({{"x", x}, {"label", Tensor::zeros(DType::kInt32, {8})}}).batch(8);
  const auto kernel = model.variables()[0];
  kernel->assign(Tensor::zeros(DType::kFloat32, kernel->spec().shape));
  EXPECT_THAT(error_of([&] { model.fit(rows, quietly(1, {callbacks::TerminateOnNaN()})); },
                       Code::kOutOfRange),
              HasSubstr("the loss is nan"));
  // Who allows it trains no further than the lowest scale.
  FitOptions on_and_on = quietly(100);
  on_and_on.allow_nan_loss = true;
  EXPECT_THAT(error_of([&] { model.fit(rows, on_and_on); }, Code::kOutOfRange),
              HasSubstr("gradients are not finite, even with the lowest loss scale"));
  EXPECT_EQ(model.optimizer().loss_scale(), 1);
  EXPECT_THAT(values(model, "dense/kernel"), Each(0.0f)) << "nothing was updated";
}

// With updates that are skipped, and a scale that has doubled, before and after.
TEST(MixedFloat16, ContinuesFromACheckpointWithTheSameBits) {
  const std::string path = make_folder() + "/model.safetensors";
  const auto train = points(96).batch(8);
  const auto optimizer = [] { return adam_from(0x1p26, 3); };
  auto whole = network(kHalf, optimizer());
  whole.fit(train, quietly(2));
  auto first = network(kHalf, optimizer());
  first.fit(train, quietly(1));
  EXPECT_GT(skipped(first), 1);
  EXPECT_LT(skipped(first), skipped(whole)) << "the scale has grown too far again";
  first.save_checkpoint(path);
  auto second = network(kHalf, optimizer());
  second.load_checkpoint(path);
  EXPECT_EQ(second.optimizer().loss_scale(), first.optimizer().loss_scale());
  FitOptions rest = quietly(2);
  rest.initial_epoch = 1;
  second.fit(train, rest);
  EXPECT_EQ(bits(second), bits(whole));
}

TEST(MixedFloat16, OtherPrecisionsHaveNoLossScale) {
  for (const Precision precision : {Precision::kFloat32, Precision::kMixedBFloat16})
    EXPECT_EQ(network(precision, optim::SGD(0.1)).optimizer().loss_scale(), 1);
}

TEST(Precision, IsKnownByName) {
  EXPECT_EQ(precision_names(),
            (std::vector<std::string>{"float32", "mixed_bfloat16", "mixed_float16"}));
  for (const std::string& name : precision_names())
    EXPECT_EQ(precision_name(precision_from_name(name)), name);
  EXPECT_EQ(error_of([] { precision_from_name("float16"); }),
            "unknown precision \"float16\"; allowed are float32, mixed_bfloat16, mixed_float16");
}

}  // namespace
}  // namespace cohort
