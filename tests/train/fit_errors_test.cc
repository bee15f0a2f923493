// What fit() says of calls, options and data that it cannot train with.
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::error_of;
using cohort::testing::Hooks;
using cohort::testing::points;

constexpr auto kSilent = Verbose::kSilent;

TEST(FitErrors, AsksForBatches) {
  auto model = classifier();
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { model.fit(points(4), {.verbose = kSilent}); }, [&] { model.evaluate(points(4)); },
           [&] { model.predict(points(4)); }})
    EXPECT_NE(error_of(call).find("add batch(n)"), std::string::npos);
}

TEST(FitErrors, AnEndlessDatasetOfUnknownLengthNeedsANumberOfSteps) {
  const auto keep_all = [](const data::Element&) { return true; };
  const auto alone = [](const data::Element&) { return points(1); };
  auto model = classifier();
  for (const data::Dataset& elements :
       {points(10).filter(keep_all).repeat(), points(10).repeat().filter(keep_all),
        points(10).repeat().interleave(alone, {.cycle_length = 2})}) {
    const data::Dataset endless = elements.batch(2);
    EXPECT_EQ(error_of([&] { model.fit(endless, {.verbose = kSilent}); }),
              "the dataset never ends: say by steps_per_epoch how many batches to take");
    EXPECT_EQ(error_of([&] { model.evaluate(endless); }),
              "evaluate: the dataset never ends: say by steps how many batches to take");
    EXPECT_EQ(error_of([&] { model.predict(endless); }),
              "predict: the dataset never ends: say by steps how many batches to take");
    EXPECT_EQ(model.fit(endless, {.steps_per_epoch = 3, .verbose = kSilent}).epochs.size(), 1u);
  }
}

TEST(FitErrors, CannotBeGivenAnotherOptimizerOnTheWay) {
  auto model = classifier();
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [](Training& training) { testing::compile(training.model()); };
  EXPECT_NE(
      error_of([&] { model.fit(points(4).batch(4), {.callbacks = {hooks}, .verbose = kSilent}); },
               Code::kFailedPrecondition)
          .find("compile: fit() is training"),
      std::string::npos);
  testing::compile(model);
  model.fit(points(4).batch(4), {.verbose = kSilent});
}

TEST(FitErrors, OptionsThatMakeNoSenseAreNamed) {
  auto model = classifier();
  const auto fit = [&](FitOptions options) {
    return error_of([&] { model.fit(points(4).batch(2), options); });
  };
  EXPECT_EQ(fit({.epochs = -1}), "fit: epochs must be at least 0, got -1");
  EXPECT_EQ(fit({.steps_per_epoch = 0}), "fit: steps_per_epoch must be at least 1, got 0");
  EXPECT_EQ(fit({.callbacks = {nullptr}}), "fit: one of the callbacks is null");
  EXPECT_NE(fit({.batch_size = 4}).find("are for tensors"), std::string::npos);
  EXPECT_EQ(fit({.validation_batch_size = 0}),
            "fit: validation_batch_size must be at least 1, got 0");
  EXPECT_EQ(fit({.validation_data = points(4).batch(2), .validation_batch_size = 4}),
            "fit: validation_data: validation_batch_size is for tensors; a dataset has batch()");
  const auto all = *points(4).batch(4).iterate().next();
  EXPECT_EQ(error_of([&] { model.fit(all["x"], all["label"], {.validation_split = 1}); }),
            "fit: validation_split must be in [0, 1), got 1");
  EXPECT_EQ(error_of([&] { model.fit(all["x"], all["label"], {.validation_split = 0.9}); }),
            "fit: validation_split of 0.9 leaves none of 4 rows to train on");
}

TEST(FitErrors, DataThatDoesNotFitIsNamed) {
  auto model = classifier();
  const auto fit = [&](const data::Dataset& dataset) {
    return error_of([&] { model.fit(dataset, {.verbose = kSilent}); });
  };
  EXPECT_NE(fit(points(4).take(0).batch(2)).find("the dataset is empty"), std::string::npos);
  EXPECT_NE(fit(points(4).repeat().batch(2)).find("never ends"), std::string::npos);
  EXPECT_NE(
      error_of([&] { model.fit(data::range(4).batch(2), {.verbose = kSilent}); }, Code::kNotFound)
          .find("\"label\""),
      std::string::npos);
  auto unbuilt = nn::Sequential({nn::Dense(2)});
  testing::compile(unbuilt);
  EXPECT_NE(error_of([&] { unbuilt.fit(data::range(4)); }).find("add batch(n)"), std::string::npos);
}

TEST(FitErrors, ALabelOutOfRangeIsReportedWithItsStep) {
  auto batch = *points(6).batch(6).iterate().next();
  Tensor label = batch["label"].clone();
  label.data<int32_t>()[5] = 2;
  const auto message = error_of(
      [&] {
        classifier().fit(data::from_tensor_slices({{"x", batch["x"]}, {"label", label}}).batch(2),
                         {.verbose = kSilent});
      },
      Code::kOutOfRange);
  EXPECT_EQ(message.rfind("fit: epoch 1, step 3: ", 0), 0u) << message;
}

TEST(FitErrors, ValidationDataThatDoesNotFitIsNamedBeforeTraining) {
  auto model = classifier();
  int steps = 0;
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [&](Training&) { ++steps; };
  const auto fit = [&](const data::Dataset& validation_data) {
    return error_of([&] {
      model.fit(points(4).batch(4),
                {.validation_data = validation_data, .callbacks = {hooks}, .verbose = kSilent});
    });
  };
  EXPECT_EQ(fit(points(4).repeat().batch(2)),
            "fit: validation_data: the dataset never ends: say by validation_steps how many "
            "batches to take");
  EXPECT_EQ(fit(points(4).take(0).batch(2)), "fit: validation_data: the dataset is empty");
  const std::string unbatched = fit(points(4));
  EXPECT_EQ(unbatched.rfind("fit: validation_data: ", 0), 0u) << unbatched;
  EXPECT_NE(unbatched.find("add batch(n)"), std::string::npos) << unbatched;
  EXPECT_EQ(steps, 0);
}

TEST(FitErrors, AnErrorOfValidationNamesItsEpoch) {
  const auto rows = *points(2).batch(2).iterate().next();
  const auto unknown =
      data::from_tensor_slices({{"x", rows["x"]}, {"label", Tensor::full(DType::kInt32, {2}, 7)}});
  const auto message = error_of(
      [&] {
        classifier().fit(points(4).batch(4), {.epochs = 3,
                                              .validation_data = unknown.batch(2),
                                              .validation_freq = 2,
                                              .verbose = kSilent});
      },
      Code::kOutOfRange);
  EXPECT_EQ(message.rfind("fit: epoch 2, validation: ", 0), 0u) << message;
}

TEST(FitErrors, NeedsCompile) {
  auto model = nn::Sequential({nn::Dense(2)});
  EXPECT_NE(
      error_of([&] { model.fit(points(4).batch(2)); }, Code::kFailedPrecondition).find("compile()"),
      std::string::npos);
}

}  // namespace
}  // namespace cohort
