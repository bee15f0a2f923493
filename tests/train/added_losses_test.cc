// What layers add to the loss.
#include <gmock/gmock.h>

#include "tests/distribute/testing.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::error_of;
using ::testing::HasSubstr;

constexpr auto kSilent = Verbose::kSilent;

// Hands on what it gets, and adds what `penalty` makes of it.
class Penalised final : public nn::LayerBase {
 public:
  explicit Penalised(std::function<Value(const Value&)> penalty)
      : LayerBase("Penalised"), penalty_(std::move(penalty)) {}

 protected:
  Value call(const std::vector<Value>& inputs, const nn::CallContext&) override {
    add_loss(penalty_(inputs[0]));
    return inputs[0];
  }

 private:
  std::function<Value(const Value&)> penalty_;
};
nn::Layer penalised(std::function<Value(const Value&)> penalty) {
  return std::make_shared<Penalised>(std::move(penalty));
}
Value mean_square(const Value& x) { return ops::reduce_mean(ops::square(x)); }

// y = w x with w = 2, and the mean of y^2 added.
Model scale(DType dtype = DType::kFloat32, const PerOutput<losses::Loss>& loss = {}) {
  auto model = nn::Sequential({nn::Dense(1, {.use_bias = false}), penalised(mean_square)});
  model.build({{dtype, {1, 1}}});
  model.variables()[0]->assign(Tensor::full(dtype, {1, 1}, 2));
  model.compile({.optimizer = optim::SGD(0.01), .loss = loss});
  return model;
}

// x = 1 to 5 in batches of 3 and 2, labels 0.
data::Dataset one_to_five(DType dtype = DType::kFloat32) {
  return data::from_tensor_slices({{"x", Tensor::from<double>({1, 2, 3, 4, 5}, {5, 1}).cast(dtype)},
                                   {"label", Tensor::zeros(dtype, {5, 1})}})
      .batch(3);
}

TEST(AddedLosses, AreInTheLossOfTrainingAndOfEvaluation) {
  const double square = (1 + 4 + 9 + 16 + 25) / 5.0;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    SCOPED_TRACE(str(dtype));
    EXPECT_NEAR(scale(dtype).evaluate(one_to_five(dtype)).at("loss"), 4 * square, 1e-4) << "alone";
    auto both = scale(dtype, losses::MeanAbsoluteError());
    EXPECT_NEAR(both.evaluate(one_to_five(dtype)).at("loss"), 4 * square + 2 * 3, 1e-4);
    EXPECT_NEAR(both.predict(Tensor::full(dtype, {1, 1}, 3)).item(), 6, 1e-6);
  }
  // d/dw of the mean of (w x)^2 is 2 w times that of x^2: 14 / 3 and then 41 / 2.
  auto model = scale();
  model.fit(one_to_five(), {.verbose = kSilent});
  const double w = 2 - 0.01 * 2 * 2 * 14 / 3.0;
  EXPECT_NEAR(model.variables()[0]->value().item(), w - 0.01 * 2 * w * 41 / 2, 1e-5);
}

// Batches of 3 and 2 rows: shares are uneven on 2 replicas, and on 4 some have no rows.
TEST(AddedLosses, CountByTheRowsOfReplicas) {
  const auto train = [] {
    auto model = scale(DType::kFloat32, losses::MeanAbsoluteError());
    const double loss = model.evaluate(one_to_five()).at("loss");
    const History history = model.fit(one_to_five(), {.epochs = 3, .verbose = kSilent});
    return std::vector<double>{loss, history["loss"][2], model.variables()[0]->value().item()};
  };
  const std::vector<double> alone = train();
  set_logical_cpus(4, 1);
  for (const int replicas : {2, 4}) {
    SCOPED_TRACE(str(replicas, " replicas"));
    const auto strategy = testing::make_strategy({replicas});
    const auto scope = strategy->scope();
    EXPECT_THAT(train(), ::testing::Pointwise(::testing::DoubleNear(1e-4), alone));
  }
  set_logical_cpus(1);
}

TEST(AddedLosses, MayBeCollectedByALoopOfOnesOwn) {
  const auto network = nn::Sequential({penalised(mean_square), penalised(mean_square)});
  const auto losses_of = function([&](Value x) {
    const nn::AddedLosses outer;
    std::vector<Value> found;
    {
      const nn::AddedLosses added;
      network(x);
      found = added.values();
    }
    EXPECT_TRUE(outer.values().empty()) << "they are of the innermost";
    return found;
  });
  const auto found = losses_of({Tensor::from<float>({1, 3}, {2, 1})});
  ASSERT_EQ(found.size(), 2u) << "what is only drawn or built adds nothing";
  EXPECT_EQ(found[0].item(), 5);
  const auto passed_over = function([&](Value x) { return network(x); });
  EXPECT_EQ(passed_over({Tensor::from<float>({3}, {1, 1})})[0].item(), 3);
}

TEST(AddedLosses, AreAddedInTheWiderDtype) {
  const auto mean_of_16_bits = [](const Value& x) {
    return ops::cast(ops::reduce_mean(x), DType::kFloat16);
  };
  auto model = nn::Sequential(
      {nn::Dense(1, {.use_bias = false}), penalised(mean_of_16_bits), penalised(mean_square)});
  model.build({{DType::kFloat32, {1, 1}}});
  model.variables()[0]->assign(Tensor::full(DType::kFloat32, {1, 1}, 300));
  model.compile({.optimizer = optim::SGD(0.01)});
  const auto rows = data::from_tensor_slices({{"x", Tensor::full(DType::kFloat32, {4, 1}, 1)}});
  EXPECT_NEAR(model.evaluate(rows.batch(4)).at("loss"), 300 + 300 * 300, 1e-2)
      << "which is beyond the largest number of 16 bits";
}

TEST(AddedLosses, AreFloatingScalars) {
  const auto said_of = [](std::function<Value(const Value&)> penalty) {
    return error_of([&] {
      nn::Sequential({penalised(std::move(penalty))})
          .predict(Tensor::zeros(DType::kFloat32, {2, 1}));
    });
  };
  EXPECT_THAT(said_of([](const Value& x) { return x; }),
              HasSubstr("(Penalised) of float32[2,1]: add_loss takes a floating scalar, got "
                        "float32[2,1]"));
  EXPECT_THAT(said_of([](const Value&) { return Value(); }), HasSubstr("got none"));
  EXPECT_THAT(said_of([](const Value&) { return ops::constant(1, DType::kInt32); }),
              HasSubstr("got int32[]"));
}

TEST(AddedLosses, AreTheOnlyOnesOfAModelThatIsCompiledWithNone) {
  auto model = nn::Sequential({nn::Dense(1)});
  model.compile({.optimizer = optim::SGD(0.1)});
  EXPECT_THAT(error_of([&] { model.fit(one_to_five(), {.verbose = kSilent}); }),
              HasSubstr("there is no loss: compile() was given none, and no layer adds one"));
  // An input alone is enough where a layer adds one.
  auto unlabelled = scale();
  const auto rows = data::from_tensor_slices({{"x", Tensor::full(DType::kFloat32, {4, 1}, 1)}});
  EXPECT_NEAR(unlabelled.fit(rows.batch(4), {.verbose = kSilent})["loss"].front(), 4, 1e-6);
}

}  // namespace
}  // namespace cohort
