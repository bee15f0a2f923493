#include <cmath>

#include "tests/distribute/testing.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::Hooks;
using cohort::testing::points;

constexpr auto kSilent = Verbose::kSilent;

TEST(Fit, LearnsASmallProblem) {
  auto model = classifier();
  const auto test = points(200, /*seed=*/8).batch(50);
  const History history = model.fit(points(400).shuffle(400).batch(32),
                                    {.epochs = 15, .validation_data = test, .verbose = kSilent});
  EXPECT_LT(history["loss"].back(), 0.3 * history["loss"].front());
  EXPECT_GT(history["val_accuracy"].back(), 0.95);
  EXPECT_EQ(history["val_accuracy"].back(), model.evaluate(test).at("accuracy"));
  EXPECT_EQ(history.epochs.size(), 15u);
}

TEST(Fit, TensorsAreShuffledBatchedAndSplit) {
  const auto all = *points(100).batch(100).iterate().next();
  auto model = classifier();
  std::vector<int64_t> rows;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) { rows.push_back(training.examples()); };
  const History history =
      model.fit(all["x"], all["label"],
                {.epochs = 2, .callbacks = {hooks}, .verbose = kSilent, .validation_split = 0.25});
  EXPECT_EQ(rows, (std::vector<int64_t>{75, 75}));
  EXPECT_EQ(history["val_loss"].size(), 2u);
}

TEST(Fit, TensorsOfValidationAreBatchedByASizeOfTheirOwn) {
  const auto train = *points(12).batch(12).iterate().next(),
             test = *points(10, /*seed=*/8).batch(10).iterate().next();
  const auto batches_of = [](const ValidationData& data, std::optional<int64_t> batch_size) {
    std::vector<int64_t> rows;
    const data::Dataset batches = data.batches(batch_size);
    auto iterator = batches.iterate();
    while (const auto batch = iterator.next()) rows.push_back(batch->rows());
    return rows;
  };
  const ValidationData tensors(test["x"], test["label"]);
  EXPECT_EQ(batches_of(tensors, 4), (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(batches_of(tensors, std::nullopt), (std::vector<int64_t>{10}));
  EXPECT_EQ(batches_of(points(6).batch(5), std::nullopt), (std::vector<int64_t>{5, 1}));

  // The first two batches alone count, of a size that is its own, training's, or the default.
  const auto val_loss = [&](const FitOptions& options) {
    auto model = classifier(/*learning_rate=*/0);
    return model.fit(train["x"], train["label"], options)["val_loss"].at(0);
  };
  const auto expected = [&](int64_t rows) {
    return classifier().evaluate(points(10, 8).take(rows).batch(rows)).at("loss");
  };
  FitOptions options{
      .validation_data = tensors, .validation_steps = 2, .verbose = kSilent, .batch_size = 3};
  EXPECT_NEAR(val_loss(options), expected(6), 1e-6);
  options.validation_batch_size = 4;
  EXPECT_NEAR(val_loss(options), expected(8), 1e-6);
  auto model = classifier(/*learning_rate=*/0);
  options.batch_size.reset();
  EXPECT_NEAR(model.fit(points(8).batch(4), options)["val_loss"].at(0), expected(8), 1e-6)
      << "beside a dataset for training";
  const FitOptions split{.validation_steps = 1,
                         .verbose = kSilent,
                         .validation_batch_size = 2,
                         .validation_split = 0.5};
  EXPECT_NEAR(val_loss(split),
              classifier().evaluate(points(12).skip(6).take(2).batch(2)).at("loss"), 1e-6);
}

TEST(Fit, TensorsOfValidationMayHaveWeights) {
  const auto rows = *points(2).batch(2).iterate().next();
  const auto val_loss = [&](const ValidationData& data) {
    return classifier(/*learning_rate=*/0)
        .fit(points(4).batch(4), {.validation_data = data, .verbose = kSilent})["val_loss"]
        .at(0);
  };
  const double first = val_loss({rows["x"].slice_rows(0, 1), rows["label"].slice_rows(0, 1)});
  EXPECT_NEAR(val_loss({rows["x"], rows["label"], Tensor::from<float>({1, 0}, {2})}), first / 2,
              1e-6);
}

TEST(Fit, TheSameProgramTwiceGivesTheSameBits) {
  const auto train = points(70).shuffle(70, {.seed = 5}).batch(16);
  auto a = classifier(), b = classifier();
  const auto first = a.fit(train, {.epochs = 2, .verbose = kSilent});
  const auto second = b.fit(train, {.epochs = 2, .verbose = kSilent});
  EXPECT_EQ(first["loss"], second["loss"]);
  EXPECT_EQ(testing::bits(a), testing::bits(b));
}

// 33 rows in batches of 8: every batch is uneven over 3 replicas, and the last one is a single row.
TEST(Fit, TheLossCurveDoesNotDependOnTheNumberOfReplicas) {
  const auto train = points(33).shuffle(33, {.seed = 5}).batch(8);
  const FitOptions options{.epochs = 4, .verbose = kSilent};
  const auto alone = classifier().fit(train, options);
  set_logical_cpus(cohort::testing::kMaxReplicas, 1);
  for (const auto& replicas : cohort::testing::all_replicas()) {
    SCOPED_TRACE(::testing::PrintToString(replicas));
    const auto strategy = cohort::testing::make_strategy(replicas);
    const auto scope = strategy->scope();
    const auto together = classifier().fit(train, options);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(together["loss"][i], alone["loss"][i], 1e-5 * alone["loss"][i]);
      EXPECT_EQ(together["accuracy"][i], alone["accuracy"][i]);
    }
  }
}

// A fit of a CNN without kinks, where rounding errors do not grow.
struct Curve {
  std::vector<double> losses;  // of the epoch so far, after each step
  std::string weights;
};
Curve train_cnn(const std::vector<std::string>& devices) {
  MirroredStrategy strategy({.devices = devices});
  const auto scope = strategy.scope();
  set_global_seed(5);
  auto model = nn::Sequential(
      {nn::Conv2D(8, 3, {.strides = 2, .activation = nn::gelu_tanh}), nn::AveragePooling2D(2),
       nn::Conv2D(12, 3, {.activation = nn::gelu_tanh}), nn::Flatten(), nn::Dense(10)});
  testing::compile(model, /*learning_rate=*/0.02);
  Curve curve;
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [&](Training& training) {
    curve.losses.push_back(training.logs().at("loss"));
  };
  // The last of five batches has 13 rows.
  model.fit(data::synthetic_digits(77).shuffle(77, {.seed = 5}).batch(16),
            {.epochs = 4, .callbacks = {hooks}, .verbose = kSilent});
  curve.weights = testing::bits(model);
  return curve;
}

TEST(Fit, ACnnHasOneLossCurveOnTwoReplicasAndTheSameBitsInEveryRun) {
  set_logical_cpus(2, 1);
  const std::vector<std::string> one = {"cpu:0"}, two = {"cpu:0", "cpu:1"};
  const Curve alone = train_cnn(one), together = train_cnn(two);
  ASSERT_EQ(alone.losses.size(), 20u);
  ASSERT_EQ(together.losses.size(), 20u);
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (size_t i = 0; i < alone.losses.size(); ++i)
    EXPECT_NEAR(together.losses[i], alone.losses[i], 5e-6 * alone.losses[i]) << "step " << i;

  const Curve alone_again = train_cnn(one), together_again = train_cnn(two);
  EXPECT_EQ(alone_again.losses, alone.losses);
  EXPECT_TRUE(alone_again.weights == alone.weights);
  EXPECT_EQ(together_again.losses, together.losses);
  EXPECT_TRUE(together_again.weights == together.weights);
}

// Batches of 5 rows leave some of 3 replicas fewer rows than others, and the last of 2 rows one
// none.
TEST(Fit, WeightsGoWithTheirRowsToTheReplicas) {
  const auto all = *points(12).batch(12).iterate().next();
  Tensor weight(DType::kFloat32, {12});
  for (int i = 0; i < 12; ++i) weight.data<float>()[i] = static_cast<float>(i % 4);
  const auto train =
      data::from_tensor_slices({{"x", all["x"]}, {"label", all["label"]}, {"weight", weight}})
          .batch(5);
  const FitOptions options{.epochs = 3, .verbose = kSilent, .class_weight = {{1, 0.5}}};
  auto one = classifier();
  const auto alone = one.fit(train, options);
  const Tensor a = one.predict(all["x"], {.batch_size = 5});
  set_logical_cpus(3, 1);
  MirroredStrategy strategy;
  const auto scope = strategy.scope();
  auto three = classifier();
  const auto together = three.fit(train, options);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(together["loss"][i], alone["loss"][i], 1e-6);
  const Tensor b = three.predict(all["x"], {.batch_size = 5});
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.num_elements(); ++i)
    EXPECT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-5);
}

// Padded labels are spread unevenly over the replicas: some have nothing that counts.
TEST(Fit, DividesByWhatCountsOnAllReplicas) {
  const auto all = *points(10).batch(10).iterate().next();
  Tensor label = all["label"].clone(), weight(DType::kFloat32, {10});
  for (int64_t i = 0; i < 10; ++i) weight.data<float>()[i] = static_cast<float>(1 + i % 3);
  for (const int64_t i : {0, 1, 2, 7, 8, 9}) label.data<int32_t>()[i] = -1;
  const auto train =
      data::from_tensor_slices({{"x", all["x"]}, {"label", label}, {"weight", weight}}).batch(5);
  const FitOptions options{.epochs = 3, .verbose = kSilent};
  const auto losses_of = [&](losses::Reduction reduction) {
    auto model = classifier();
    model.compile({.optimizer = optim::SGD(0.1),
                   .loss = losses::SparseCategoricalCrossentropy(
                       {.from_logits = true, .ignore_class = -1, .reduction = reduction})});
    return model.fit(train, options)["loss"];
  };
  // The rows of the first batch that count, by themselves.
  auto model = classifier();
  model.compile({.optimizer = optim::SGD(0.1),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const double weighed =
      model
          .evaluate(data::from_tensor_slices({{"x", all["x"].slice_rows(3, 5)},
                                              {"label", label.slice_rows(3, 5)},
                                              {"weight", weight.slice_rows(3, 5)}})
                        .batch(2))
          .at("loss");
  const data::Dataset first = train.take(1);
  model.compile(
      {.optimizer = optim::SGD(0.1),
       .loss = losses::SparseCategoricalCrossentropy({.from_logits = true, .ignore_class = -1})});
  EXPECT_NEAR(model.evaluate(first).at("loss"), weighed, 1e-6);
  model.compile({.optimizer = optim::SGD(0.1),
                 .loss = losses::SparseCategoricalCrossentropy(
                     {.from_logits = true,
                      .ignore_class = -1,
                      .reduction = losses::Reduction::kMeanWithSampleWeight})});
  EXPECT_NEAR(model.evaluate(first).at("loss"), weighed * 2 / (1 + 2), 1e-6)
      << "the weights of rows 3 and 4 are 1 and 2";

  for (const auto reduction :
       {losses::Reduction::kSumOverBatchSize, losses::Reduction::kMeanWithSampleWeight}) {
    const auto alone = losses_of(reduction);
    set_logical_cpus(cohort::testing::kMaxReplicas, 1);
    for (const auto& replicas : cohort::testing::all_replicas()) {
      SCOPED_TRACE(::testing::PrintToString(replicas));
      const auto strategy = cohort::testing::make_strategy(replicas);
      const auto scope = strategy->scope();
      const auto together = losses_of(reduction);
      for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(together[i], alone[i], 1e-5 * alone[i]);
    }
  }
}

TEST(Fit, IsZeroWhereNothingCounts) {
  auto model = classifier();
  model.compile(
      {.optimizer = optim::SGD(0.1),
       .loss = losses::SparseCategoricalCrossentropy({.from_logits = true, .ignore_class = -1})});
  const auto all = *points(4).batch(4).iterate().next();
  EXPECT_EQ(model.evaluate(all["x"], Tensor::full(DType::kInt32, {4}, -1)).at("loss"), 0);
  model.fit(all["x"], Tensor::full(DType::kInt32, {4}, -1), {.verbose = kSilent});
  EXPECT_NEAR(model.evaluate(all["x"], all["label"]).at("loss"),
              classifier().evaluate(all["x"], all["label"]).at("loss"), 1e-7);
}

TEST(Fit, AWeightCountsLikeThatManyRows) {
  const auto two = *points(2).batch(2).iterate().next();
  data::Batch weighted = two;
  weighted.set("weight", Tensor::from<float>({1, 0}, {2}));
  auto model = classifier();
  const auto one_at = [&](data::Batch batch) {
    return model
        .evaluate(data::generator([batch] {
          return [batch, done = false]() mutable {
            return std::exchange(done, true) ? std::nullopt : std::optional(batch);
          };
        }))
        .at("loss");
  };
  const data::Batch first{{"x", two["x"].slice_rows(0, 1)},
                          {"label", two["label"].slice_rows(0, 1)}};
  // The sum over the weighted rows is divided by the number of rows, as in Keras.
  EXPECT_NEAR(one_at(weighted), one_at(first) / 2, 1e-6);
}

TEST(Fit, AClassWeightOfZeroLeavesAClassOut) {
  auto model = classifier();
  const auto history =
      model.fit(points(50).batch(10), {.verbose = kSilent, .class_weight = {{0, 0.0}, {1, 0.0}}});
  EXPECT_EQ(history["loss"], std::vector<double>{0});
}

TEST(Fit, AFitInACallbackLeavesTheClassWeightsAlone) {
  auto model = classifier();
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_begin = [](Training& training) {
    training.model().fit(points(4).batch(4), {.verbose = kSilent});
  };
  const auto history =
      model.fit(points(50).batch(10),
                {.callbacks = {hooks}, .verbose = kSilent, .class_weight = {{0, 0.0}, {1, 0.0}}});
  EXPECT_EQ(history["loss"], std::vector<double>{0});
}

// Asking and setting makes no variables, which would be those of whatever strategy is current.
TEST(Fit, TheLearningRateMayBeSetBeforeTrainingOutsideTheScope) {
  set_logical_cpus(2, 1);
  {
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    std::optional<Model> model;
    {
      const auto scope = strategy.scope();
      model = classifier(/*learning_rate=*/0.1);
    }
    const auto& optimizer = model->optimizer();
    EXPECT_EQ(optimizer.learning_rate(), 0.1);
    optimizer.set_learning_rate(0);
    EXPECT_EQ(optimizer.learning_rate(), 0);
    const auto train = points(20).batch(5);
    const double before = model->evaluate(train).at("loss");
    model->fit(train, {.verbose = kSilent});
    EXPECT_EQ(optimizer.iterations()->value().item(), 4);
    EXPECT_EQ(model->evaluate(train).at("loss"), before) << "nothing may be learned at a rate of 0";
    optimizer.set_learning_rate(0.1);
    model->fit(train, {.verbose = kSilent});
    EXPECT_EQ(optimizer.learning_rate(), 0.1);
    EXPECT_LT(model->evaluate(train).at("loss"), before);
  }
  set_logical_cpus(1);
}

TEST(Fit, WithStepsPerEpochPassesFollowEachOther) {
  auto model = classifier();
  std::vector<int64_t> rows;
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [&, before = int64_t{0}](Training& training) mutable {
    if (training.step() == 1) before = 0;
    rows.push_back(training.examples() - std::exchange(before, training.examples()));
  };
  model.fit(points(25).batch(10),
            {.epochs = 2, .steps_per_epoch = 4, .callbacks = {hooks}, .verbose = kSilent});
  EXPECT_EQ(rows, (std::vector<int64_t>{10, 10, 5, 10, 10, 5, 10, 10}));
}

TEST(Fit, EpochsAreCountedFromInitialEpoch) {
  const auto history =
      classifier().fit(points(10).batch(10), {.epochs = 5, .initial_epoch = 3, .verbose = kSilent});
  EXPECT_EQ(history.epochs, (std::vector<int64_t>{3, 4}));
  EXPECT_TRUE(classifier()
                  .fit(points(10).batch(10), {.epochs = 3, .initial_epoch = 3, .verbose = kSilent})
                  .epochs.empty());
}

TEST(Fit, ValidatesAsOftenAsAsked) {
  const auto history =
      classifier().fit(points(10).batch(10), {.epochs = 5,
                                              .validation_data = points(30).repeat().batch(10),
                                              .validation_freq = 2,
                                              .validation_steps = 3,
                                              .verbose = kSilent});
  EXPECT_EQ(history["loss"].size(), 5u);
  EXPECT_EQ(history["val_loss"].size(), 2u);
}

TEST(Fit, CallbacksAreCalledInOrder) {
  std::string calls;
  auto hooks = std::make_shared<Hooks>();
  hooks->train_begin = [&](Training&) { calls += "<"; };
  hooks->train_end = [&](Training&) { calls += ">"; };
  hooks->epoch_begin = [&](Training& t) { calls += str("(", t.epoch()); };
  hooks->epoch_end = [&](Training&, Logs&) { calls += ")"; };
  hooks->batch_begin = [&](Training&) { calls += "["; };
  hooks->batch_end = [&](Training& t) { calls += str(t.step(), "]"); };
  classifier().fit(points(6).batch(4), {.epochs = 2, .callbacks = {hooks}, .verbose = kSilent});
  EXPECT_EQ(calls, "<(0[1][2])(1[1][2])>");
}

TEST(Fit, ACallbackStopsTrainingAfterTheStep) {
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [](Training& training) {
    if (training.step() == 2) training.stop("enough");
  };
  auto model = classifier();
  const auto history =
      model.fit(points(40).batch(4), {.epochs = 3, .callbacks = {hooks}, .verbose = kSilent});
  EXPECT_EQ(history.stop_reason, "enough");
  EXPECT_EQ(history.epochs.size(), 1u);
  EXPECT_EQ(model.optimizer().iterations()->value().item(), 2);
}

TEST(Fit, ACallbackStopsTrainingWithoutAReason) {
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [](Training& training) { training.stop(""); };
  const auto history =
      classifier().fit(points(8).batch(4), {.epochs = 2, .callbacks = {hooks}, .verbose = kSilent});
  EXPECT_EQ(history.epochs.size(), 1u);
  EXPECT_EQ(history.stop_reason, "stopped by a callback");
}

TEST(Fit, AnEpochThatACallbackStopsIsValidated) {
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [](Training& training) { training.stop("enough"); };
  const auto history = classifier().fit(
      points(40).batch(4),
      {.validation_data = points(8).batch(8), .callbacks = {hooks}, .verbose = kSilent});
  EXPECT_EQ(history.epochs, std::vector<int64_t>{0});
  EXPECT_EQ(history["val_loss"].size(), 1u);
}

// As the averages of weights are.
TEST(Fit, ACallbackMayValidateByOtherWeights) {
  std::string order;
  Variables variables;
  std::vector<Tensor> kept;
  auto hooks = std::make_shared<Hooks>();
  hooks->validation_begin = [&](Training& training) {
    order += "b";
    variables = training.model().variables();
    for (const auto& variable : variables) {
      kept.push_back(variable->value());
      variable->assign(Tensor::zeros(variable->spec().dtype, variable->spec().shape));
    }
  };
  hooks->validation_end = [&](Training&) {
    order += "e";
    for (size_t i = 0; i < variables.size(); ++i) variables[i]->assign(kept[i]);
    kept.clear();
  };
  hooks->epoch_end = [&](Training&, Logs&) { order += "."; };
  const auto train = [](Model& model, std::vector<CallbackPtr> callbacks) {
    return model.fit(points(40).batch(8), {.epochs = 4,
                                           .validation_data = points(8).batch(4),
                                           .validation_freq = 2,
                                           .callbacks = std::move(callbacks),
                                           .verbose = kSilent});
  };
  auto swapped = classifier(), plain = classifier();
  const auto history = train(swapped, {hooks});
  train(plain, {});
  EXPECT_EQ(order, ".be..be.");
  for (const double loss : history["val_loss"]) EXPECT_NEAR(loss, std::log(2), 1e-6);
  EXPECT_EQ(cohort::testing::bits(swapped), cohort::testing::bits(plain));
}

TEST(Fit, AnEpochThatIsStoppedBeforeItsFirstStepIsNone) {
  Logs at_first;
  std::vector<int64_t> ended;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_begin = [&](Training& training) {
    at_first = training.logs();
    if (training.epoch() == 1) training.stop("enough");
  };
  hooks->epoch_end = [&](Training& training, Logs&) { ended.push_back(training.epoch()); };
  const auto history =
      classifier().fit(points(4).batch(4), {.epochs = 3, .callbacks = {hooks}, .verbose = kSilent});
  EXPECT_EQ(at_first, (Logs{{"accuracy", 0}, {"loss", 0}}));
  EXPECT_EQ(ended, std::vector<int64_t>{0}) << "so that nobody takes 0 for the best loss";
  EXPECT_EQ(history.epochs, std::vector<int64_t>{0});
  EXPECT_EQ(history["loss"].size(), 1u);
  EXPECT_EQ(history.stop_reason, "enough");
}

// There is no place in the data yet.
TEST(Fit, ABackupCanBeMadeBeforeItBegins) {
  const std::string path = testing::make_folder() + "/backup";
  const auto fit = [](const CallbackPtr& callback) {
    auto model = classifier();
    model.fit(points(25).batch(10),
              {.epochs = 2, .steps_per_epoch = 4, .callbacks = {callback}, .verbose = kSilent});
    return testing::bits(model);
  };
  auto hooks = std::make_shared<Hooks>();
  hooks->train_begin = [&](Training& training) { training.backup().save(path); };
  const std::string expected = fit(hooks);
  hooks->train_begin = [&](Training& training) { training.restore(path); };
  EXPECT_EQ(fit(hooks), expected);
}

TEST(Fit, PenaltiesOfWeightsAreAddedOnce) {
  const auto loss_with = [](double factor) {
    set_global_seed(3);
    auto model = nn::Sequential({nn::Dense(2, {.kernel_regularizer = regularizers::l2(factor)})});
    testing::compile(model);
    return model.evaluate(points(9).batch(9)).at("loss");
  };
  set_logical_cpus(3, 1);
  const double difference = loss_with(0.5) - loss_with(0);
  EXPECT_GT(difference, 0);
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2"}});
  const auto scope = strategy.scope();
  EXPECT_NEAR(loss_with(0.5) - loss_with(0), difference, 1e-5);
}

}  // namespace
}  // namespace cohort
