#include "core/nn/metrics.h"

#include <cmath>

#include "core/ops/math_ops.h"
#include "tests/distribute/testing.h"
#include "tests/nn/testing.h"

namespace cohort::metrics {
namespace {

using testing::error_of;
using testing::kSeed;

// The metric over batches of these rows, of which each is [y_true, y_pred(, weights)].
double evaluate(const Metric& metric, const std::vector<std::vector<Tensor>>& batches) {
  const Function f([&](const std::vector<Value>& in) {
    return metric.increments(in[0], in[1], in.size() > 2 ? in[2] : Value());
  });
  State state;
  for (const auto& batch : batches) accumulate(state, f(batch));
  return metric.result(state);
}

const Tensor kScores =
    Tensor::from<float>({0.1f, 0.7f, 0.2f, 0.5f, 0.3f, 0.2f, 0, 0.4f, 0.6f}, {3, 3});
const Tensor kLabels = Tensor::from<int32_t>({1, 1, 2}, {3});

TEST(AccuracyTest, CountsTheRightClasses) {
  EXPECT_NEAR(evaluate(SparseCategoricalAccuracy(), {{kLabels, kScores}}), 2.0 / 3, 1e-6);
  const Tensor one_hot = Tensor::from<float>({0, 1, 0, 0, 1, 0, 0, 0, 1}, {3, 3});
  EXPECT_NEAR(evaluate(CategoricalAccuracy(), {{one_hot, kScores}}), 2.0 / 3, 1e-6);
  EXPECT_NEAR(evaluate(SparseTopKCategoricalAccuracy(2), {{kLabels, kScores}}), 1, 1e-6);
  EXPECT_NEAR(evaluate(SparseTopKCategoricalAccuracy(9), {{kLabels, kScores}}), 1, 1e-6);
}

TEST(AccuracyTest, OfDistributionsCountsLabelsAmongTheHighest) {
  const Tensor one_hot = Tensor::from<float>({0, 0, 1, 0, 0, 1, 1, 0, 0}, {3, 3});
  EXPECT_NEAR(evaluate(TopKCategoricalAccuracy(1), {{one_hot, kScores}}), 0, 1e-6);
  EXPECT_NEAR(evaluate(TopKCategoricalAccuracy(2), {{one_hot, kScores}}), 1.0 / 3, 1e-6);
  EXPECT_NEAR(evaluate(TopKCategoricalAccuracy(), {{one_hot, kScores}}), 1, 1e-6);
  EXPECT_EQ(error_of([] { TopKCategoricalAccuracy(0); }),
            "TopKCategoricalAccuracy: k must be at least 1, got 0");
}

TEST(AccuracyTest, PassesOverAClassToIgnore) {
  const Tensor labels = Tensor::from<int64_t>({1, -100, 2, 0}, {2, 2});
  Tensor scores = Tensor::zeros(DType::kFloat32, {2, 2, 3});
  for (const int64_t hit : {1, 3 + 1, 6 + 2, 9 + 1}) scores.data<float>()[hit] = 1;
  const Metric accuracy = SparseCategoricalAccuracy("accuracy", -100);
  EXPECT_NEAR(evaluate(accuracy, {{labels, scores}}), 2.0 / 3, 1e-6);
  EXPECT_NEAR(evaluate(accuracy, {{labels, scores, Tensor::from<float>({1, 3}, {2})}}), 4.0 / 7,
              1e-6);
  const Tensor none = Tensor::full(DType::kInt32, {3}, 0);
  EXPECT_EQ(evaluate(SparseCategoricalAccuracy("accuracy", 0), {{none, kScores}}), 0);
}

TEST(AccuracyTest, WeighsRows) {
  const Tensor weights = Tensor::from<float>({1, 2, 0}, {3});
  EXPECT_NEAR(evaluate(SparseCategoricalAccuracy(), {{kLabels, kScores, weights}}), 1.0 / 3, 1e-6);
}

TEST(AccuracyTest, OfBatchesOfAnySizeIsThatOfAllRows) {
  const auto part = [](int64_t begin, int64_t end) {
    return std::vector<Tensor>{kLabels.slice_rows(begin, end), kScores.slice_rows(begin, end)};
  };
  EXPECT_NEAR(evaluate(SparseCategoricalAccuracy(), {part(0, 2), part(2, 2), part(2, 3)}), 2.0 / 3,
              1e-6);
}

class MetricReplicasTest : public testing::ReplicasTest {};
COHORT_FOR_ALL_REPLICAS(MetricReplicasTest);

TEST_P(MetricReplicasTest, OfWhatReplicasHaveComputedIsThatOfAllRows) {
  const Metric metric = SparseCategoricalAccuracy();
  const auto step = strategy.function([&](Value y, Value x) { return metric.increments(y, x); });
  const auto parts_of = [&](const Tensor& rows) {
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (const int64_t size : split_rows(rows.shape()[0], replicas())) {
      parts.push_back(rows.slice_rows(begin, begin + size));
      begin += size;
    }
    return PerReplica<Tensor>(parts);
  };
  State state;
  for (int batch = 0; batch < 2; ++batch)
    accumulate(state, strategy, strategy.run(step, parts_of(kLabels), parts_of(kScores)));
  EXPECT_EQ(state.back(), 6);
  EXPECT_NEAR(metric.result(state), 2.0 / 3, 1e-6);
}

TEST(AccuracyTest, OfSequencesCountsEveryStep) {
  const Tensor labels = Tensor::from<int64_t>({1, 1, 2, 0}, {2, 2});
  Tensor scores = Tensor::zeros(DType::kFloat32, {2, 2, 3});
  for (const int64_t hit : {1, 3 + 1, 6 + 2, 9 + 1}) scores.data<float>()[hit] = 1;
  EXPECT_NEAR(evaluate(SparseCategoricalAccuracy(), {{labels, scores}}), 0.75, 1e-6);
}

TEST(AccuracyTest, WeighsSequencesOrTheirSteps) {
  const Tensor labels = Tensor::from<int64_t>({1, 1, 2, 0}, {2, 2});
  Tensor scores = Tensor::zeros(DType::kFloat32, {2, 2, 3});
  for (const int64_t hit : {1, 3 + 1, 6 + 2, 9 + 1}) scores.data<float>()[hit] = 1;
  const Tensor of_rows = Tensor::from<float>({1, 3}, {2}),
               of_steps = Tensor::from<float>({1, 0, 3, 4}, {2, 2});
  EXPECT_NEAR(evaluate(SparseCategoricalAccuracy(), {{labels, scores, of_rows}}), 2.5 / 4, 1e-6);
  EXPECT_NEAR(evaluate(SparseCategoricalAccuracy(), {{labels, scores, of_steps}}), 4.0 / 8, 1e-6);
}

TEST(AccuracyTest, RefusesWeightsOfOtherShapes) {
  const std::string message = error_of([] {
    const Tensor two_each = Tensor::zeros(DType::kFloat32, {3, 2});
    evaluate(SparseCategoricalAccuracy(), {{kLabels, kScores, two_each}});
  });
  EXPECT_NE(message.find("a sample_weight of shape [3,2] does not fit values of shape [3]; "
                         "expected one a row, [3]"),
            std::string::npos)
      << message;
}

TEST(ErrorMetricsTest, GiveTheWeightOfAStepToAllItsElements) {
  const Tensor y = Tensor::zeros(DType::kFloat32, {1, 2, 2}),
               p = Tensor::from<float>({1, 3, 2, 0}, {1, 2, 2}),
               weights = Tensor::from<float>({1, 3}, {1, 2});
  EXPECT_NEAR(evaluate(MeanSquaredError(), {{y, p, weights}}), (5 + 3 * 2) / 4.0, 1e-6);
}

TEST(ErrorMetricsTest, AverageOverAllElements) {
  const Tensor y = Tensor::from<float>({1, 2, 3, 4}, {2, 2}),
               p = Tensor::from<float>({2, 2, 3, 1}, {2, 2});
  EXPECT_NEAR(evaluate(MeanSquaredError(), {{y, p}}), 2.5, 1e-6);
  EXPECT_NEAR(evaluate(MeanAbsoluteError(), {{y, p}}), 1, 1e-6);
}

TEST(MeanTest, RefusesAFunctionThatDoesNotGiveOneValueARow) {
  const Tensor y = Tensor::zeros(DType::kFloat32, {4, 2});
  const auto mean_over = [&](std::vector<int64_t> axes) {
    return error_of([&] {
      evaluate(Mean("own",
                    [=](const Value& a, const Value& b) { return ops::reduce_mean(a - b, axes); }),
               {{y, y}});
    });
  };
  EXPECT_EQ(mean_over({1}), "no error");
  EXPECT_NE(mean_over({}).find("its function returned float32[], not one value a row"),
            std::string::npos);
  EXPECT_NE(mean_over({0}).find("float32[2], not one value a row"), std::string::npos);
}

TEST(ErrorMetricsTest, OfSixteenBitsAreComputedInFloat32) {
  const Tensor y = Tensor::from<float>({0, 0}, {1, 2}), p = Tensor::from<float>({1, 300}, {1, 2});
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const std::vector<Tensor> batch = {y.cast(dtype), p.cast(dtype)};
    EXPECT_NEAR(evaluate(MeanSquaredError(), {batch}), 45000.5, 1e-2);
    EXPECT_NEAR(evaluate(MeanAbsoluteError(), {batch}), 150.5, 1e-6);
  }
}

struct Counts {
  double tp = 0, fp = 0, tn = 0, fn = 0;
};

Counts count(const std::vector<double>& y, const std::vector<double>& p,
             const std::vector<double>& w, double at) {
  Counts c;
  for (size_t i = 0; i < y.size(); ++i)
    (p[i] > at ? (y[i] > 0 ? c.tp : c.fp) : (y[i] > 0 ? c.fn : c.tn)) += w[i];
  return c;
}

TEST(BinaryMetricsTest, WeighSteps) {
  const Tensor y = Tensor::from<float>({1, 1, 0, 1}, {2, 2}),
               p = Tensor::from<float>({0.9f, 0.8f, 0.7f, 0.1f}, {2, 2}),
               weights = Tensor::from<float>({2, 0, 1, 6}, {2, 2});
  EXPECT_NEAR(evaluate(Precision(), {{y, p, weights}}), 2.0 / 3, 1e-6);
  EXPECT_NEAR(evaluate(Recall(), {{y, p, weights}}), 2.0 / 8, 1e-6);
}

TEST(BinaryMetricsTest, AgreeWithCountingByHand) {
  const int64_t rows = 60;
  RandomStream random(kSeed);
  Tensor y(DType::kInt32, {rows}), p(DType::kFloat32, {rows, 1}), w(DType::kFloat32, {rows});
  for (int64_t i = 0; i < rows; ++i) {
    y.data<int32_t>()[i] = random.uniform() < 0.4;
    p.data<float>()[i] = static_cast<float>((random.uniform() + 0.4 * y.data<int32_t>()[i]) / 1.4);
    w.data<float>()[i] = static_cast<float>(random.uniform());
  }
  const auto ys = testing::to_vector(y), ps = testing::to_vector(p), ws = testing::to_vector(w);
  const Counts c = count(ys, ps, ws, 0.5);
  EXPECT_NEAR(evaluate(Precision(), {{y, p, w}}), c.tp / (c.tp + c.fp), 1e-5) << "seed " << kSeed;
  EXPECT_NEAR(evaluate(Recall(), {{y, p, w}}), c.tp / (c.tp + c.fn), 1e-5) << "seed " << kSeed;
  EXPECT_NEAR(evaluate(BinaryAccuracy(), {{y, p, w}}), (c.tp + c.tn) / (c.tp + c.tn + c.fp + c.fn),
              1e-5);

  double area = 0;
  for (int i = 0; i < 199; ++i) {
    const Counts low = count(ys, ps, ws, i == 0 ? -1 : i / 199.0);
    const Counts high = count(ys, ps, ws, i == 198 ? 2 : (i + 1) / 199.0);
    area += (low.fp - high.fp) / (low.fp + low.tn) * (low.tp + high.tp) / 2 / (low.tp + low.fn);
  }
  EXPECT_NEAR(evaluate(AUC(), {{y, p, w}}), area, 1e-4) << "seed " << kSeed;
}

// Two thresholds tell nothing apart, three who is on which side of the middle.
TEST(BinaryMetricsTest, OfAnAreaTakesItsThresholdsAndLogits) {
  const Tensor y = Tensor::from<int32_t>({0, 0, 1, 1}, {4}),
               p = Tensor::from<float>({0.1f, 0.6f, 0.3f, 0.9f}, {4}),
               logits = Tensor::from<float>({-9, 1, -1, 9}, {4});
  EXPECT_NEAR(evaluate(AUC({.num_thresholds = 2}), {{y, p}}), 0.5, 1e-6);
  EXPECT_NEAR(evaluate(AUC({.num_thresholds = 3}), {{y, p}}), 0.5, 1e-6);
  EXPECT_NEAR(evaluate(AUC(), {{y, p}}), 0.75, 1e-6);
  EXPECT_NEAR(evaluate(AUC({.from_logits = true}), {{y, logits}}), 0.75, 1e-6);
}

// Of thresholds below 0, at 1/2 and above 1: 2 of 4, 1 of 2 and none are true positives.
TEST(BinaryMetricsTest, OfAnAreaUnderPrecisionAndRecallInterpolateAsKeras) {
  const Tensor y = Tensor::from<int32_t>({0, 0, 1, 1}, {4}),
               p = Tensor::from<float>({0.1f, 0.6f, 0.3f, 0.9f}, {4});
  const auto area = [&](int64_t thresholds) {
    return evaluate(AUC({.num_thresholds = thresholds, .curve = Curve::kPR}), {{y, p}});
  };
  // From (4 found, 2 right) to (2, 1): slope 1/2, intercept 0; and to (0, 0) the same.
  EXPECT_NEAR(area(3), (0.5 * 1 + 0.5 * 1) / 2, 1e-6);
  // In steps of one: (4, 2), (3, 2), (2, 1), (1, 1), (0, 0).
  EXPECT_NEAR(area(200), (0 + 1 * (1 + (1 - 2) * std::log(3 / 2.0)) + 0 + 1 * 1) / 2, 1e-6);
  const Tensor none = Tensor::zeros(DType::kInt32, {4});
  EXPECT_EQ(evaluate(AUC({.curve = Curve::kPR}), {{none, p}}), 0);
}

TEST(BinaryMetricsTest, CountOneClassOrTheHighestAlone) {
  const Tensor y = Tensor::from<int32_t>({0, 1, 0, 0, 0, 1, 0, 1, 0}, {3, 3});
  // Class 1 is that of rows 0 and 2. It is above 0.5 in row 0, the highest in rows 0 and 1.
  const Tensor p =
      Tensor::from<float>({0.1f, 0.7f, 0.2f, 0.3f, 0.45f, 0.25f, 0, 0.4f, 0.6f}, {3, 3});
  EXPECT_NEAR(evaluate(Precision({.class_id = 1}), {{y, p}}), 1, 1e-6);
  EXPECT_NEAR(evaluate(Recall({.class_id = 1}), {{y, p}}), 0.5, 1e-6);
  EXPECT_NEAR(evaluate(Precision({.class_id = 1, .top_k = 1}), {{y, p}}), 0.5, 1e-6);
  EXPECT_NEAR(evaluate(Recall({.class_id = 1, .top_k = 1}), {{y, p}}), 0.5, 1e-6);
  EXPECT_NEAR(evaluate(Recall({.class_id = 1, .top_k = 2}), {{y, p}}), 1, 1e-6);
  EXPECT_NEAR(evaluate(Precision({.top_k = 1}), {{y, p}}), 1.0 / 3, 1e-6);
  EXPECT_NEAR(evaluate(Precision({.top_k = 1, .threshold = 0.65}), {{y, p}}), 1, 1e-6);
  EXPECT_NEAR(evaluate(Precision({.top_k = 1}), {{y, p, Tensor::from<float>({2, 1, 1}, {3})}}), 0.5,
              1e-6);
  EXPECT_EQ(error_of([] { Recall({.top_k = 0}); }), "Recall: top_k must be at least 1, got 0");
  EXPECT_EQ(error_of([] { Precision({.class_id = -1}); }),
            "Precision: class_id must not be negative, got -1");
  EXPECT_NE(error_of([&] {
              evaluate(Precision({.class_id = 3}), {{y, p}});
            }).find("there is no class 3 among 3"),
            std::string::npos);
}

// Labels 0, 0, 1, 1 with predictions 0, 1, 1, 2: of class 0 one of 2, of class 1 one of 3, of class
// 2 none of 1.
TEST(MeanIoUTest, IsTheMeanOverClassesThatOccur) {
  const Tensor labels = Tensor::from<int32_t>({0, 0, 1, 1}, {2, 2}),
               predicted = Tensor::from<int32_t>({0, 1, 1, 2}, {2, 2});
  Tensor scores = Tensor::zeros(DType::kFloat32, {2, 2, 4});
  for (int64_t i = 0; i < 4; ++i) scores.data<float>()[4 * i + predicted.data<int32_t>()[i]] = 1;
  const double expected = (1.0 / 2 + 1.0 / 3 + 0) / 3;
  EXPECT_NEAR(evaluate(MeanIoU(4), {{labels, scores}}), expected, 1e-9);
  EXPECT_NEAR(evaluate(MeanIoU(4, {.sparse_y_pred = true}), {{labels, predicted}}), expected, 1e-9);
  EXPECT_NEAR(evaluate(MeanIoU(4), {{labels.slice_rows(0, 1), scores.slice_rows(0, 1)},
                                    {labels.slice_rows(1, 2), scores.slice_rows(1, 2)}}),
              expected, 1e-9);
  EXPECT_NEAR(evaluate(MeanIoU(4), {{labels, scores, Tensor::from<float>({1, 0}, {2})}}),
              (1.0 / 2 + 0) / 2, 1e-9);
  EXPECT_NEAR(evaluate(MeanIoU(4), {{labels, scores, Tensor::from<float>({1, 3, 1, 0}, {2, 2})}}),
              (1.0 / 4 + 1.0 / 4) / 2, 1e-6);
  const Tensor with_border = Tensor::from<uint8_t>({0, 255, 1, 1}, {2, 2});
  EXPECT_NEAR(evaluate(MeanIoU(4, {.ignore_class = 255}), {{with_border, scores}}),
              (1.0 + 1.0 / 2 + 0) / 3, 1e-9);
  EXPECT_EQ(MeanIoU(2).result(State(4)), 0);
}

TEST(MeanIoUTest, RefusesWhatIsNoClass) {
  const Tensor scores = Tensor::zeros(DType::kFloat32, {2, 3});
  for (const int32_t wrong : {-1, 3})
    EXPECT_EQ(error_of(
                  [&] {
                    evaluate(MeanIoU(3), {{Tensor::from<int32_t>({0, wrong}, {2}), scores}});
                  },
                  Code::kOutOfRange),
              "mean_io_u/Require: a label or a prediction is no class: there are 3");
  EXPECT_NE(error_of([&] {
              evaluate(MeanIoU(4), {{Tensor::from<int32_t>({0, 1}, {2}), scores}});
            }).find("y_pred has 3 classes, not 4"),
            std::string::npos);
  EXPECT_EQ(error_of([] { MeanIoU(0); }), "MeanIoU: num_classes must be at least 1, got 0");
}

// Keras takes labels for bools.
TEST(BinaryMetricsTest, CountLabelsThatAreNotZeroAsOne) {
  const Tensor y = Tensor::from<int32_t>({0, 255}, {2}), p = Tensor::from<float>({.9f, .9f}, {2});
  EXPECT_EQ(evaluate(Precision(), {{y, p}}), 0.5);
  EXPECT_EQ(evaluate(Recall(), {{y, p}}), 1);
  EXPECT_EQ(evaluate(AUC(), {{y, p}}), 0.5);
}

// Most would be on one side of every threshold.
TEST(BinaryMetricsTest, RefuseWhatIsNoProbability) {
  const Tensor y = Tensor::from<int32_t>({0, 1}, {2});
  const auto refused = [&](const Metric& metric, const std::string& advice) {
    for (const float wrong : {-1.f, 1.5f})
      EXPECT_EQ(error_of(
                    [&] {
                      evaluate(metric, {{y, Tensor::from<float>({0.5f, wrong}, {2})}});
                    },
                    Code::kOutOfRange),
                metric.name() + "/Require: a prediction is not in [0, 1]; logits need " + advice);
    EXPECT_EQ(evaluate(metric, {{y, Tensor::from<float>({0, 1}, {2})}}), 1);
  };
  refused(AUC(), "from_logits");
  refused(Precision(), "a threshold of 0");
  refused(Recall(), "a threshold of 0");
}

TEST(BinaryMetricsTest, TakeLogitsWithAThresholdOfZero) {
  const Tensor y = Tensor::from<int32_t>({0, 1, 1}, {3}),
               logits = Tensor::from<float>({2, 9, -1.5f}, {3});
  EXPECT_EQ(evaluate(Precision(0), {{y, logits}}), 0.5);
  EXPECT_EQ(evaluate(Recall(0), {{y, logits}}), 0.5);
}

TEST(BinaryMetricsTest, RefuseThresholdsThatAreNoProbabilities) {
  EXPECT_EQ(error_of([] { Precision(1.5); }),
            "Precision: the threshold must be in [0, 1], got 1.5");
  EXPECT_EQ(error_of([] { Recall(-1); }), "Recall: the threshold must be in [0, 1], got -1");
  EXPECT_EQ(error_of([] { BinaryAccuracy(2); }),
            "BinaryAccuracy: the threshold must be in [0, 1], got 2");
  EXPECT_EQ(error_of([] { Precision(std::nan("")); }),
            "Precision: the threshold must be in [0, 1], got nan");
}

TEST(BinaryMetricsTest, AreZeroWithoutAnythingToCount) {
  const Tensor none = Tensor::zeros(DType::kFloat32, {2});
  EXPECT_EQ(evaluate(Precision(), {{none, none}}), 0);
  EXPECT_EQ(evaluate(Recall(), {{none, none}}), 0);
  EXPECT_EQ(Recall().result({}), 0);
}

// As they may be after a restart with another metric.
TEST(MetricTest, RefusesSumsThatAreNotItsOwn) {
  for (const Metric& metric : {Precision(), Recall(), MeanSquaredError(), AUC()})
    EXPECT_EQ(
        error_of([&] { metric.result(State(1)); }, Code::kFailedPrecondition),
        str("a metric has 1 sums so far, and a batch adds to ", metric.name() == "auc" ? 400 : 2,
            ": they are not of the same metric with the same options"));
}

TEST(MetricTest, NeedsItsFunctions) {
  const std::string of = "metric mine of y_true int32[3] and y_pred float32[3,3]: ";
  const auto none = [](const Value&, const Value&, const Value&) { return std::vector<Value>(); };
  const auto zero = [](const State&) { return 0.0; };
  const auto error_of_metric = [](const Metric& metric) {
    return error_of([&] { evaluate(metric, {{kLabels, kScores}}); });
  };
  EXPECT_EQ(error_of_metric(Metric("mine", {}, zero)), of + "its update is an empty function");
  EXPECT_EQ(error_of_metric(Metric("mine", none, {})), of + "its result is an empty function");
  EXPECT_EQ(error_of_metric(Metric("mine", none, zero)), of + "its update returned no increments");
  EXPECT_EQ(error_of([] { Mean("mine", {}); }), "metric mine: its function is empty");
}

TEST(MetricTest, NamesItselfAndTheSpecsInErrors) {
  EXPECT_EQ(
      error_of([] {
        evaluate(SparseCategoricalAccuracy(), {{kLabels.slice_rows(0, 2), kScores}});
      }),
      "metric sparse_categorical_accuracy of y_true int32[2] and y_pred float32[3,3]: "
      "class numbers of shape [2] do not fit predictions of shape [3,3]; they need shape [3]");
}

}  // namespace
}  // namespace cohort::metrics
