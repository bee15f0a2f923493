// Models of several outputs in compile, fit, evaluate and predict.
#include <cmath>

#include <gmock/gmock.h>

#include "tests/distribute/testing.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::bits;
using cohort::testing::error_of;
using cohort::testing::points;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

constexpr auto kSilent = Verbose::kSilent;

// Two outputs of one hidden layer; the same weights each time it is made.
Model two_heads(DType dtype = DType::kFloat32) {
  set_global_seed(3);
  const auto x = nn::Input({2}, {.dtype = dtype});
  const auto hidden = nn::Dense(8, {.activation = nn::tanh})(x);
  return nn::Functional(
      {x}, {nn::Dense(1, {.name = "price"})(hidden), nn::Dense(2, {.name = "kind"})(hidden)});
}

// What depends on the hidden layer of two_heads() in both ways; `extra` fields are added.
data::Dataset houses(int64_t rows, const std::vector<data::Field>& extra = {}) {
  const data::Batch all = *points(rows).batch(rows).iterate().next();
  Tensor price(DType::kFloat32, {rows, 1});
  for (int64_t i = 0; i < rows; ++i)
    price.data<float>()[i] = 0.5F * all["x"].data<float>()[2 * i] + 1;
  std::vector<data::Field> fields = {
      {"x", all["x"]}, {"label/kind", all["label"]}, {"label/price", price}};
  fields.insert(fields.end(), extra.begin(), extra.end());
  return data::from_tensor_slices(data::Element(fields));
}

losses::Loss crossentropy() { return losses::SparseCategoricalCrossentropy({.from_logits = true}); }

CompileOptions two_losses(optim::Optimizer optimizer = optim::SGD(0.1, {.momentum = 0.9})) {
  return {.optimizer = std::move(optimizer),
          .loss = {losses::MeanSquaredError(), crossentropy()},
          .loss_weights = {0.5, 2},
          .metrics = {{"kind", metrics::SparseCategoricalAccuracy("accuracy")},
                      {"price", metrics::MeanAbsoluteError("mae")}}};
}

// [[1, 0], [0, 1], [1, 1], [2, 0], [0, 3]] through kernels [1, 2] and the identity: 1, 2, 3, 2, 6
// are the prices, and all labels are 0.
class ClosedForm : public ::testing::TestWithParam<DType> {
 protected:
  ClosedForm() {
    const DType dtype = GetParam();
    const auto x = nn::Input({2}, {.dtype = dtype});
    model_ = nn::Functional({x}, {nn::Dense(1, {.use_bias = false, .name = "price"})(x),
                                  nn::Dense(2, {.use_bias = false, .name = "kind"})(x)});
    model_->variables()[0]->assign(Tensor::from<double>({1, 2}, {2, 1}).cast(dtype));
    model_->variables()[1]->assign(Tensor::from<double>({1, 0, 0, 1}, {2, 2}).cast(dtype));
    batch_ = {{"x", Tensor::from<double>({1, 0, 0, 1, 1, 1, 2, 0, 0, 3}, {5, 2}).cast(dtype)},
              {"label/price", Tensor::zeros(dtype, {5, 1})},
              {"label/kind", Tensor::zeros(dtype, {5, 2})}};
  }
  Logs evaluate() { return model_->evaluate(data::from_tensor_slices(batch_).batch(2)); }

  std::optional<Model> model_;
  data::Element batch_;
};

TEST_P(ClosedForm, OfLossesTheirWeightsAndMetrics) {
  model_->compile(
      {.optimizer = optim::SGD(0.0),
       .loss = {{"kind", losses::MeanAbsoluteError()}, {"price", losses::MeanSquaredError()}},
       .loss_weights = {{"price", 0.25}},
       .metrics = {{"kind", metrics::MeanSquaredError("mse")}}});
  const double price = (1 + 4 + 9 + 4 + 36) / 5.0, kind = (0.5 + 0.5 + 1 + 1 + 1.5) / 5;
  const Logs logs = evaluate();
  EXPECT_THAT(logs, UnorderedElementsAre(Key("loss"), Key("price_loss"), Key("kind_loss"),
                                         Key("kind_mse")));
  EXPECT_NEAR(logs.at("price_loss"), price, 1e-6);
  EXPECT_NEAR(logs.at("kind_loss"), kind, 1e-6);
  EXPECT_NEAR(logs.at("loss"), 0.25 * price + kind, 1e-6);
  EXPECT_NEAR(logs.at("kind_mse"), (0.5 + 0.5 + 1 + 2 + 4.5) / 5, 1e-6);
}

TEST_P(ClosedForm, OfWeightsOfRows) {
  model_->compile({.optimizer = optim::SGD(0.0),
                   .loss = {losses::MeanSquaredError(), losses::MeanAbsoluteError()},
                   .weighted_metrics = {{"price", metrics::MeanSquaredError("mse")}}});
  batch_.set("weight", Tensor::from<float>({0, 0, 0, 0, 2}, {5}));
  EXPECT_NEAR(evaluate().at("price_loss"), 2 * 36 / 5.0, 1e-6) << "of all outputs";
  EXPECT_NEAR(evaluate().at("kind_loss"), 2 * 1.5 / 5, 1e-6);
  batch_.set("weight/price", Tensor::from<float>({1, 0, 0, 3, 0}, {5}));
  EXPECT_NEAR(evaluate().at("price_loss"), (1 + 3 * 4) / 5.0, 1e-6) << "its own";
  EXPECT_NEAR(evaluate().at("price_mse"), (1 + 3 * 4) / 4.0, 1e-6);
  EXPECT_NEAR(evaluate().at("kind_loss"), 2 * 1.5 / 5, 1e-6);
}

TEST_P(ClosedForm, OfPredictions) {
  const data::Element all = model_->predict_all(batch_["x"], {.batch_size = 2});
  EXPECT_THAT(all.names(), ElementsAre("price", "kind"));
  EXPECT_EQ(to_string(all["price"]),
            to_string(Tensor::from<double>({1, 2, 3, 2, 6}, {5, 1}).cast(GetParam())));
  EXPECT_EQ(to_string(all["kind"]), to_string(batch_["x"]));
  EXPECT_EQ(error_of([&] { model_->predict(batch_["x"]); }),
            "predict: the model has the outputs \"price\", \"kind\": predict_all() gives them all");
}

INSTANTIATE_TEST_SUITE_P(SeveralOutputs, ClosedForm,
                         ::testing::Values(DType::kFloat32, DType::kFloat64));

TEST(SeveralOutputs, AreTrainedAsByALoopOfOnesOwn) {
  const auto dataset = houses(64).batch(16);
  auto fitted = two_heads(), looped = two_heads();
  fitted.compile(two_losses());
  fitted.fit(dataset, {.epochs = 3, .verbose = kSilent});

  const auto optimizer = optim::SGD(0.1, {.momentum = 0.9});
  const auto step = function([&](Value x, Value kind, Value price) {
    const auto outputs = looped.outputs({x}, {.training = true});
    const Value loss =
        ops::reduce_mean(losses::MeanSquaredError().per_example(price, outputs[0])) * 0.5 +
        ops::reduce_mean(crossentropy().per_example(kind, outputs[1])) * 2.0;
    optimizer.minimize(loss, looped.trainable_variables());
    return loss;
  });
  for (int epoch = 0; epoch < 3; ++epoch)
    for (const data::Element& batch : dataset)
      step({batch["x"], batch["label/kind"], batch["label/price"]});
  for (size_t i = 0; i < fitted.variables().size(); ++i) {
    const Tensor a = fitted.variables()[i]->value(), b = looped.variables()[i]->value();
    for (int64_t at = 0; at < a.num_elements(); ++at)
      EXPECT_NEAR(a.data<float>()[at], b.data<float>()[at], 1e-5)
          << fitted.variables()[i]->name() << ", seed 3";
  }
}

// 33 rows in batches of 8: every batch is uneven over 3 replicas, and the last one is a single row.
TEST(SeveralOutputs, GiveTheSameResultsOnAnyNumberOfReplicas) {
  const auto train = [] {
    auto model = two_heads();
    model.compile(two_losses());
    return model.fit(houses(33).batch(8),
                     {.epochs = 4, .validation_data = houses(10).batch(4), .verbose = kSilent});
  };
  const History alone = train();
  std::vector<std::string> names;
  for (const auto& [name, values] : alone.results) names.push_back(name);
  EXPECT_THAT(names, UnorderedElementsAre("loss", "price_loss", "price_mae", "kind_loss",
                                          "kind_accuracy", "val_loss", "val_price_loss",
                                          "val_price_mae", "val_kind_loss", "val_kind_accuracy"));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(alone["loss"][i], 0.5 * alone["price_loss"][i] + 2 * alone["kind_loss"][i], 1e-5);
  EXPECT_LT(alone["price_loss"].back(), alone["price_loss"].front());
  EXPECT_LT(alone["kind_loss"].back(), alone["kind_loss"].front());

  set_logical_cpus(3, 1);
  for (const auto& replicas :
       {testing::Replicas{2}, testing::Replicas{3}, testing::Replicas{2, /*central=*/true}}) {
    SCOPED_TRACE(::testing::PrintToString(replicas));
    const auto strategy = testing::make_strategy(replicas);
    const auto scope = strategy->scope();
    const History together = train();
    for (const auto& [name, values] : alone.results)
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(together[name][i], values[i], 1e-4) << name;

    auto model = two_heads();
    const Tensor x = (*points(5).batch(5).iterate().next())["x"];
    const data::Element predicted = model.predict_all(x, {.batch_size = 4});
    for (int64_t row = 0; row < 5; ++row) {
      const data::Element one = model.predict_all(x.slice_rows(row, row + 1));
      EXPECT_NEAR(one["kind"].data<float>()[1], predicted["kind"].data<float>()[2 * row + 1], 1e-6);
      EXPECT_NEAR(one["price"].data<float>()[0], predicted["price"].data<float>()[row], 1e-6);
    }
  }
  set_logical_cpus(1);
}

TEST(SeveralOutputs, AreTrainedInMixedPrecisionAndWithAccumulation) {
  for (const Precision precision : {Precision::kMixedBFloat16, Precision::kMixedFloat16}) {
    auto model = two_heads();
    CompileOptions options = two_losses(optim::SGD(0.2, {.gradients = {.accumulation_steps = 2}}));
    options.precision = precision;
    model.compile(options);
    const History history = model.fit(houses(200).batch(20), {.epochs = 20, .verbose = kSilent});
    EXPECT_LT(history["price_loss"].back(), 0.5 * history["price_loss"].front());
    EXPECT_LT(history["kind_loss"].back(), 0.8 * history["kind_loss"].front());
  }
}

TEST(SeveralOutputs, WithoutALossNeedNoLabels) {
  auto model = two_heads();
  model.compile({.optimizer = optim::SGD(0.1), .loss = {{"kind", crossentropy()}}});
  const auto kinds = houses(16).map([](const data::Element& house) {
    return data::Element{{"x", house["x"]}, {"label/kind", house["label/kind"]}};
  });
  const History history = model.fit(kinds.batch(8), {.epochs = 2, .verbose = kSilent});
  EXPECT_EQ(history["loss"], history["kind_loss"]);
  EXPECT_EQ(history.results.count("price_loss"), 0u);
  EXPECT_EQ(model.fit(houses(16).batch(8), {.verbose = kSilent}).results.size(), 2u)
      << "labels that nothing asks for";

  model.compile({.optimizer = optim::SGD(0.1),
                 .loss = {{"kind", crossentropy()}},
                 .metrics = {{"price", metrics::MeanAbsoluteError("mae")}}});
  EXPECT_THAT(error_of([&] { model.evaluate(kinds.batch(8)); }, Code::kNotFound),
              HasSubstr("no tensor \"label/price\" in this element; it has \"x\", \"label/kind\""));
  EXPECT_EQ(model.evaluate(houses(16).batch(8)).count("price_mae"), 1u);
}

TEST(SeveralOutputs, GoOnInTheMiddleOfAnEpochWithTheSameResults) {
  const std::string folder = testing::make_folder();
  const auto train = [](std::vector<CallbackPtr> callbacks) {
    auto model = two_heads();
    model.compile(two_losses());
    const History history = model.fit(
        houses(40).batch(8), {.epochs = 2, .callbacks = std::move(callbacks), .verbose = kSilent});
    return std::pair(history.results, bits(model));
  };
  const auto whole = train({});
  const auto backup = [&] { return callbacks::BackupAndRestore(folder, {.save_freq = 1}); };
  EXPECT_THAT(error_of(
                  [&] {
                    train({testing::die_after(8), backup()});
                  },
                  Code::kAborted),
              HasSubstr("the power is gone"));
  const auto [results, weights] = train({backup()});
  for (const auto& [name, values] : results) EXPECT_EQ(values.back(), whole.first.at(name).back());
  EXPECT_EQ(weights, whole.second);
}

class Misfits : public ::testing::Test {
 protected:
  std::string compile(const PerOutput<losses::Loss>& loss,
                      const PerOutput<double>& loss_weights = {},
                      const PerOutput<metrics::Metric>& metrics = {}) {
    return error_of([&] {
      model_.compile({.optimizer = optim::SGD(0.1),
                      .loss = loss,
                      .loss_weights = loss_weights,
                      .metrics = metrics});
    });
  }
  Model model_ = two_heads();
  const losses::Loss mse_ = losses::MeanSquaredError();
};

TEST_F(Misfits, OfWhatIsCompiledTellTheOutputsThereAre) {
  const std::string model = ", and the model has the outputs \"price\", \"kind\"";
  const std::string advice = ": give one for each in this order, or by their names";
  EXPECT_EQ(compile(mse_), "compile: loss has 1 entry" + model + advice);
  EXPECT_EQ(compile({mse_, mse_, mse_}), "compile: loss has 3 entries" + model + advice);
  EXPECT_EQ(compile({mse_, {"kind", mse_}}), "compile: loss has 2 entries" + model + advice);
  EXPECT_EQ(compile({mse_, mse_}, {0.5}), "compile: loss_weights has 1 entry" + model + advice);
  EXPECT_EQ(compile({{"prise", mse_}}), "compile: loss names \"prise\"" + model);
  EXPECT_EQ(compile({{"kind", mse_}, {"kind", mse_}}), "compile: loss names \"kind\" twice");
  EXPECT_EQ(compile({{"kind", mse_}}, {{"price", 2}}),
            "compile: loss_weights has a weight for \"price\", which has no loss");
  EXPECT_EQ(compile({mse_, mse_}, {1, std::nan("")}),
            "compile: a loss weight must be finite, got nan");
  EXPECT_EQ(compile({mse_, mse_}, {}, metrics::MeanSquaredError("mse")),
            "compile: the metric \"mse\" does not say of which output; the model has the outputs "
            "\"price\", \"kind\", as in {\"price\", metric}");
  EXPECT_EQ(compile({mse_, mse_}, {}, {{"size", metrics::MeanSquaredError("mse")}}),
            "compile: the metric \"mse\" names \"size\"" + model);
  EXPECT_THAT(compile({mse_, mse_}, {}, {{"price", metrics::MeanSquaredError("loss")}}),
              HasSubstr("two results would be named \"price_loss\""));

  auto one = nn::Sequential({nn::Dense(1)});
  EXPECT_EQ(error_of([&] {
              one.compile({.optimizer = optim::SGD(), .loss = {{"dense", mse_}}});
            }),
            "compile: loss names \"dense\", and the model has one output, without a name");
  EXPECT_EQ(error_of([&] { one.compile({.optimizer = optim::SGD(), .loss_weights = 0.5}); }),
            "compile: loss_weights has a weight for the only output, which has no loss");
}

TEST_F(Misfits, OfTheDataTellWhatItHas) {
  model_.compile(two_losses());
  const auto said_of = [&](const data::Dataset& dataset, Code code = Code::kInvalidArgument) {
    return error_of([&] { model_.fit(dataset.batch(4), {.verbose = kSilent}); }, code);
  };
  EXPECT_THAT(said_of(points(4)),
              HasSubstr("has \"label\", and the model has the outputs \"price\", \"kind\", whose "
                        "labels are named \"label/price\""));
  EXPECT_THAT(said_of(houses(4, {{"weight/prise", Tensor::zeros(DType::kFloat32, {4})}})),
              HasSubstr("has \"weight/prise\", and the model has the outputs"));
  const auto without_kind = houses(4).map([](const data::Element& house) {
    return data::Element{{"x", house["x"]}, {"label/price", house["label/price"]}};
  });
  EXPECT_THAT(said_of(without_kind, Code::kNotFound),
              HasSubstr("no tensor \"label/kind\" in this element; it has \"x\", \"label/price\""));
  const auto wrong_price = houses(4).map([](data::Element house) {
    house.set("label/price", Tensor::zeros(DType::kFloat32, {3}));
    return house;
  });
  EXPECT_THAT(said_of(wrong_price), HasSubstr("output \"price\": loss MeanSquaredError of y_true"));
  EXPECT_THAT(error_of([&] {
                model_.fit(houses(4).batch(4), {.verbose = kSilent, .class_weight = {{1, 2.0}}});
              }),
              HasSubstr("class_weight is for models of one output, and this one has the outputs"));
}

}  // namespace
}  // namespace cohort
