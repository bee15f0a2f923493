#include "core/nn/layer.h"

#include <gmock/gmock.h>

#include "core/ops/math_ops.h"
#include "tests/distribute/testing.h"
#include "tests/nn/testing.h"

namespace cohort::nn {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::names;
using testing::random_tensor;
using testing::run;

const TensorSpec kImages{DType::kFloat32, {1, 8, 8, 3}};

Layer small_network() {
  return make_sequential({Conv2D(4, 3, {.activation = relu}), BatchNormalization(), MaxPool2D(),
                          Flatten(), Dense(5), Dense(2)});
}

TEST(LayerTest, NamesWeightsAsKerasDoes) {
  const Layer network = small_network();
  network.build({kImages});
  EXPECT_THAT(names(network.variables()),
              ElementsAre("conv2d/kernel", "conv2d/bias", "batch_normalization/gamma",
                          "batch_normalization/beta", "batch_normalization/moving_mean",
                          "batch_normalization/moving_variance", "dense/kernel", "dense/bias",
                          "dense_1/kernel", "dense_1/bias"));
}

TEST(LayerTest, NamesNestedLayersByTheirPath) {
  const Layer network = make_sequential(
      {Residual({Dense(3), Dense(3)}), make_sequential({Dense(2, {.name = "head"})}, "top")});
  network.build({{DType::kFloat32, {1, 3}}});
  EXPECT_THAT(names(network.variables()),
              ElementsAre("residual/dense/kernel", "residual/dense/bias", "residual/dense_1/kernel",
                          "residual/dense_1/bias", "top/head/kernel", "top/head/bias"));
}

TEST(LayerTest, NumbersStandaloneLayersWithinTheProcess) {
  const Layer a = PositionEmbedding(4), b = PositionEmbedding(4);
  run(a, {random_tensor({1, 2, 3})});
  run(b, {random_tensor({1, 2, 3})});
  EXPECT_EQ(a.name(), "position_embedding");
  EXPECT_EQ(b.name(), "position_embedding_1");
}

TEST(LayerTest, MakesTheSameWeightsForTheSameNamesAndSeed) {
  const Layer a = small_network(), b = small_network();
  a.build({kImages});
  b.build({kImages});
  EXPECT_EQ(testing::to_vector(testing::weight(a, "conv2d/kernel")),
            testing::to_vector(testing::weight(b, "conv2d/kernel")));
  const Layer c = small_network();
  set_global_seed(1);
  c.build({kImages});
  set_global_seed(0);
  EXPECT_NE(testing::to_vector(testing::weight(a, "conv2d/kernel")),
            testing::to_vector(testing::weight(c, "conv2d/kernel")));
}

TEST(LayerTest, SharesWeightsBetweenCalls) {
  const Layer dense = Dense(3, {.name = "shared"});
  const Layer network = make_sequential({dense, dense});
  network.build({{DType::kFloat32, {1, 3}}});
  EXPECT_EQ(network.variables().size(), 2u);
}

TEST(LayerTest, LeavesFrozenAndStatisticalWeightsOutOfTraining) {
  const Layer network = small_network();
  network.build({kImages});
  EXPECT_EQ(network.trainable_variables().size(), 8u);
  network.sublayers()[0].set_trainable(false);
  EXPECT_EQ(network.trainable_variables().size(), 6u);
  network.set_trainable(false);
  EXPECT_TRUE(network.trainable_variables().empty());
  EXPECT_EQ(network.variables().size(), 10u);
}

TEST(LayerTest, LeavesAFrozenVariableOutOfTraining) {
  const Layer dense = Dense(2, {.name = "dense"});
  dense.build({{DType::kFloat32, {1, 3}}});
  dense.variables()[0]->set_trainable(false);
  EXPECT_THAT(names(dense.trainable_variables()), ElementsAre("dense/bias"));
  EXPECT_EQ(dense.summary().trainable_parameters, 2);
  dense.set_trainable(false);
  dense.set_trainable(true);
  EXPECT_THAT(names(dense.trainable_variables()), ElementsAre("dense/bias")) << "thawed";
  dense.variables()[0]->set_trainable(true);
  EXPECT_EQ(dense.trainable_variables().size(), 2u);
}

TEST(LayerTest, SummarisesShapesAndParameters) {
  const Layer network = small_network();
  network.build({kImages});
  const auto layers = network.sublayers();
  const LayerSummary conv = layers[0].summary(), norm = layers[1].summary(),
                     all = network.summary();
  EXPECT_EQ(conv.type, "Conv2D");
  EXPECT_EQ(conv.output_shape, (Shape{6, 6, 4}));
  EXPECT_EQ(conv.parameters, 3 * 3 * 3 * 4 + 4);
  EXPECT_EQ(norm.parameters, 16);
  EXPECT_EQ(norm.trainable_parameters, 8);
  EXPECT_EQ(all.output_shape, Shape{2});
  EXPECT_EQ(all.parameters, 112 + 16 + (36 * 5 + 5) + 12);
}

TEST(LayerTest, FindsTheOutputSpecWithoutCreatingAnything) {
  const Layer network = small_network();
  EXPECT_EQ(network.output_spec({kImages}), (TensorSpec{DType::kFloat32, {1, 2}}));
  EXPECT_TRUE(network.variables().empty());
}

TEST(LayerTest, ReportsTheLayerTheOpAndBothShapes) {
  const Layer network = make_sequential({Dense(4), Dense(3)});
  network.build({{DType::kFloat32, {1, 5}}});
  EXPECT_EQ(error_of([&] {
              run(network, {random_tensor({2, 6})});
            }),
            "layer \"dense\" (Dense) of float32[2,6]: dense/MatMul: op MatMul(float32[2,6], "
            "float32[5,4]): inner sizes differ: a has 6 columns, b has 5 rows");
}

TEST(LayerTest, ReportsInputsThatALayerCannotTake) {
  EXPECT_EQ(
      error_of([] {
        make_sequential({Conv2D(4, 3)}).build({{DType::kFloat32, {1, 5}}});
      }),
      "layer \"conv2d\" (Conv2D) of float32[1,5]: needs images [batch, height, width, channels]");
  EXPECT_EQ(error_of([] {
              make_sequential({Embedding(4, 3)}).build({{DType::kFloat32, {1, 5}}});
            }),
            "layer \"embedding\" (Embedding) of float32[1,5]: embedding/Gather: op "
            "Gather(float32[4,3], float32[1,5]): indices must be integers, not float32");
}

TEST(LayerTest, RefusesArgumentsOutOfRangeAtOnce) {
  EXPECT_EQ(error_of([] { Dense(0); }), "Dense: units must be at least 1, got 0");
  EXPECT_EQ(error_of([] { Conv2D(8, {3, 0}); }), "Conv2D: kernel_size must be at least 1, got 0");
  EXPECT_EQ(error_of([] { Conv2D(8, 3, {.groups = 3}); }),
            "Conv2D: 8 filters cannot be divided into 3 groups");
  EXPECT_EQ(error_of([] { Dropout(1); }), "Dropout: the rate must be in [0, 1), got 1");
  EXPECT_EQ(error_of([] { make_sequential({}); }), "a Sequential network needs at least one layer");
  EXPECT_EQ(error_of([] {
              make_sequential({Dense(2, {.name = "a"}), Dense(2, {.name = "a"})})
                  .build({{DType::kFloat32, {1, 2}}});
            }),
            "two layers of one network are named \"a\"; names must differ: give one of them "
            "another when it is made");
}

TEST(LayerTest, SumsThePenaltiesOfWeights) {
  const Layer dense = Dense(1, {.kernel_initializer = initializers::constant(3),
                                .kernel_regularizer = regularizers::l1_l2(0.1, 0.01)});
  const Function f([&](const std::vector<Value>& inputs) {
    dense(inputs[0]);
    return std::vector<Value>{dense.regularization_loss()};
  });
  EXPECT_NEAR(f({random_tensor({1, 2})})[0].item(), 0.1 * 6 + 0.01 * 18, 1e-6);
}

TEST(LayerTest, DoesNotPenaliseWhatIsNotTrained) {
  const Layer dense = Dense(1, {.kernel_initializer = initializers::constant(3),
                                .bias_initializer = initializers::constant(2),
                                .kernel_regularizer = regularizers::l1(1),
                                .bias_regularizer = regularizers::l1(1)});
  dense.build({{DType::kFloat32, {1, 2}}});
  const auto penalty = [&] {
    const Function f([&](const std::vector<Value>& inputs) {
      const Value sum = dense.regularization_loss();
      return std::vector<Value>{sum.defined() ? inputs[0] + sum : inputs[0] * 1.0};
    });
    return f({Tensor::scalar(0.0F)})[0].item();
  };
  EXPECT_EQ(penalty(), 8);
  dense.variables()[0]->set_trainable(false);
  EXPECT_EQ(penalty(), 2) << "the bias";
  dense.set_trainable(false);
  EXPECT_EQ(penalty(), 0) << "none";
}

TEST(LayerTest, PenalisesByOneFactorAloneWhereTheOtherIsNotGiven) {
  const Function f([](const std::vector<Value>& inputs) {
    return std::vector<Value>{regularizers::l1_l2(0.1)(inputs[0])};
  });
  EXPECT_NEAR(f({Tensor::from<float>({2, -3}, {2})})[0].item(), 0.5, 1e-6);
}

TEST(LayerTest, PenalisesBiasesWhereAsked) {
  const auto twos = initializers::constant(2);
  EXPECT_EQ(error_of([] { regularizers::l2(-1); }),
            "l2: the factor must be finite and not negative, got -1");
  const auto penalty = regularizers::l2(0.5);
  const Conv2DOptions conv{.bias_initializer = twos, .bias_regularizer = penalty};
  for (const Layer& layer :
       {Dense(3, {.bias_initializer = twos, .bias_regularizer = penalty}), Conv2D(3, 1, conv),
        Conv2DTranspose(3, 1, conv),
        DepthwiseConv2D(1, {.bias_initializer = twos, .bias_regularizer = penalty})}) {
    const Function f([&](const std::vector<Value>& inputs) {
      layer(inputs[0]);
      return std::vector<Value>{layer.regularization_loss()};
    });
    EXPECT_NEAR(f({random_tensor({1, 2, 2, 3})})[0].item(), 0.5 * 3 * 4, 1e-6) << layer.type();
  }
}

TEST(FunctionalTest, ConnectsLayersWithBranchesAndSeveralInputs) {
  const Symbol a = Input({3}), b = Input({3}, {.name = "b"});
  const Layer shared = Dense(4);
  const Symbol joined = Concatenate()({shared(a), shared(b)});
  EXPECT_EQ(joined.shape(), Shape{8});
  const Layer network = make_functional({a, b}, Add()({Dense(2)(joined), Dense(2)(joined)}));
  const Tensor y = run(network, {random_tensor({5, 3}), random_tensor({5, 3}, 1)});
  EXPECT_EQ(y.shape(), (Shape{5, 2}));
  EXPECT_THAT(names(network.variables()),
              ElementsAre("dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias",
                          "dense_2/kernel", "dense_2/bias"));
}

TEST(FunctionalTest, CutsANetworkOutOfALargerOne) {
  const Symbol x = Input({3}), hidden = Dense(4)(x), y = Dense(2)(hidden);
  const Layer head = make_functional({hidden}, y);
  EXPECT_EQ(run(head, {random_tensor({1, 4})}).shape(), (Shape{1, 2}));
  EXPECT_EQ(head.sublayers().size(), 1u);
}

TEST(FunctionalTest, NamesLayersPastTheWeightsOfANetworkThatWasBuiltBefore) {
  const TensorSpec row{DType::kFloat32, {1, 3}};
  const Symbol x = Input({3}), z = Input({3});
  const Layer base = make_functional({x}, Dense(4)(x));
  base.build({row});
  const auto all = ElementsAre("dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias");
  for (const Layer& network :
       {make_functional({z}, Dense(2)(base(z))), make_sequential({base, Dense(2)})}) {
    network.build({row});
    EXPECT_THAT(names(network.variables()), all) << network.type();
  }
  const Layer named = make_sequential({base, Dense(2)}, "top");
  named.build({row});
  EXPECT_THAT(names(named.variables()),
              ElementsAre("dense/kernel", "dense/bias", "top/dense/kernel", "top/dense/bias"));
}

TEST(FunctionalTest, RefusesNetworksThatWereBuiltWithWeightsOfOneName) {
  const TensorSpec row{DType::kFloat32, {1, 3}};
  const auto tower = [&] {
    const Layer layers = make_sequential({Dense(4)});
    layers.build({row});
    return layers;
  };
  const Layer a = tower(), b = tower();
  const Symbol x = Input({3});
  EXPECT_EQ(error_of([&] {
              make_functional({x}, Add()({a(x), b(x)})).build({row});
            }),
            "Functional of float32[1,3]: two weights of one network are named \"dense/kernel\", "
            "those of its layers \"sequential\" and \"sequential_1\"; names must differ: give one "
            "of these, or the layer in it that has the weight, another when it is made");
  const Layer twice = make_functional({x}, Add()({a(x), a(x)}));
  twice.build({row});
  EXPECT_EQ(twice.variables().size(), 2u) << "one layer, called twice, has its weights once";
}

TEST(FunctionalTest, ALayerMayBeToldWhetherItIsTrainingWhateverTheNetworkIs) {
  const Symbol x = Input({64});
  const Layer drop = make_sequential({Dropout(0.5)});
  const Layer as_network = make_functional({x}, drop(x)),
              never = make_functional({x}, drop(x, {.training = false})),
              always = make_functional({x}, drop(x, {.training = true}));
  const Tensor ones = Tensor::full(DType::kFloat32, {1, 64}, 1);
  const auto drops = [&](const Layer& network, bool training) {
    return testing::to_vector(run(network, {ones}, training)) != testing::to_vector(ones);
  };
  for (const bool training : {false, true}) {
    EXPECT_EQ(drops(as_network, training), training);
    EXPECT_FALSE(drops(never, training));
    EXPECT_TRUE(drops(always, training));
  }
}

// What a layer of several outputs makes of tensors.
std::vector<Tensor> run_all(const Layer& layer, const std::vector<Tensor>& inputs) {
  return Function([&](const std::vector<Value>& values) { return layer.outputs(values); })(inputs);
}

// Gives x and -x.
class BothSigns final : public LayerBase {
 public:
  explicit BothSigns(std::vector<std::string> names)
      : LayerBase("BothSigns"), names_(std::move(names)) {}
  std::vector<std::string> output_names() const override { return names_; }

 protected:
  std::vector<Value> call_all(const std::vector<Value>& inputs, const CallContext&) override {
    return {inputs[0], -inputs[0]};
  }

 private:
  std::vector<std::string> names_;
};
Layer both_signs(const std::vector<std::string>& names) {
  return std::make_shared<BothSigns>(names);
}

TEST(FunctionalTest, MayHaveSeveralOutputs) {
  const Symbol x = Input({2});
  const Symbol doubled = Lambda([](const Value& v) { return v * 2.0; }, "doubled")(x);
  const std::vector<Symbol> signs = both_signs({"plus", "minus"}).outputs({doubled});
  const Layer inner = make_functional({x}, {signs[1], doubled});
  EXPECT_THAT(inner.output_names(), ElementsAre("minus", "doubled"));
  const Tensor rows = Tensor::from<float>({1, 2}, {1, 2});
  const auto results = run_all(inner, {rows});
  ASSERT_EQ(results.size(), 2u);
  testing::expect_near(results[0], {-2, -4});
  testing::expect_near(results[1], {2, 4});
  EXPECT_THAT(
      inner.output_specs({{DType::kFloat32, {5, 2}}}),
      ElementsAre(TensorSpec{DType::kFloat32, {5, 2}}, TensorSpec{DType::kFloat32, {5, 2}}));

  // Within a larger network, whose outputs have its names.
  const std::vector<Symbol> parts = inner.outputs({x});
  const Layer outer = make_functional({x}, {Add("sum")({parts[0], x}), parts[1]});
  EXPECT_THAT(outer.output_names(), ElementsAre("sum", "doubled"));
  testing::expect_near(run_all(outer, {rows})[0], {-1, -2});

  // One of several results of a layer may be the input of a part.
  const Layer part =
      make_functional({signs[1]}, Lambda([](const Value& v) { return v + 1.0; })(signs[1]));
  testing::expect_near(run(part, {rows}), {2, 3});
}

TEST(FunctionalTest, OfSeveralOutputsTellsThemByTheirNames) {
  const Symbol x = Input({2});
  const Layer shared = Dense(2, {.name = "shared"});
  const TensorSpec row{DType::kFloat32, {1, 2}};
  const auto built = [&](const Layer& layer) { return error_of([&] { layer.build({row}); }); };
  EXPECT_THAT(built(make_functional({x}, {shared(x), shared(x)})),
              HasSubstr("two of its outputs are named \"shared\"; names must differ"));
  EXPECT_THAT(built(both_signs({"plus", "plus"})), HasSubstr("two of its outputs are named"));
  EXPECT_THAT(built(both_signs({"plus", ""})), HasSubstr("one of its 2 outputs has no name"));
  EXPECT_THAT(built(both_signs({"plus"})), HasSubstr("gives 2 outputs, and has names for 1"));
  const Layer signs = both_signs({"plus", "minus"});
  for (const auto& use :
       {std::function<void()>([&] { signs(x); }),
        std::function<void()>([&] { signs.output_spec({row}); }), std::function<void()>([&] {
          run(signs, {random_tensor({1, 2})});
        })})
    EXPECT_EQ(error_of(use), "BothSigns has the outputs plus, minus: outputs() gives them all");
  EXPECT_EQ(error_of([&] { make_functional({x}, std::vector<Symbol>()); }),
            "a Functional network needs at least one output");
}

TEST(FunctionalTest, ReportsMistakesWhileDrawing) {
  const Symbol x = Input({3}), y = Input({4}, {.name = "image"});
  EXPECT_THAT(error_of([&] {
                Add()({x, y});
              }),
              HasSubstr("adds inputs of one shape, got [2,3] and [2,4]"));
  EXPECT_THAT(error_of([&] {
                make_functional({x}, Concatenate()({x, y}));
              }),
              HasSubstr("needs input \"image\", which is not among its inputs"));
  EXPECT_THAT(error_of([&] {
                make_functional({x, y}, Dense(1)(x));
              }),
              HasSubstr("does not use its input \"image\""));
  EXPECT_THAT(error_of([&] {
                make_functional({y, y}, Dense(1)(y));
              }),
              HasSubstr("input \"image\" is listed twice"));
}

TEST(FunctionalTest, TakesWhatWasDeclaredAlone) {
  const Symbol ids = Input({2}, {.dtype = DType::kInt64, .name = "ids"}),
               x = Input({3}, {.name = "numbers"});
  const Layer network =
      make_functional({ids, x}, Concatenate()({Flatten()(Embedding(4, 2)(ids)), x}));
  const Tensor two_ids = Tensor::zeros(DType::kInt64, {5, 2}), numbers = random_tensor({5, 3});
  EXPECT_EQ(run(network, {two_ids, numbers}).shape(), (Shape{5, 7}));
  EXPECT_THAT(error_of([&] {
                run(network, {two_ids, random_tensor({5, 4})});
              }),
              HasSubstr("the network's input 1 \"numbers\" is declared with rows of float32[3], "
                        "got a batch float32[5,4]"));
  EXPECT_THAT(error_of([&] {
                run(network, {two_ids.cast(DType::kInt32), numbers});
              }),
              HasSubstr("the network's input 0 \"ids\" is declared with rows of int64[2], "
                        "got a batch int32[5,2]"));
}

// A layer of a user's own.
class Scale final : public LayerBase {
 public:
  Scale() : LayerBase("Scale") {}

 protected:
  void build(const std::vector<TensorSpec>&) override {
    factor_ = &add_weight("factor", {}, {.initializer = initializers::constant(2)});
  }
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    return inputs[0] * factor_->read();
  }

 private:
  Weight* factor_ = nullptr;
};

// Adds what it has computed when it was first called.
class Remembering final : public LayerBase {
 public:
  Remembering() : LayerBase("Remembering") {}

 protected:
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    if (!kept_.defined()) kept_ = inputs[0] * 2.0;
    return inputs[0] + kept_;
  }

 private:
  Value kept_;
};

TEST(LayerTest, RefusesAValueThatWasKeptFromARehearsal) {
  const Layer layer = std::make_shared<Remembering>();
  layer.build({{DType::kFloat32, {1, 2}}});
  EXPECT_THAT(error_of(
                  [&] {
                    run(layer, {random_tensor({1, 2})});
                  },
                  Code::kFailedPrecondition),
              ::testing::AllOf(HasSubstr("(Remembering)"),
                               HasSubstr("mixes values of different functions")));
}

TEST(LayerTest, AcceptsLayersOfUsers) {
  const Layer network =
      make_sequential({std::make_shared<Scale>(), Lambda([](Value x) { return x + 1.0; })});
  testing::expect_near(run(network, {Tensor::from<float>({1, 2}, {2, 1})}), {3, 5});
  EXPECT_THAT(names(network.variables()), ElementsAre("scale/factor"));
}

// A layer of a user's own that adds up what all replicas are given, and takes a quarter off again.
class Total final : public LayerBase {
 public:
  Total() : LayerBase("Total") {}

 protected:
  void build(const std::vector<TensorSpec>&) override {
    total_ = &add_weight("total", {},
                         {.initializer = initializers::zeros(),
                          .trainable = false,
                          .aggregation = Aggregation::kSum});
  }
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    const Value sum = ops::reduce_sum(inputs[0]);
    total_->assign_add(sum);
    total_->assign_sub(sum * 0.25);
    return inputs[0];
  }

 private:
  Weight* total_ = nullptr;
};

class LayerReplicasTest : public testing::ReplicasTest {};
COHORT_FOR_ALL_REPLICAS(LayerReplicasTest);

TEST_P(LayerReplicasTest, AddsToAWeightWhatReplicasAddAndNothingWhileShapesAreFound) {
  const auto scope = strategy.scope();
  const Layer layer = std::make_shared<Total>();
  layer.output_spec({{DType::kFloat32, {1}}});
  const auto step = strategy.function([&](Value x) { return layer(x); });
  for (int run = 0; run < 2; ++run)
    strategy.run(step, each([](int r) { return testing::floats({static_cast<float>(r + 1)}); }));
  const int of_one_run = replicas() * (replicas() + 1) / 2;
  EXPECT_EQ(testing::weight(layer, "total").item(), 2 * 0.75 * of_one_run);
}

// A layer whose head is made when it is built.
class Headed final : public LayerBase {
 public:
  Headed() : LayerBase("Headed") {}
  std::vector<Layer> sublayers() const override {
    return head_ ? std::vector{body_, head_} : std::vector{body_};
  }

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    head_ = Dense(inputs.at(0).shape.dim(-1));
  }
  Value call(const std::vector<Value>& inputs, const CallContext& context) override {
    return head_(body_(inputs.at(0), context), context);
  }

 private:
  Layer body_ = Dense(3), head_;
};

TEST(LayerTest, NamesWhatALayerMakesWhenItIsBuiltAsItsOtherSublayers) {
  for (int model = 0; model < 2; ++model) {
    const Layer network = make_sequential({std::make_shared<Headed>()});
    network.build({{DType::kFloat32, {1, 4}}});
    EXPECT_THAT(names(network.variables()),
                ElementsAre("headed/dense/kernel", "headed/dense/bias", "headed/dense_1/kernel",
                            "headed/dense_1/bias"));
  }
}

TEST(LayerTest, FreezesWhatAFrozenLayerMakesWhenItIsBuilt) {
  const Layer headed = std::make_shared<Headed>();
  const Layer network = make_sequential({headed});
  network.set_trainable(false);
  headed.sublayers()[0].set_trainable(true);
  network.build({{DType::kFloat32, {1, 4}}});
  EXPECT_THAT(names(network.trainable_variables()),
              ElementsAre("headed/dense/kernel", "headed/dense/bias"))
      << "what was thawed before stays so";
  network.set_trainable(true);
  EXPECT_EQ(network.trainable_variables().size(), 4u);
}

// A layer of a user's own that does not say what it is made of.
class Forgetful final : public LayerBase {
 public:
  explicit Forgetful(Layer inner) : LayerBase("Forgetful"), inner_(std::move(inner)) {}

 protected:
  Value call(const std::vector<Value>& inputs, const CallContext& context) override {
    return ActivationLayer(relu)(inner_(inputs, context), context);
  }

 private:
  Layer inner_;
};

TEST(LayerTest, WarnsOnceOfWeightsThatNobodyListsForTraining) {
  const auto warning_of = [](const Layer& inner) {
    const Layer outer = make_sequential({std::make_shared<Forgetful>(inner)});
    ::testing::internal::CaptureStderr();
    for (const int64_t rows : {1, 2}) run(outer, {random_tensor({rows, 3})});
    EXPECT_TRUE(outer.variables().empty());
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(
      warning_of(Dense(2, {.name = "inner"})),
      "warning: no sublayers() list layer \"forgetful/inner\" (Dense), which a Forgetful calls: "
      "its weights are neither trained nor saved with the network\n");
  EXPECT_EQ(warning_of(make_sequential({Dense(2)}, "deep")),
            "warning: no sublayers() list layer \"forgetful/deep\" (Sequential), which a Forgetful "
            "calls: its weights are neither trained nor saved with the network\n");
  const Layer frozen = Dense(2);
  frozen.set_trainable(false);
  EXPECT_EQ(warning_of(frozen), "");

  const Layer shared = Dense(3);
  ::testing::internal::CaptureStderr();
  run(make_sequential({shared, std::make_shared<Forgetful>(shared)}), {random_tensor({2, 3})});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "of what another layer lists";
}

}  // namespace
}  // namespace cohort::nn
