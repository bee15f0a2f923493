#include "core/nn/losses.h"

#include <cmath>
#include <optional>

#include "core/nn/activations.h"
#include "core/ops/math_ops.h"
#include "strategies/mirrored_strategy.h"
#include "tests/nn/testing.h"

namespace cohort::losses {
namespace {

using testing::error_of;
using testing::expect_near;

Value constant_or_none(const Tensor& weight) {
  return weight.defined() ? ops::constant(weight) : Value();
}

Tensor per_example(const Loss& loss, const Tensor& y_true, const Tensor& y_pred,
                   const Tensor& weight = {}) {
  const Function f([&](const std::vector<Value>& in) {
    return std::vector<Value>{loss.per_example(in[0], in[1], constant_or_none(weight))};
  });
  return f({y_true, y_pred})[0];
}

const Tensor kLogits = Tensor::from<float>({1, 2, 0.5, -1, 0, 3}, {2, 3});

// -log softmax(kLogits[row])[label]
double cross_entropy(size_t row, size_t label) {
  const auto x = testing::to_vector(kLogits);
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) sum += std::exp(x[3 * row + i]);
  return std::log(sum) - x[3 * row + label];
}

Tensor probabilities() { return testing::run(nn::Lambda(nn::softmax), {kLogits}); }

TEST(CrossentropyTest, TakesClassNumbersOfAnyTypeWithLogitsOrProbabilities) {
  const std::vector<double> expected = {cross_entropy(0, 1), cross_entropy(1, 2)};
  const Loss from_logits = SparseCategoricalCrossentropy({.from_logits = true});
  const Loss from_probabilities = SparseCategoricalCrossentropy();
  expect_near(per_example(from_logits, Tensor::from<int64_t>({1, 2}, {2}), kLogits), expected);
  expect_near(per_example(from_logits, Tensor::from<float>({1, 2}, {2, 1}), kLogits), expected);
  expect_near(per_example(from_probabilities, Tensor::from<uint8_t>({1, 2}, {2}), probabilities()),
              expected);
}

TEST(CrossentropyTest, RefusesALabelThatIsNoNumber) {
  const Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  EXPECT_EQ(error_of(
                [&] {
                  per_example(loss, Tensor::from<float>({1, std::nanf("")}, {2}), kLogits);
                },
                Code::kOutOfRange),
            "SparseCategoricalCrossentropy/SparseSoftmaxCrossEntropy: label -1 of row 1 is not a "
            "class: there are 3");
}

TEST(CrossentropyTest, IsExactThroughASoftmaxThatItCanSee) {
  const Loss loss = SparseCategoricalCrossentropy();
  const Function f([&](const std::vector<Value>& in) {
    return std::vector<Value>{loss.per_example(in[0], nn::softmax(in[1]))};
  });
  expect_near(f({Tensor::from<int32_t>({0}, {1}), Tensor::from<float>({0, 60}, {1, 2})})[0], {60});
}

TEST(CrossentropyTest, TakesDistributionsAndSmoothsThem) {
  const Tensor one_hot = Tensor::from<float>({0, 1, 0, 0, 0, 1}, {2, 3});
  expect_near(per_example(CategoricalCrossentropy(), one_hot, probabilities()),
              {cross_entropy(0, 1), cross_entropy(1, 2)});
  const auto smoothed = [](size_t row, size_t label) {
    double mean = 0;
    for (size_t i = 0; i < 3; ++i) mean += cross_entropy(row, i) / 3;
    return 0.9 * cross_entropy(row, label) + 0.1 * mean;
  };
  expect_near(per_example(CategoricalCrossentropy({.from_logits = true, .label_smoothing = 0.1}),
                          one_hot, kLogits),
              {smoothed(0, 1), smoothed(1, 2)});
}

// As the same smoothing of the labels' distributions, and nothing of labels that do not count.
TEST(CrossentropyTest, ClassNumbersMayBeSmoothed) {
  const Tensor one_hot = Tensor::from<float>({0, 1, 0, 0, 0, 1}, {2, 3}),
               labels = Tensor::from<int64_t>({1, 2}, {2});
  for (const bool from_logits : {true, false}) {
    const Tensor predictions = from_logits ? kLogits : probabilities();
    const Tensor expected =
        per_example(CategoricalCrossentropy({.from_logits = from_logits, .label_smoothing = 0.1}),
                    one_hot, predictions);
    SparseClassificationOptions options{.from_logits = from_logits, .label_smoothing = 0.1};
    expect_near(per_example(SparseCategoricalCrossentropy(options), labels, predictions),
                testing::to_vector(expected));
    options.ignore_class = 1;
    expect_near(per_example(SparseCategoricalCrossentropy(options), labels, predictions),
                {0, testing::to_vector(expected)[1]});
  }
}

TEST(CrossentropyTest, DividesAPredictedDistributionByItsSum) {
  const Loss loss = CategoricalCrossentropy();
  const Function f([&](const std::vector<Value>& in) {
    const Value value = ops::reduce_sum(loss.per_example(in[0], in[1]));
    return std::vector<Value>{value, gradients(value, {in[1]})[0].values};
  });
  const auto out =
      f({Tensor::from<float>({0, 1, 0}, {1, 3}), Tensor::from<float>({2, 6, 2}, {1, 3})});
  expect_near(out[0], {-std::log(0.6)});
  expect_near(out[1], {0.1, 0.1 - 1 / 6.0, 0.1});
}

TEST(CrossentropyTest, OfBinaryTargetsIsTheMeanOverTheLastAxis) {
  const Tensor y = Tensor::from<float>({1, 0}, {1, 2}),
               p = Tensor::from<float>({0.8f, 0.3f}, {1, 2});
  const double expected = -(std::log(0.8) + std::log(0.7)) / 2;
  expect_near(per_example(BinaryCrossentropy(), y, p), {expected});
  const auto logit = [](double q) { return static_cast<float>(std::log(q / (1 - q))); };
  const Tensor logits = Tensor::from<float>({logit(0.8), logit(0.3)}, {1, 2});
  expect_near(per_example(BinaryCrossentropy({.from_logits = true}), y, logits), {expected});
}

TEST(LossTest, AveragesOverTheInnerAxesOrSums) {
  const Tensor y = Tensor::from<int32_t>({1, 2}, {1, 2});
  const Tensor logits = kLogits.reshape({1, 2, 3});
  const double sum = cross_entropy(0, 1) + cross_entropy(1, 2);
  expect_near(per_example(SparseCategoricalCrossentropy({.from_logits = true}), y, logits),
              {sum / 2});
  expect_near(per_example(SparseCategoricalCrossentropy(
                              {.from_logits = true, .reduction = Reduction::kSum}),
                          y, logits),
              {sum});
}

Tensor divisor(const Loss& loss, const Tensor& y_true, const Tensor& y_pred,
               const Tensor& weight = {}) {
  const Function f([&](const std::vector<Value>& in) {
    return std::vector<Value>{loss.divisor(in[0], in[1], constant_or_none(weight))};
  });
  return f({y_true, y_pred})[0];
}

TEST(LossTest, IsDividedByTheWeightsWhereThatIsAsked) {
  const Loss loss = MeanAbsoluteError({.reduction = Reduction::kMeanWithSampleWeight});
  const Tensor y = Tensor::zeros(DType::kFloat32, {2, 2, 1}),
               p = Tensor::from<float>({1, 2, 3, 4}, {2, 2, 1});
  const Tensor of_rows = Tensor::from<float>({3, 0.5}, {2}),
               of_steps = Tensor::from<float>({1, 0, 2, 5}, {2, 2});
  expect_near(per_example(loss, y, p, of_rows), {4.5, 1.75});
  expect_near(divisor(loss, y, p, of_rows), {3.5});
  // Of the mean of a row's steps, so that the quotient is that of the sums.
  expect_near(per_example(loss, y, p, of_steps), {0.5, (6 + 20) / 2.0});
  expect_near(divisor(loss, y, p, of_steps), {(1 + 0 + 2 + 5) / 2.0});
  EXPECT_FALSE(MeanAbsoluteError().divisor({}, {}).defined());
  EXPECT_FALSE(loss.divisor({}, {}).defined()) << "without weights";
}

TEST(CrossentropyTest, PassesOverAClassToIgnore) {
  const Tensor y = Tensor::from<int32_t>({1, -100}, {1, 2}), logits = kLogits.reshape({1, 2, 3}),
               weight = Tensor::from<float>({3, 5}, {1, 2});
  const auto loss_with = [](Reduction reduction) {
    return SparseCategoricalCrossentropy(
        {.from_logits = true, .ignore_class = -100, .reduction = reduction});
  };
  const Loss mean = loss_with(Reduction::kSumOverBatchSize),
             by_weight = loss_with(Reduction::kMeanWithSampleWeight);
  expect_near(per_example(mean, y, logits), {cross_entropy(0, 1) / 2});
  expect_near(divisor(mean, y, logits), {0.5});
  expect_near(per_example(mean, y, logits, weight), {3 * cross_entropy(0, 1) / 2});
  expect_near(divisor(mean, y, logits, weight), {0.5});
  expect_near(divisor(by_weight, y, logits, weight), {1.5});
  expect_near(per_example(loss_with(Reduction::kSum), y, logits), {cross_entropy(0, 1)});
  EXPECT_FALSE(loss_with(Reduction::kSum).divisor({}, {}).defined());
  // A class of the network's may be one, and what is ignored has no gradient.
  const Loss padded = SparseCategoricalCrossentropy({.from_logits = true, .ignore_class = 0});
  const Function f([&](const std::vector<Value>& in) {
    const Value sum = ops::reduce_sum(padded.per_example(in[0], in[1]));
    return std::vector<Value>{gradients(sum, {in[1]})[0].values};
  });
  const auto gradient = testing::to_vector(f({Tensor::from<int32_t>({0, 2}, {2}), kLogits})[0]);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(gradient[i], 0);
  EXPECT_NEAR(gradient[5], std::exp(-cross_entropy(1, 2)) - 1, 1e-6);
}

TEST(RegressionTest, FollowsKeras) {
  const Tensor y = Tensor::from<float>({1, 2, 3, 4}, {2, 2}),
               p = Tensor::from<float>({1.5, 4, 3, 3.5}, {2, 2});
  expect_near(per_example(MeanSquaredError(), y, p), {(0.25 + 4) / 2, 0.125});
  expect_near(per_example(MeanAbsoluteError(), y, p), {1.25, 0.25});
  expect_near(per_example(Huber(1), y, p), {(0.125 + 1.5) / 2, 0.0625});
}

TEST(RegressionTest, LeavesALastAxisOfOneOut) {
  const Tensor rows = Tensor::from<float>({1, 2}, {2}),
               column = Tensor::from<float>({2, 4}, {2, 1});
  expect_near(per_example(MeanSquaredError(), rows, column), {1, 4});
  expect_near(per_example(MeanSquaredError(), column, rows), {1, 4});
}

// Where 1e-7 and 1 - 1e-7 are no numbers of their own, and squares are soon infinite.
TEST(LossTest, OfSixteenBitsIsComputedInFloat32) {
  const Tensor y = Tensor::from<float>({1, 0}, {1, 2});
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const auto loss_of = [&](const Loss& loss, const Tensor& p) {
      return per_example(loss, y.cast(dtype), p.cast(dtype));
    };
    const Tensor right = loss_of(BinaryCrossentropy(), y);
    EXPECT_EQ(right.dtype(), DType::kFloat32);
    expect_near(right, {0}, 1e-6);
    const double wrong = -std::log(1e-7);
    expect_near(loss_of(BinaryCrossentropy(), Tensor::from<float>({0, 1}, {1, 2})), {wrong}, 0.1);
    expect_near(loss_of(CategoricalCrossentropy(), Tensor::from<float>({0, 1}, {1, 2})), {wrong},
                0.1);
    expect_near(loss_of(KLDivergence(), y), {0}, 1e-5);
    expect_near(loss_of(MeanSquaredError(), Tensor::from<float>({1, 300}, {1, 2})), {45000}, 100);
    expect_near(loss_of(Loss("own", [](const Value& a, const Value& b) { return a + b * 1e-3; }),
                        Tensor::from<float>({1, 0}, {1, 2})),
                {1.001 / 2}, 1e-6);
  }
}

TEST(LossTest, OfSixteenBitsIsExactThroughASigmoidOrSoftmaxThatItCanSee) {
  const auto loss_of = [](const Loss& loss, nn::Activation activation, const Tensor& y,
                          const Tensor& x) {
    const Function f([&](const std::vector<Value>& in) {
      return std::vector<Value>{loss.per_example(in[0], activation(in[1]))};
    });
    return f({y, x.cast(DType::kBFloat16)})[0];
  };
  const Tensor logits = Tensor::from<float>({0, 60}, {1, 2}),
               y = Tensor::from<float>({1, 0}, {1, 2});
  expect_near(loss_of(SparseCategoricalCrossentropy(), nn::softmax, Tensor::from<int32_t>({0}, {1}),
                      logits),
              {60});
  expect_near(loss_of(BinaryCrossentropy(), nn::sigmoid, y, logits), {(std::log(2) + 60) / 2});
}

TEST(KLDivergenceTest, ComparesDistributions) {
  const Tensor y = Tensor::from<float>({0.5, 0.5}, {1, 2}),
               p = Tensor::from<float>({0.25, 0.75}, {1, 2});
  expect_near(per_example(KLDivergence(), y, p), {0.5 * std::log(2) + 0.5 * std::log(0.5 / 0.75)});
}

// The average, and its gradient with respect to the losses.
std::vector<Tensor> average_of(const Tensor& losses, std::optional<int64_t> size = {},
                               const Tensor& weight = {}) {
  const Function f([&](const std::vector<Value>& in) {
    const Value average = compute_average_loss(
        in[0], {.sample_weight = constant_or_none(weight), .global_batch_size = size});
    return std::vector<Value>{average, gradients(average, {in[0]})[0].values};
  });
  return f({losses});
}

TEST(AverageLossTest, DividesTheWeightedSumByTheGlobalBatchSize) {
  const Tensor losses = Tensor::from<float>({1, 2, 3, 6}, {2, 2});
  expect_near(average_of(losses)[0], {6});
  expect_near(average_of(losses, 8)[0], {1.5});
  expect_near(average_of(losses, 8)[1], {0.125, 0.125, 0.125, 0.125});
  expect_near(average_of(losses, 2, Tensor::from<int32_t>({1, 0}, {2}))[0], {1.5});
  expect_near(average_of(losses, 2, Tensor::from<float>({1, 0, 0, 2}, {2, 2}))[0], {6.5});
  expect_near(average_of(losses, 2, Tensor::scalar(0.5f))[0], {3});
}

TEST(AverageLossTest, OfNothingIsZero) {
  const auto none = average_of(Tensor::zeros(DType::kFloat32, {0}));
  expect_near(none[0], {0});
  EXPECT_EQ(none[1].shape(), Shape{0});
  const auto infinite = average_of(Tensor::from<float>({INFINITY}, {1}), 0);
  expect_near(infinite[0], {0});
  expect_near(infinite[1], {0});
}

TEST(AverageLossTest, RefusesWhatDoesNotFit) {
  const Tensor losses = Tensor::from<float>({1, 2, 3, 6}, {2, 2});
  EXPECT_NE(error_of([&] { average_of(Tensor::scalar(1.0f)); }).find("one loss a row"),
            std::string::npos);
  EXPECT_NE(error_of([&] { average_of(losses, -1); }).find("got -1"), std::string::npos);
  EXPECT_NE(error_of([&] {
              average_of(losses, 2, Tensor::from<float>({1, 2, 3}, {3}));
            }).find("[3] does not fit values of shape [2,2]"),
            std::string::npos);
}

TEST(AverageLossTest, OfReplicasAddsUpToTheMeanOverAllRows) {
  set_logical_cpus(3, 1);
  {
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2"}});
    const auto step = strategy.function([](Value losses) { return compute_average_loss(losses); });
    const PerReplica<Tensor> shares = {Tensor::from<float>({1, 2}, {2}),
                                       Tensor::from<float>({6}, {1}),
                                       Tensor::zeros(DType::kFloat32, {0})};
    EXPECT_EQ(strategy.reduce("sum", strategy.run(step, shares)).item(), 3);
    const auto scope = strategy.scope();
    EXPECT_THROW(average_of(Tensor::from<float>({1}, {1})), Error) << "outside replicas";
    expect_near(average_of(Tensor::from<float>({1}, {1}), 4)[0], {0.25});
  }
  set_logical_cpus(1);
}

TEST(LossTest, WeighsRowsOrTheirTimeSteps) {
  const Loss mean = MeanAbsoluteError(), sum = MeanAbsoluteError({.reduction = Reduction::kSum});
  const Tensor y = Tensor::zeros(DType::kFloat32, {2, 3, 1}),
               p = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3, 1});
  const Tensor of_rows = Tensor::from<float>({2, 0.5}, {2}),
               of_steps = Tensor::from<float>({1, 0, 2, 0, 0, 1}, {2, 3});
  expect_near(per_example(mean, y, p, of_rows), {4, 2.5});
  expect_near(per_example(sum, y, p, of_rows), {12, 7.5});
  expect_near(per_example(mean, y, p, of_steps), {(1 + 6) / 3.0, 6 / 3.0});
  expect_near(per_example(sum, y, p, of_steps), {1 + 6, 6});
}

TEST(LossTest, GivesTheWeightOfATimeStepToAllItsParts) {
  const auto parts = [](const Value&, const Value& y_pred) { return y_pred; };
  const Tensor p = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {1, 2, 3}),
               weight = Tensor::from<float>({1, 2}, {1, 2});
  expect_near(per_example(Loss("Mean", parts), p, p, weight), {(6 + 2 * 15) / 6.0});
  expect_near(per_example(Loss("Sum", parts, Reduction::kSum), p, p, weight), {6 + 2 * 15});
}

TEST(LossTest, RefusesWeightsOfOtherShapes) {
  const Tensor x = Tensor::zeros(DType::kFloat32, {2, 3, 1});
  for (const Shape& shape : {Shape{3}, Shape{2, 2}, Shape{2, 3, 1}}) {
    const std::string message = error_of(
        [&] { per_example(MeanAbsoluteError(), x, x, Tensor::zeros(DType::kFloat32, shape)); });
    EXPECT_NE(
        message.find(str("a sample_weight of shape ", shape, " does not fit values of shape [2")),
        std::string::npos)
        << message;
    EXPECT_NE(message.find("expected one a row, [2]"), std::string::npos) << message;
  }
}

TEST(LossTest, NamesItselfAndBothSpecsInErrors) {
  const auto message = [](const Loss& loss, const Tensor& y, const Tensor& p) {
    return error_of([&] { per_example(loss, y, p); });
  };
  EXPECT_EQ(
      message(MeanSquaredError(), Tensor(DType::kFloat32, {2, 3}), Tensor(DType::kFloat32, {2, 4})),
      "loss MeanSquaredError of y_true float32[2,3] and y_pred float32[2,4]: "
      "y_true has shape [2,3], y_pred has shape [2,4]; they must be equal");
  EXPECT_EQ(
      message(SparseCategoricalCrossentropy(), Tensor(DType::kInt32, {3}),
              Tensor(DType::kFloat32, {2, 4})),
      "loss SparseCategoricalCrossentropy of y_true int32[3] and y_pred float32[2,4]: "
      "class numbers of shape [3] do not fit predictions of shape [2,4]; they need shape [2]");
  EXPECT_EQ(message(CategoricalCrossentropy(), Tensor(DType::kInt32, {2}),
                    Tensor(DType::kFloat32, {2, 4})),
            "loss CategoricalCrossentropy of y_true int32[2] and y_pred float32[2,4]: y_true has "
            "shape [2], y_pred has shape [2,4]; they must be equal (class numbers are for the "
            "losses and metrics named Sparse..)");
  EXPECT_EQ(message(SparseCategoricalCrossentropy(), Tensor(DType::kFloat32, {2, 4}),
                    Tensor(DType::kFloat32, {2, 4})),
            "loss SparseCategoricalCrossentropy of y_true float32[2,4] and y_pred float32[2,4]: "
            "class numbers of shape [2,4] do not fit predictions of shape [2,4]; they need shape "
            "[2] (distributions are for the losses and metrics without Sparse.. in their names)");
  EXPECT_EQ(
      message(Loss("mine", nullptr), Tensor(DType::kFloat32, {2}), Tensor(DType::kFloat32, {2})),
      "loss mine of y_true float32[2] and y_pred float32[2]: its function is empty");
  EXPECT_EQ(error_of([] { BinaryCrossentropy({.label_smoothing = 1}); }),
            "BinaryCrossentropy: label_smoothing must be in [0, 1), got 1");
  EXPECT_EQ(error_of([] { SparseCategoricalCrossentropy({.label_smoothing = -0.5}); }),
            "SparseCategoricalCrossentropy: label_smoothing must be in [0, 1), got -0.5");
}

}  // namespace
}  // namespace cohort::losses
