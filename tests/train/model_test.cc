#include <set>

#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::error_of;
using cohort::testing::points;

TEST(Model, EvaluateDoesNotDependOnTheBatchSize) {
  auto model = classifier();
  const Logs whole = model.evaluate(points(50).batch(50)),
             parts = model.evaluate(points(50).batch(7));
  EXPECT_NEAR(whole.at("loss"), parts.at("loss"), 1e-6);
  EXPECT_EQ(whole.at("accuracy"), parts.at("accuracy"));
}

TEST(Model, EvaluateLearnsNothing) {
  auto model = classifier();
  const std::string before = testing::bits(model);
  model.evaluate(points(50).batch(10));
  EXPECT_EQ(testing::bits(model), before);
}

// A compiled model with dropout that is active in all it does.
Model always_dropping() {
  set_global_seed(3);
  const auto x = nn::Input({2});
  const auto hidden = nn::Dense(64)(x);
  auto model = nn::Functional({x}, nn::Dense(2)(nn::Dropout(0.5)(hidden, {.training = true})));
  testing::compile(model);
  return model;
}

TEST(Model, EveryBatchOutsideTrainingHasRandomNumbersOfItsOwn) {
  const Tensor equal_rows = Tensor::full(DType::kFloat32, {4, 2}, 1);
  const auto predict = [&](Model& model) {
    const Tensor y = model.predict(equal_rows, {.batch_size = 1});
    return std::vector<float>(y.values<float>().begin(), y.values<float>().end());
  };
  const auto evaluate = [](Model& model) { return model.evaluate(points(8).batch(8)).at("loss"); };
  auto model = always_dropping(), again = always_dropping();
  const auto first = predict(model), second = predict(model);
  const std::set<float> different(first.begin(), first.end());
  EXPECT_EQ(different.size(), first.size()) << "batches of one call, seed 3";
  EXPECT_NE(first, second) << "calls";
  const double loss = evaluate(model);
  EXPECT_NE(evaluate(model), loss);

  EXPECT_EQ(predict(again), first) << "a fresh model";
  EXPECT_EQ(evaluate(again), loss);
}

TEST(Model, WhatIsComputedOutsideTrainingDoesNotChangeIt) {
  const auto train = [](bool interleaved) {
    auto model = always_dropping();
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      model.fit(points(40).batch(8),
                {.epochs = epoch + 1, .initial_epoch = epoch, .verbose = Verbose::kSilent});
      if (!interleaved) continue;
      model.evaluate(points(16).batch(8));
      model.predict(Tensor::full(DType::kFloat32, {3, 2}, 1));
    }
    return testing::bits(model);
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(Model, SaysThatATensorNamedWeightIsNoInput) {
  const auto age = nn::Input({1}), weight = nn::Input({1});
  auto model = nn::Functional({age, weight}, nn::Dense(2)(nn::Concatenate()({age, weight})));
  testing::compile(model);
  const Tensor column = Tensor::full(DType::kFloat32, {4, 1}, 1);
  const data::Dataset people =
      data::from_tensor_slices(
          {{"age", column}, {"weight", column}, {"label", Tensor::zeros(DType::kInt32, {4})}})
          .batch(4);
  const std::string message = error_of([&] { model.fit(people, {.verbose = Verbose::kSilent}); });
  EXPECT_NE(message.find("the network takes 2 inputs, got 1; tensors of a batch that are named "
                         "\"label\" or \"weight\" are no inputs"),
            std::string::npos)
      << message;
}

TEST(Model, EvaluateTakesTensorsAndSteps) {
  auto model = classifier();
  const auto all = *points(64).batch(64).iterate().next();
  EXPECT_NEAR(model.evaluate(all["x"], all["label"]).at("loss"),
              model.evaluate(points(64).batch(64)).at("loss"), 1e-6);
  EXPECT_NEAR(model.evaluate(points(64).batch(8), {.steps = 2}).at("loss"),
              model.evaluate(points(64).take(16).batch(16)).at("loss"), 1e-6);
}

TEST(Model, EvaluateRefusesNumbersOfStepsThatMeanNothing) {
  auto model = classifier();
  for (const int64_t steps : {0, -1, -5})
    EXPECT_EQ(testing::error_of([&] { model.evaluate(points(8).batch(8), {.steps = steps}); },
                                Code::kInvalidArgument),
              str("evaluate: steps must be at least 1, got ", steps));
}

TEST(Model, EvaluateAndPredictSayThatADatasetHasFewerSteps) {
  auto model = classifier();
  const auto said_for = [&](const data::Dataset& dataset, int64_t steps) {
    ::testing::internal::CaptureStderr();
    model.evaluate(dataset, {.steps = steps});
    model.predict(dataset, {.steps = steps});
    return ::testing::internal::GetCapturedStderr();
  };
  const auto dataset = points(20).batch(6);
  EXPECT_EQ(said_for(dataset, 9),
            "warning: evaluate: steps is 9, and the dataset ends after 4\n"
            "warning: predict: steps is 9, and the dataset ends after 4\n");
  EXPECT_EQ(said_for(dataset, 4), "");
  EXPECT_EQ(said_for(dataset.repeat(), 9), "");

  const auto of_unknown_length = points(20).filter([](const data::Element&) { return true; });
  EXPECT_EQ(said_for(of_unknown_length.batch(6), 9),
            "warning: evaluate: steps is 9, and the dataset ends after 4\n"
            "warning: predict: steps is 9, and the dataset ends after 4\n");
  EXPECT_EQ(said_for(of_unknown_length.batch(6), 4), "");
}

TEST(Model, FitSaysOnceThatItsValidationDataHaveFewerSteps) {
  const auto said_for = [](const data::Dataset& validation_data, int64_t steps) {
    ::testing::internal::CaptureStderr();
    classifier().fit(points(4).batch(4), {.epochs = 3,
                                          .validation_data = validation_data,
                                          .validation_steps = steps,
                                          .verbose = Verbose::kSilent});
    return ::testing::internal::GetCapturedStderr();
  };
  const auto rows = points(20);
  for (const auto& validation_data :
       {rows.batch(6), rows.filter([](const data::Element&) { return true; }).batch(6)}) {
    EXPECT_EQ(said_for(validation_data, 9),
              "warning: fit: validation_steps is 9, and the dataset ends after 4\n");
    EXPECT_EQ(said_for(validation_data, 4), "");
  }
}

TEST(Model, EvaluateAndPredictSayThatADatasetIsEmpty) {
  const auto no_row = [](const data::Element&) { return false; };
  for (const auto& empty : {points(8).take(0).batch(4), points(8).filter(no_row).batch(4)}) {
    auto built = classifier();
    auto unbuilt = nn::Sequential({nn::Dense(2)});
    testing::compile(unbuilt);
    for (Model* model : {&built, &unbuilt}) {
      EXPECT_EQ(error_of([&] { model->evaluate(empty); }), "evaluate: the dataset is empty");
      EXPECT_EQ(error_of([&] { model->predict(empty); }), "predict: the dataset is empty");
    }
  }
}

// As from a stream that can be read once.
TEST(Model, TakesTheBatchThatItIsBuiltForToo) {
  int passes = 0, rows = 0;
  const auto batches = data::generator([&] {
                         ++passes;
                         return [&]() -> std::optional<data::Element> {
                           if (rows == 6) return std::nullopt;
                           ++rows;
                           return data::Element{{"x", Tensor::zeros(DType::kFloat32, {2})},
                                                {"label", Tensor::scalar(int32_t{1})}};
                         };
                       }).batch(2);
  const auto unbuilt = [&] {
    passes = rows = 0;
    auto model = nn::Sequential({nn::Dense(2)});
    testing::compile(model);
    return model;
  };
  int64_t trained_on = 0;
  auto hooks = std::make_shared<testing::Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) { trained_on = training.examples(); };
  unbuilt().fit(batches, {.callbacks = {hooks}, .verbose = Verbose::kSilent});
  EXPECT_EQ(trained_on, 6);
  EXPECT_EQ(passes, 1);
  EXPECT_EQ(unbuilt().predict(batches).shape(), (Shape{6, 2}));
  EXPECT_EQ(passes, 1);
  unbuilt().evaluate(batches);
  EXPECT_EQ(passes, 1);
}

TEST(Model, PredictTakesSteps) {
  auto model = classifier();
  const auto all = *points(20).batch(20).iterate().next();
  const Tensor whole = model.predict(all["x"]);
  const auto expect_first = [&](const Tensor& found, int64_t rows) {
    ASSERT_EQ(found.shape(), (Shape{rows, 2}));
    for (int64_t i = 0; i < found.num_elements(); ++i)
      EXPECT_NEAR(found.data<float>()[i], whole.data<float>()[i], 1e-6);
  };
  expect_first(model.predict(points(20).batch(6), {.steps = 2}), 12);
  expect_first(model.predict(points(20).batch(6), {.steps = 9}), 20);
  expect_first(model.predict(points(20).batch(6).repeat(), {.steps = 3}), 18);
  expect_first(model.predict(all["x"], {.steps = 1, .batch_size = 8}), 8);
  EXPECT_EQ(error_of([&] { model.predict(all["x"], {.steps = 0}); }),
            "predict: steps must be at least 1, got 0");
  EXPECT_EQ(error_of([&] { model.predict(points(4).batch(2), {.batch_size = 2}); }),
            "predict: batch_size is for tensors; a dataset has batch()");
}

TEST(Model, ABatchOfTensorsWithoutRowsIsNamedByMethodAndOption) {
  auto model = classifier();
  const auto all = *points(4).batch(4).iterate().next();
  const Tensor &x = all["x"], &y = all["label"];
  const auto fit = [&](const FitOptions& options) {
    return error_of([&] { model.fit(x, y, options); });
  };
  EXPECT_EQ(fit({.batch_size = 0}), "fit: batch_size must be at least 1, got 0");
  EXPECT_EQ(fit({.validation_batch_size = -1, .validation_split = 0.5}),
            "fit: validation_batch_size must be at least 1, got -1");
  EXPECT_EQ(error_of([&] { model.evaluate(x, y, {.batch_size = 0}); }),
            "evaluate: batch_size must be at least 1, got 0");
  EXPECT_EQ(error_of([&] { model.predict(x, {.batch_size = -3}); }),
            "predict: batch_size must be at least 1, got -3");
  EXPECT_EQ(error_of([&] { model.predict_all(x, {.batch_size = -3}); }),
            "predict_all: batch_size must be at least 1, got -3");
}

TEST(Model, PredictAllGoesByItsOwnNameInWhatItSays) {
  auto model = classifier();
  EXPECT_EQ(error_of([&] { model.predict_all(points(4).batch(2), {.steps = 0}); }),
            "predict_all: steps must be at least 1, got 0");
  EXPECT_EQ(error_of([&] { model.predict_all(points(4).batch(2), {.batch_size = 2}); }),
            "predict_all: batch_size is for tensors; a dataset has batch()");
  EXPECT_EQ(error_of([&] { model.predict_all(points(8).take(0).batch(4)); }),
            "predict_all: the dataset is empty");
  ::testing::internal::CaptureStderr();
  model.predict_all(points(4).batch(2), {.steps = 3});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: predict_all: steps is 3, and the dataset ends after 2\n");
}

TEST(Model, PredictRefusesBatchesWhoseResultsAreNoRowsOfOneTensor) {
  auto model = nn::Sequential({nn::Dense(1)});
  const auto batches = data::generator([] {
    return [length = int64_t{3}]() mutable -> std::optional<data::Element> {
      if (length > 48) return std::nullopt;
      return data::Element{
          {"x", Tensor::zeros(DType::kFloat32, {2, std::exchange(length, length * 4), 4})}};
    };
  });
  const std::string message =
      testing::error_of([&] { model.predict(batches); }, Code::kInvalidArgument);
  for (const char* part : {"predict: batch 2 gives float32[2,12,1]", "float32[2,3,1]"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Model, PredictKeepsTheOrderOfRowsOverBatchesAndReplicas) {
  const auto all = *points(23).batch(23).iterate().next();
  const Tensor alone = classifier().predict(all["x"], {.batch_size = 23});
  ASSERT_EQ(alone.shape(), (Shape{23, 2}));
  set_logical_cpus(3, 1);
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2"}});
  const auto scope = strategy.scope();
  const Tensor split = classifier().predict(points(23).batch(7));
  ASSERT_EQ(split.shape(), alone.shape());
  for (int64_t i = 0; i < alone.num_elements(); ++i)
    EXPECT_NEAR(split.data<float>()[i], alone.data<float>()[i], 1e-6);
}

// Batches of 4 rows and of 3 leave some of 7 replicas none; each has moved its own statistics.
TEST(Model, PredictsUnderAStrategyWhatItsSavedWeightsDoWithoutOne) {
  const auto make = [] {
    set_global_seed(3);
    auto model = nn::Sequential(
        {nn::Dense(6), nn::BatchNormalization({.momentum = 0.5}), nn::Dropout(0.5), nn::Dense(2)});
    testing::compile(model);
    return model;
  };
  const auto rows = points(11);
  const auto all = *rows.batch(11).iterate().next();
  const std::string path = testing::make_folder() + "/weights.safetensors";
  std::vector<Tensor> predicted;
  Logs evaluated;
  set_logical_cpus(7, 1);
  {
    MirroredStrategy strategy;
    const auto scope = strategy.scope();
    auto model = make();
    model.fit(rows.batch(4), {.epochs = 2, .verbose = Verbose::kSilent});
    for (const int64_t batch_size : {1, 4, 11})
      predicted.push_back(model.predict(all["x"], {.batch_size = batch_size}));
    evaluated = model.evaluate(rows.batch(4));
    model.save_weights(path);
  }
  set_logical_cpus(1);
  auto alone = make();
  alone.load_weights(path);
  const Tensor expected = alone.predict(all["x"], {.batch_size = 11});
  for (const Tensor& found : predicted) {
    ASSERT_EQ(found.shape(), expected.shape());
    for (int64_t i = 0; i < expected.num_elements(); ++i)
      EXPECT_NEAR(found.data<float>()[i], expected.data<float>()[i], 1e-5);
  }
  const Logs logs = alone.evaluate(rows.batch(11));
  EXPECT_NEAR(evaluated.at("loss"), logs.at("loss"), 1e-5);
  EXPECT_EQ(evaluated.at("accuracy"), logs.at("accuracy"));
}

TEST(Model, NeedsANetwork) {
  EXPECT_EQ(error_of([] { Model{nn::Layer()}; }),
            "a model needs a network, and got an empty layer");
}

TEST(Model, BelongsToTheStrategyItWasMadeUnder) {
  set_logical_cpus(2, 1);
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  std::optional<Model> model;
  {
    const auto scope = strategy.scope();
    model = nn::Sequential({nn::Dense(2)});
  }
  testing::compile(*model);
  model->fit(points(20).batch(5), {.verbose = Verbose::kSilent});
  EXPECT_EQ(&model->strategy(), &strategy);
}

// Wherever the scope is entered too late, the error says so, from the first call on.
TEST(Model, SaysThatItWasMadeOutsideTheScope) {
  set_logical_cpus(2, 1);
  {
    auto model = classifier();
    MirroredStrategy strategy;
    const auto scope = strategy.scope();
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { testing::compile(model); },
             [&] {
               model.build({{DType::kFloat32, {1, 2}}});
             },
             [&] { model.fit(points(4).batch(2), {.verbose = Verbose::kSilent}); },
             [&] { model.evaluate(points(4).batch(2)); },
             [&] { model.predict(points(4).batch(2)); }}) {
      const std::string message = error_of(call, Code::kFailedPrecondition);
      EXPECT_NE(message.find("the model was made outside the scope of MirroredStrategy, which is "
                             "current: create it in that scope"),
                std::string::npos)
          << message;
    }
  }
  set_logical_cpus(1);
}

TEST(Model, OfOneStrategyIsRefusedInTheScopeOfAnother) {
  set_logical_cpus(2, 1);
  {
    MirroredStrategy strategy, other({.devices = {"cpu:1"}});
    std::optional<Model> model;
    {
      const auto scope = strategy.scope();
      model = nn::Sequential({nn::Dense(2)}, "first");
      testing::compile(*model);
    }
    const auto evaluate = [&] { model->evaluate(points(4).batch(2)); };
    {
      const auto scope = other.scope();
      EXPECT_EQ(error_of(evaluate, Code::kFailedPrecondition),
                "evaluate: the model \"first\" was made in the scope of MirroredStrategy, not in "
                "that of another MirroredStrategy, which is current: create it in that scope");
    }
    evaluate();
  }
  set_logical_cpus(1);
}

// As one that a function has returned whose strategy was its own.
TEST(Model, ThatOutlivesItsStrategySaysSoAndItsVariablesCanBeSaved) {
  set_logical_cpus(2, 1);
  std::optional<Model> model;
  std::string trained;
  {
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    const auto scope = strategy.scope();
    model = nn::Sequential({nn::Dense(2)}, "first");
    testing::compile(*model);
    model->fit(points(20).batch(5), {.verbose = Verbose::kSilent});
    trained = testing::bits(*model);
  }
  const std::string path = testing::make_folder() + "/weights.safetensors";
  const auto expect_told = [&] {
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { testing::compile(*model); },
             [&] {
               model->build({{DType::kFloat32, {1, 2}}});
             },
             [&] { model->fit(points(4).batch(2), {.verbose = Verbose::kSilent}); },
             [&] { model->evaluate(points(4).batch(2)); },
             [&] { model->predict(points(4).batch(2)); }, [&] { model->save_weights(path); },
             [&] { model->load_weights(path); }, [&] { model->save_checkpoint(path); },
             [&] { model->load_checkpoint(path); }, [&] { model->summary(); },
             [&] { model->strategy(); }}) {
      const std::string message = error_of(call, Code::kFailedPrecondition);
      EXPECT_NE(message.find("the model \"first\" was made in the scope of "
                             "MirroredStrategy, which has ended: declare the strategy "
                             "before the model"),
                std::string::npos)
          << message;
    }
  };
  expect_told();
  {
    MirroredStrategy other({.devices = {"cpu:0"}});  // perhaps where the first one was
    const auto scope = other.scope();
    expect_told();
  }
  EXPECT_EQ(testing::bits(*model), trained);
  save_variables(path, model->variables());
  EXPECT_EQ(read_safetensors(path).tensors.size(), 2u);
  model.reset();
  set_logical_cpus(1);
}

TEST(Model, IsNotBuiltForWhatIsNoBatch) {
  const auto rows = data::from_tensor_slices({{"x", Tensor::zeros(DType::kFloat32, {4, 2, 3})},
                                              {"label", Tensor::zeros(DType::kFloat32, {4, 1})}});
  const auto mapped = rows.map([](const data::Element& row) { return row; });
  for (const auto& unbatched : {rows, mapped}) {
    auto model = nn::Sequential({nn::Flatten(), nn::Dense(1)});
    model.compile({.optimizer = optim::SGD(0.1), .loss = losses::MeanSquaredError()});
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { model.fit(unbatched, {.verbose = Verbose::kSilent}); },
             [&] { model.evaluate(unbatched); }, [&] { model.predict(unbatched); }}) {
      EXPECT_NE(error_of(call).find("add batch(n)"), std::string::npos);
      EXPECT_TRUE(model.variables().empty());
    }
    model.fit(unbatched.batch(2), {.verbose = Verbose::kSilent});
    EXPECT_EQ(model.variables()[0]->spec().shape, (Shape{6, 1}));
  }
}

TEST(Model, IsAFunctionInLoopsOfOnesOwn) {
  auto model = classifier();
  const auto forward = function([&](Value x) { return model(x); });
  const auto all = *points(5).batch(5).iterate().next();
  const Tensor by_hand = forward({all["x"]})[0], predicted = model.predict(all["x"]);
  for (int64_t i = 0; i < predicted.num_elements(); ++i) {
    EXPECT_EQ(by_hand.data<float>()[i], predicted.data<float>()[i]);
  }
}

TEST(Model, SeveralInputsAreTakenInTheOrderOfTheBatch) {
  const auto a = nn::Input({2}), b = nn::Input({3});
  auto model = nn::Functional({a, b}, nn::Dense(2)(nn::Concatenate()({a, b})));
  testing::compile(model);
  const auto data = data::from_tensor_slices({{"a", Tensor::zeros(DType::kFloat32, {6, 2})},
                                              {"label", Tensor::zeros(DType::kInt32, {6})},
                                              {"b", Tensor::zeros(DType::kFloat32, {6, 3})}});
  const auto history = model.fit(data.batch(3), {.epochs = 10, .verbose = Verbose::kSilent});
  EXPECT_LT(history["loss"].back(), history["loss"].front());
}

TEST(Model, MayBeAPartOfALargerOneThatIsTrainedWhileItKeepsItsStatistics) {
  const auto x = nn::Input({2}), z = nn::Input({2});
  const auto base = nn::Functional({x}, nn::BatchNormalization()(nn::Dense(4)(x)));
  auto model = nn::Functional({z}, nn::Dense(2)(base(z, {.training = false})));
  testing::compile(model);
  const auto value = [&](const std::string& name) {
    for (const auto& variable : model.variables())
      if (variable->name() == name) return to_string(variable->value());
    return "no variable " + name;
  };
  const std::vector<std::string> kept = {"batch_normalization/moving_mean",
                                         "batch_normalization/moving_variance"},
                                 trained = {"dense/kernel", "dense_1/kernel"};
  std::map<std::string, std::string> before;
  for (const auto& variable : model.variables()) before[variable->name()] = value(variable->name());
  model.fit(points(40).batch(10), {.verbose = Verbose::kSilent});
  for (const auto& name : kept) EXPECT_EQ(value(name), before.at(name)) << name;
  for (const auto& name : trained) EXPECT_NE(value(name), before.at(name)) << name;
  model.save_weights(testing::make_folder() + "/weights.safetensors");
}

TEST(Model, SummaryListsLayersShapesAndParameters) {
  auto model = nn::Sequential({nn::Dense(100), nn::Dense(2)});
  EXPECT_NE(error_of([&] { model.summary(); }, Code::kFailedPrecondition).find("build()"),
            std::string::npos);
  model.build({{DType::kFloat32, {1, 20}}});
  EXPECT_EQ(model.summary(),
            "Layer (type)     Output shape  Parameters\n"
            "dense (Dense)    [100]              2,100\n"
            "dense_1 (Dense)  [2]                  202\n"
            "Total parameters: 2,302\n"
            "Trainable parameters: 2,302\n"
            "Non-trainable parameters: 0\n");
  model.network().sublayers()[0].set_trainable(false);
  EXPECT_NE(model.summary().find("Trainable parameters: 202\nNon-trainable parameters: 2,100\n"),
            std::string::npos)
      << model.summary();
}

TEST(Model, ResultsHaveNamesOfTheirOwn) {
  auto model = nn::Sequential({nn::Dense(2)});
  const auto compile = [&](const std::vector<std::string>& plain,
                           const std::vector<std::string>& weighted = {}) {
    std::vector<metrics::Metric> metrics, weighted_metrics;
    for (const auto& name : plain) metrics.push_back(metrics::SparseCategoricalAccuracy(name));
    for (const auto& name : weighted)
      weighted_metrics.push_back(metrics::SparseCategoricalAccuracy(name));
    return error_of([&] {
      model.compile({.optimizer = optim::SGD(),
                     .loss = losses::SparseCategoricalCrossentropy(),
                     .metrics = metrics,
                     .weighted_metrics = weighted_metrics});
    });
  };
  EXPECT_EQ(compile({"a", "a"}),
            "compile: two results would be named \"a\"; give the metric \"a\" another name");
  EXPECT_EQ(compile({"a"}, {"b", "a"}),
            "compile: two results would be named \"a\"; give the metric \"a\" another name");
  EXPECT_EQ(compile({"loss"}),
            "compile: two results would be named \"loss\"; give the metric \"loss\" another name");
  EXPECT_EQ(compile({"val_a", "a"}),
            "compile: two results would be named \"val_a\"; give the metric \"a\" another name");
  EXPECT_EQ(compile({"a"}, {"b"}), "no error");
}

TEST(Model, FrozenLayersStayAsTheyAre) {
  set_global_seed(3);
  const auto frozen = nn::Dense(4);
  auto model = nn::Sequential({frozen, nn::Dense(2)});
  model.build({{DType::kFloat32, {1, 2}}});
  frozen.set_trainable(false);
  testing::compile(model);
  const Tensor before = frozen.variables()[0]->value().clone();
  const auto history = model.fit(points(40).batch(10), {.epochs = 3, .verbose = Verbose::kSilent});
  EXPECT_LT(history["loss"].back(), history["loss"].front());
  EXPECT_EQ(std::memcmp(frozen.variables()[0]->value().raw(), before.raw(), before.bytes()), 0);
}

}  // namespace
}  // namespace cohort
