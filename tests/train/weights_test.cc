// What the weights of rows, and of their time steps, count for.
#include <cmath>
#include <functional>

#include <gmock/gmock.h>

#include "tests/distribute/testing.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::error_of;
using ::testing::HasSubstr;

constexpr auto kSilent = Verbose::kSilent;

// Predicts the class at which a row, or a time step of one, has its 1. Learns nothing by default.
Model fixed_model(const Shape& input = {1, 2}, double learning_rate = 0) {
  auto model = nn::Sequential({nn::Dense(2, {.use_bias = false})});
  model.build({{DType::kFloat32, input}});
  model.variables()[0]->assign(Tensor::from<float>({1, 0, 0, 1}, {2, 2}));
  model.compile({.optimizer = optim::SGD(learning_rate),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {metrics::SparseCategoricalAccuracy("accuracy")},
                 .weighted_metrics = {metrics::SparseCategoricalAccuracy("weighted")}});
  return model;
}

// Rows of weights from 0 to 3, some of which fixed_model() gets wrong.
struct WeightedRows {
  static constexpr int64_t kRows = 11;
  Tensor x = Tensor::zeros(DType::kFloat32, {kRows, 2});
  Tensor label = Tensor::zeros(DType::kInt32, {kRows});
  Tensor weight = Tensor::zeros(DType::kFloat32, {kRows});

  WeightedRows() {
    for (int64_t i = 0; i < kRows; ++i) {
      x.data<float>()[2 * i + i % 2] = 1;
      label.data<int32_t>()[i] = i % 3 == 0;
      weight.data<float>()[i] = static_cast<float>(i % 4);
    }
  }

  // The accuracy by weights and factors of the classes.
  double accuracy(bool by_weight, double class_0 = 1, double class_1 = 1) const {
    double right = 0, total = 0;
    for (int64_t i = 0; i < kRows; ++i) {
      const int32_t target = label.data<int32_t>()[i];
      const double counts = (by_weight ? static_cast<double>(weight.data<float>()[i]) : 1.0) *
                            (target == 1 ? class_1 : class_0);
      total += counts;
      if (target == i % 2) right += counts;
    }
    return right / total;
  }

  // Batches of 5 rows, and one of a single row.
  data::Dataset batches() const {
    return data::from_tensor_slices({{"x", x}, {"label", label}, {"weight", weight}}).batch(5);
  }
};

// Sequences of 0 to 3 steps, padded with steps of weight 0; some steps fixed_model() gets wrong.
struct Sequences {
  static constexpr int64_t kRows = 11, kSteps = 3;
  Tensor x = Tensor::zeros(DType::kFloat32, {kRows, kSteps, 2});
  Tensor label = Tensor::zeros(DType::kInt32, {kRows, kSteps});
  Tensor weight = Tensor::zeros(DType::kFloat32, {kRows, kSteps});

  Sequences() {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t step = 0; step < kSteps; ++step) {
        const int64_t i = row * kSteps + step;
        x.data<float>()[2 * i + i % 2] = 1;
        label.data<int32_t>()[i] = i % 5 < 2;
        if (step < row % 4) weight.data<float>()[i] = row % 2 == 0 ? 1 : 2;
      }
    }
  }

  Model model(double learning_rate = 0) const { return fixed_model({1, kSteps, 2}, learning_rate); }
  int32_t label_of(int64_t i) const { return label.data<int32_t>()[i]; }
  double weight_of(int64_t i) const { return static_cast<double>(weight.data<float>()[i]); }

  // Of softmax of 1 for the class i % 2 and 0 for the other; the mean of all steps, padding too.
  double loss() const {
    double sum = 0;
    for (int64_t i = 0; i < kRows * kSteps; ++i)
      sum += weight_of(i) * (std::log(1 + std::exp(1)) - (label_of(i) == i % 2 ? 1 : 0));
    return sum / (kRows * kSteps);
  }
  double accuracy(bool by_weight) const {
    double right = 0, total = 0;
    for (int64_t i = 0; i < kRows * kSteps; ++i) {
      const double counts = by_weight ? weight_of(i) : 1;
      total += counts;
      if (label_of(i) == i % 2) right += counts;
    }
    return right / total;
  }
  // Of the first rows, with respect to the element [from, to] of the kernel.
  double gradient(int64_t rows, int64_t from, int64_t to) const {
    const double sure = 1 / (1 + std::exp(-1));
    double sum = 0;
    for (int64_t i = 0; i < rows * kSteps; ++i) {
      const double probability = to == i % 2 ? sure : 1 - sure;
      if (from == i % 2) sum += weight_of(i) * (probability - (label_of(i) == to ? 1 : 0));
    }
    return sum / static_cast<double>(rows * kSteps);
  }

  data::Dataset batches() const {
    return data::from_tensor_slices({{"x", x}, {"label", label}, {"weight", weight}}).batch(5);
  }
};

void under_all_replicas(const std::function<void()>& body) {
  set_logical_cpus(cohort::testing::kMaxReplicas, 1);
  for (const auto& replicas : cohort::testing::all_replicas()) {
    SCOPED_TRACE(::testing::PrintToString(replicas));
    const auto strategy = cohort::testing::make_strategy(replicas);
    const auto scope = strategy->scope();
    body();
  }
  set_logical_cpus(1);
}

// With 4 replicas, the last batch leaves three without rows.
TEST(Weights, CountInWeightedMetricsAloneOnAnyNumberOfReplicas) {
  const WeightedRows rows;
  const double plain = rows.accuracy(false), weighted = rows.accuracy(true);
  ASSERT_NE(plain, weighted);
  under_all_replicas([&] {
    auto model = fixed_model();
    const History history =
        model.fit(rows.batches(), {.validation_data = rows.batches(), .verbose = kSilent});
    EXPECT_EQ(history["accuracy"], std::vector<double>{plain});
    EXPECT_EQ(history["weighted"], std::vector<double>{weighted});
    EXPECT_EQ(history["val_accuracy"], std::vector<double>{plain});
    EXPECT_EQ(history["val_weighted"], std::vector<double>{weighted});
    const Logs logs = model.evaluate(rows.batches());
    EXPECT_EQ(logs.at("accuracy"), plain);
    EXPECT_EQ(logs.at("weighted"), weighted);
  });
}

TEST(Weights, OfTimeStepsCountOnAnyNumberOfReplicas) {
  const Sequences rows;
  const double loss = rows.loss(), plain = rows.accuracy(false), weighted = rows.accuracy(true);
  ASSERT_NE(plain, weighted);
  under_all_replicas([&] {
    auto model = rows.model();
    const History history = model.fit(
        rows.batches(),
        {.validation_data = ValidationData(rows.x, rows.label, rows.weight), .verbose = kSilent});
    const Logs logs = model.evaluate(rows.batches());
    for (const auto& [name, expected] :
         Logs{{"loss", loss}, {"accuracy", plain}, {"weighted", weighted}}) {
      SCOPED_TRACE(name);
      EXPECT_NEAR(history[name].front(), expected, 1e-5);
      EXPECT_NEAR(history["val_" + name].front(), expected, 1e-5);
      EXPECT_NEAR(logs.at(name), expected, 1e-5);
    }
  });
}

// With 7 replicas, two have no rows.
TEST(Weights, OfTimeStepsCountInGradientsOnAnyNumberOfReplicas) {
  constexpr int64_t kRows = 5;
  const Sequences rows;
  under_all_replicas([&] {
    auto model = rows.model(1.0);
    model.fit(rows.batches().take(1), {.verbose = kSilent});
    const Tensor kernel = model.variables()[0]->value();
    for (const int64_t from : {0, 1}) {
      for (const int64_t to : {0, 1}) {
        EXPECT_NEAR(kernel.data<float>()[2 * from + to],
                    (from == to ? 1 : 0) - rows.gradient(kRows, from, to), 1e-5)
            << from << ", " << to;
      }
    }
  });
}

TEST(Weights, OfRowsAreThoseOfAllTheirTimeSteps) {
  const Sequences rows;
  Tensor of_rows = Tensor::zeros(DType::kFloat32, {Sequences::kRows}),
         of_steps = rows.weight.clone();
  for (int64_t i = 0; i < of_steps.num_elements(); ++i) {
    const auto weight = static_cast<float>(i / Sequences::kSteps % 4);
    of_rows.data<float>()[i / Sequences::kSteps] = weight;
    of_steps.data<float>()[i] = weight;
  }
  auto model = rows.model();
  const Logs expected = model.evaluate(rows.x, rows.label, {.sample_weight = of_steps});
  const Tensor column = of_rows.reshape({Sequences::kRows, 1});
  for (const Tensor& weight : {of_rows, column}) {
    const Logs logs = model.evaluate(rows.x, rows.label, {.sample_weight = weight});
    for (const auto& [name, value] : expected) EXPECT_NEAR(logs.at(name), value, 1e-5) << name;
  }
}

TEST(Weights, OfClassesMultiplyThoseOfRowsInTrainingAlone) {
  const WeightedRows rows;
  auto model = fixed_model();
  const double before = model.evaluate(rows.batches()).at("loss");
  const History history = model.fit(
      rows.batches(),
      {.validation_data = rows.batches(), .verbose = kSilent, .class_weight = {{0, 0.5}, {1, 4}}});
  EXPECT_EQ(history["accuracy"], std::vector<double>{rows.accuracy(false)});
  EXPECT_EQ(history["weighted"], std::vector<double>{rows.accuracy(true, 0.5, 4)});
  EXPECT_EQ(history["val_weighted"], std::vector<double>{rows.accuracy(true)});
  EXPECT_EQ(history["val_loss"], std::vector<double>{before});
  EXPECT_EQ(model.evaluate(rows.batches()).at("loss"), before);
}

// As numbers or as a value for each class, in any dtype, as Keras takes them.
TEST(Weights, OfClassesGoByLabelsOfAnyKind) {
  const Tensor x = Tensor::from<float>({1, 0, 0, 1, 1, 0, 0, 1}, {4, 2});
  const Tensor one_hot = Tensor::from<float>({1, 0, 0, 1, 0, 1, 1, 0}, {4, 2});
  const auto loss_with = [&](const Tensor& label, const losses::Loss& loss,
                             const ClassWeight& weight) {
    set_global_seed(1);
    const int64_t outputs = label.num_elements() / 4;
    auto model = nn::Sequential({nn::Dense(outputs, {.use_bias = false})});
    model.compile({.optimizer = optim::SGD(0.0), .loss = loss});
    return model
        .fit(
            x, label,
            {.verbose = kSilent, .class_weight = weight, .batch_size = 4, .shuffle = false})["loss"]
        .front();
  };
  const ClassWeight zero_and_one = {{0, 0.0}, {1, 1.0}}, one_and_zero = {{0, 1.0}, {1, 0.0}};
  for (const Tensor& label : {one_hot, Tensor::from<float>({0, 1, 1, 0}, {4}),
                              Tensor::from<float>({0, 0.9F, 1, 0}, {4, 1}),
                              Tensor::from<int32_t>({0, 1, 1, 0}, {4, 1})}) {
    SCOPED_TRACE(to_string(label));
    const losses::Loss loss = label.num_elements() > 4
                                  ? losses::CategoricalCrossentropy({.from_logits = true})
                                  : losses::BinaryCrossentropy({.from_logits = true});
    const double all = loss_with(label, loss, {});
    const double split =
        loss_with(label, loss, zero_and_one) + loss_with(label, loss, one_and_zero);
    EXPECT_NEAR(split, all, 1e-6 * all);
    EXPECT_GT(loss_with(label, loss, zero_and_one), 0);
    EXPECT_LT(loss_with(label, loss, zero_and_one), all);
  }
  EXPECT_THAT(error_of([&] {
                loss_with(Tensor::zeros(DType::kFloat32, {4, 1, 1}),
                          losses::BinaryCrossentropy({.from_logits = true}), zero_and_one);
              }),
              HasSubstr("class_weight needs a label or a value for each class a row"));
}

// The column with the largest value is no class where columns are something else.
TEST(Weights, OfClassesNeedLabelsThatAreClasses) {
  const Tensor packed = Tensor::from<float>({1, 0, 7, 0, 1, 9}, {2, 3});
  const losses::Loss first_two("first_two", [](const Value& y_true, const Value& y_pred) {
    return ops::square(y_pred - ops::slice(y_true, {0, 0}, {-1, 2}));
  });
  auto model = nn::Sequential({nn::Dense(2)});
  model.compile({.optimizer = optim::SGD(0.1), .loss = first_two});
  const auto fit = [&](const ClassWeight& weight) {
    return error_of([&] {
      model.fit(Tensor::zeros(DType::kFloat32, {2, 4}), packed,
                {.verbose = kSilent, .class_weight = weight});
    });
  };
  EXPECT_THAT(fit({{1, 2.0}}),
              HasSubstr("class_weight needs a label a row, or a value for each class that the "
                        "network predicts; its output for a row is [2], and the labels are "
                        "float32[2,3]: give weights to rows instead"));
  EXPECT_EQ(fit({}), "no error");
}

TEST(Weights, CountOnceWhereAnEpochIsGoneOnWithInItsMiddle) {
  const WeightedRows rows;
  const std::string folder = testing::make_folder();
  const auto fit = [&](const CallbackPtr& callback) {
    return fixed_model().fit(
        rows.batches(),
        {.callbacks = {callback, callbacks::BackupAndRestore(folder, {.save_freq = 1})},
         .verbose = kSilent});
  };
  EXPECT_THAT(error_of([&] { fit(testing::die_after(3)); }, Code::kAborted),
              HasSubstr("the power is gone"));
  int64_t steps = 0;
  auto counts = std::make_shared<testing::Hooks>();
  counts->batch_end = [&](Training&) { ++steps; };
  const History history = fit(counts);
  EXPECT_EQ(steps, 1) << "of three";
  EXPECT_EQ(history["accuracy"], std::vector<double>{rows.accuracy(false)});
  EXPECT_EQ(history["weighted"], std::vector<double>{rows.accuracy(true)});
}

TEST(Weights, MayBeGivenWithTensors) {
  const WeightedRows rows;
  auto model = fixed_model();
  EXPECT_EQ(model.evaluate(rows.x, rows.label, {.batch_size = 5, .sample_weight = rows.weight}),
            model.evaluate(rows.batches()));
  const History weighted =
      model.fit(rows.x, rows.label, {.verbose = kSilent, .sample_weight = rows.weight});
  EXPECT_EQ(weighted["weighted"], std::vector<double>{rows.accuracy(true)});
  // Both parts of the rows have their weights.
  const History without =
      model.fit(rows.x, rows.label,
                {.verbose = kSilent,
                 .validation_split = 0.25,
                 .sample_weight = Tensor::zeros(DType::kFloat32, {WeightedRows::kRows})});
  EXPECT_EQ(without["loss"], std::vector<double>{0});
  EXPECT_EQ(without["val_loss"], std::vector<double>{0});
}

TEST(Weights, HaveToFitTheRows) {
  const WeightedRows rows;
  auto model = fixed_model();
  const Tensor two_each = Tensor::zeros(DType::kFloat32, {WeightedRows::kRows, 2});
  EXPECT_THAT(error_of([&] {
                model.evaluate(rows.x, rows.label, {.batch_size = 7, .sample_weight = two_each});
              }),
              HasSubstr("a sample_weight of shape [7,2] does not fit values of shape [7]; expected "
                        "one a row, [7]"));
  EXPECT_THAT(error_of([&] { model.evaluate(rows.batches(), {.sample_weight = rows.weight}); }),
              HasSubstr("evaluate: batch_size and sample_weight are for tensors"));
  EXPECT_THAT(error_of([&] { model.evaluate(rows.batches(), {.batch_size = 5}); }),
              HasSubstr("evaluate: batch_size and sample_weight are for tensors"));
  EXPECT_THAT(error_of([&] { model.fit(rows.batches(), {.sample_weight = rows.weight}); }),
              HasSubstr("sample_weight are for tensors"));
}

TEST(Weights, OfTimeStepsHaveToFitThem) {
  const Sequences rows;
  auto model = rows.model();
  const Tensor two_each = Tensor::zeros(DType::kFloat32, {Sequences::kRows, 2});
  const auto refusal = HasSubstr(
      "a sample_weight of shape [5,2] does not fit values of shape [5,3]; expected one a row, [5], "
      "or one a value, [5,3]");
  EXPECT_THAT(error_of([&] {
                model.evaluate(rows.x, rows.label, {.batch_size = 5, .sample_weight = two_each});
              }),
              refusal);
  EXPECT_THAT(error_of([&] {
                model.fit(rows.x, rows.label,
                          {.verbose = kSilent, .batch_size = 5, .sample_weight = two_each});
              }),
              refusal);
  EXPECT_THAT(error_of([&] {
                model.fit(rows.batches(), {.verbose = kSilent, .class_weight = {{1, 2.0}}});
              }),
              HasSubstr("class_weight is for weights of rows, [5], and these are float32[5,3]"));
}

}  // namespace
}  // namespace cohort
