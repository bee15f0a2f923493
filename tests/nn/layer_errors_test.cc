// What each layer says of inputs that it cannot take.
#include <gmock/gmock.h>

#include "core/base/comma_separated.h"
#include "tests/nn/testing.h"

namespace cohort::nn {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A layer named "x", what it is built for (nothing: it is not), inputs that it cannot take then,
// and what of the layer and its weights the error has to tell, next to the inputs.
struct Refusal {
  Layer layer;
  std::vector<TensorSpec> built_for, inputs;
  std::string said;
};

TensorSpec floats(const Shape& shape) { return {DType::kFloat32, shape}; }
TensorSpec doubles(const Shape& shape) { return {DType::kFloat64, shape}; }
TensorSpec integers(const Shape& shape) { return {DType::kInt32, shape}; }

std::vector<Refusal> refusals() {
  const TensorSpec image = floats({1, 8, 8, 3}), row = floats({2, 5}), ids = integers({2, 5}),
                   words = floats({2, 3, 8}), no_image = floats({1, 5});
  const char* needs_images = "(%s) of float32[1,5]: needs images [batch, height, width, channels]";
  const auto says = [](std::string text, const std::string& type) {
    return text.replace(text.find("%s"), 2, type);
  };
  const Symbol declared = Input({2}, {.name = "age"});
  std::vector<Refusal> all = {
      {Dense(4, {.name = "x"}),
       {},
       {floats({5})},
       "(Dense) of float32[5]: needs an input of rank 2"},
      {Dense(4, {.name = "x"}), {row}, {floats({2, 6})}, "op MatMul(float32[2,6], float32[5,4]): "},
      {Dense(4, {.name = "x"}), {row}, {doubles({2, 5})}, "op MatMul(float64[2,5], float32[5,4])"},
      {Dense(4, {.name = "x"}), {}, {ids}, "op MatMul(int32[2,5], float32[5,4]): "},
      {Conv2D(4, 3, {.name = "x"}), {}, {no_image}, says(needs_images, "Conv2D")},
      {Conv2D(4, 3, {.name = "x"}), {image}, {no_image}, says(needs_images, "Conv2D")},
      {Conv2D(4, 3, {.name = "x"}),
       {image},
       {floats({1, 8, 8, 2})},
       "op Conv2D(float32[1,8,8,2], float32[3,3,3,4]): "},
      {Conv2D(4, 3, {.name = "x"}), {image}, {doubles({1, 8, 8, 3})}, "the filter is float32"},
      {Conv2D(4, 3, {.groups = 2, .name = "x"}), {}, {image}, "3 input channels"},
      {Conv2DTranspose(4, 3, {.name = "x"}), {}, {no_image}, says(needs_images, "Conv2DTranspose")},
      {Conv2DTranspose(4, 3, {.name = "x"}),
       {image},
       {no_image},
       says(needs_images, "Conv2DTranspose")},
      {Conv2DTranspose(4, 3, {.name = "x"}),
       {image},
       {floats({1, 8, 8, 2})},
       "op Conv2DGradInput(float32[1,8,8,2], float32[3,3,4,3]): "},
      {DepthwiseConv2D(3, {.name = "x"}), {}, {no_image}, says(needs_images, "DepthwiseConv2D")},
      {DepthwiseConv2D(3, {.name = "x"}),
       {image},
       {floats({1, 8, 8, 2})},
       "(DepthwiseConv2D) of float32[1,8,8,2]: was built for inputs with 3 features, with weights "
       "float32[3,3,3,1]"},
      {SeparableConv2D(4, 3, {.name = "x"}), {}, {no_image}, says(needs_images, "SeparableConv2D")},
      {SeparableConv2D(4, 3, {.name = "x"}),
       {image},
       {floats({1, 8, 8, 2})},
       "(SeparableConv2D) of float32[1,8,8,2]: was built for inputs with 3 features, with weights "
       "float32[3,3,3,1]"},
      {Permute({2, 1}, "x"), {}, {row}, "axis 2 is out of range for shape [2,5]"},
      {Softmax(2, "x"), {}, {row}, "(Softmax) of float32[2,5]: "},
      {BatchNormalization({.name = "x"}),
       {},
       {floats({5})},
       "(BatchNormalization) of float32[5]: "},
      {BatchNormalization({.name = "x"}),
       {row},
       {floats({2, 1})},
       "inputs with 5 features, with weights float32[5]"},
      {SyncBatchNormalization({.name = "x"}),
       {row},
       {floats({2, 6})},
       "inputs with 5 features, with weights float32[5]"},
      {LayerNormalization({.name = "x"}),
       {},
       {floats({5})},
       "(LayerNormalization) of float32[5]: "},
      {LayerNormalization({.name = "x"}),
       {row},
       {floats({2, 6})},
       "op LayerNorm(float32[2,6], float32[5], float32[5]): "},
      {RMSNorm({.name = "x"}), {}, {floats({5})}, "(RMSNormalization) of float32[5]: "},
      {RMSNorm({.name = "x"}), {row}, {floats({2, 6})}, "op RmsNorm(float32[2,6], float32[5]): "},
      {Embedding(4, 3, {.name = "x"}), {}, {row}, "op Gather(float32[4,3], float32[2,5]): "},
      {Embedding(4, 3, {.name = "x"}), {ids}, {row}, "op Gather(float32[4,3], float32[2,5]): "},
      {EmbeddingBag(4, 3, {.name = "x"}), {}, {row}, "ids must be integers, not float32"},
      {EmbeddingBag(4, 3, {.name = "x"}),
       {},
       {ids, floats({2, 4})},
       "weights must be float32[2,5], is float32[2,4]"},
      {PositionEmbedding(4, {.name = "x"}), {}, {floats({5})}, "needs an input of rank 2"},
      {PositionEmbedding(4, {.name = "x"}),
       {},
       {floats({1, 5, 2})},
       "has 4 positions, the input has 5"},
      {PositionEmbedding(4, {.name = "x"}),
       {floats({1, 3, 2})},
       {floats({1, 3, 1})},
       "(PositionEmbedding) of float32[1,3,1]: was built for inputs with 2 features, with weights "
       "float32[4,2]"},
      {MultiHeadAttention(2, 4, {.name = "x"}),
       {},
       {row},
       "(MultiHeadAttention) of float32[2,5]: "},
      {MultiHeadAttention(2, 4, {.name = "x"}),
       {},
       {words, row},
       "(MultiHeadAttention) of float32[2,3,8], float32[2,5]: needs inputs [batch, t, features]"},
      {MultiHeadAttention(2, 4, {.name = "x"}),
       {},
       {words, floats({1, 3, 8})},
       "op Attention(float32[2,3,2,4], float32[1,3,2,4], float32[1,3,2,4]): "},
      {MultiHeadAttention(2, 4, {.name = "x"}),
       {words},
       {floats({2, 3, 6})},
       "op MatMul(float32[2,3,6], float32[8,8]): "},
      {MultiHeadAttention(2, 4, {.name = "x"}),
       {},
       {words, words, words, words},
       "takes x, or query and value"},
      {MultiHeadAttention(2, 4, {.name = "x"}),
       {},
       {words, {DType::kBool, {2}}},
       "needs a mask [batch, keys], [batch, queries, keys] or [batch, heads, queries, keys]"},
      {MultiHeadAttention(2, 4, {.name = "x"}),
       {},
       {words, {DType::kBool, {2, 4}}},
       "a mask of shape [2,1,1,4] does not broadcast to [batch, heads, queries, keys], [2,2,3,3]"},
      {Reshape({3}, "x"), {}, {floats({2, 4})}, "op Reshape(float32[2,4]): "},
      {Add("x"), {}, {row, floats({2, 1})}, "(Add) of float32[2,5], float32[2,1]: adds inputs of "},
      {Add("x"), {}, {row, doubles({2, 5})}, "op Add(float32[2,5], float64[2,5]): "},
      {Concatenate(-1, "x"), {}, {row, floats({3, 5})}, "op Concat(float32[2,5], float32[3,5]): "},
      {Residual({Dense(4)}, {}, {.name = "x"}),
       {},
       {row},
       "(Residual) of float32[2,5]: the inner layers give [2,4], the shortcut [2,5]"},
      {make_sequential({Dense(4)}, "x"), {}, {floats({5})}, "/dense\" (Dense) of float32[5]: "},
      {make_functional({declared}, Dense(1)(declared), "x"),
       {},
       {floats({2, 3})},
       "(Functional) of float32[2,3]: the network's input 0 \"age\" is declared with rows of "
       "float32[2]"},
  };
  for (const Layer& pooling :
       {MaxPool2D(2, {.name = "x"}), AveragePooling2D(2, {.name = "x"}),
        GlobalAveragePooling2D("x"), GlobalMaxPool2D("x"), UpSampling2D(2, {.name = "x"}),
        ZeroPadding2D(Padding::explicit_padding(1, 1), "x")}) {
    all.push_back({pooling, {}, {no_image}, says(needs_images, pooling.type())});
    all.push_back({pooling, {image}, {no_image}, says(needs_images, pooling.type())});
  }
  for (const Layer& of_one : {Dropout(0.5, "x"), ActivationLayer(relu, "x"), Flatten("x"),
                              Lambda([](const Value& x) { return x; }, "x")})
    all.push_back({of_one, {}, {row, row}, "takes 1 input, got 2"});
  return all;
}

TEST(LayerErrors, NameTheLayerItsInputsAndWhatItsWeightsAre) {
  for (const Refusal& each : refusals()) {
    if (!each.built_for.empty()) each.layer.build(each.built_for);
    EXPECT_THAT(
        error_of([&] { each.layer.output_spec(each.inputs); }),
        AllOf(StartsWith("layer \"x"), HasSubstr(str(" of ", comma_separated(each.inputs), ": ")),
              HasSubstr(each.said)))
        << each.layer.type();
  }
}

TEST(LayerErrors, SayThatALayerIsEmpty) {
  const Layer empty;
  const std::vector<TensorSpec> row = {floats({1, 2})};
  const std::string said = "an empty layer was used; it was never assigned";
  EXPECT_EQ(error_of([&] { empty.output_spec(row); }), said);
  EXPECT_EQ(error_of([&] { empty.build(row); }), said);
  EXPECT_EQ(error_of([] { Layer(std::shared_ptr<LayerBase>()).variables(); }), said);
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { empty.name(); }, [&] { empty.type(); }, [&] { empty.trainable(); },
           [&] { empty.set_trainable(true); }, [&] { empty.sublayers(); }, [&] { empty.built(); },
           [&] { empty.summary(); }})
    EXPECT_EQ(error_of(use), said);
}

TEST(LayerErrors, SayWhichLayerListsAnEmptyOne) {
  struct WithEmpty final : LayerBase {
    WithEmpty() : LayerBase("WithEmpty", "x") {}
    std::vector<Layer> sublayers() const override { return {Layer()}; }
  };
  const Layer layer = std::make_shared<WithEmpty>();
  const std::string said = "layer \"x\" (WithEmpty) has an empty layer among its sublayers";
  EXPECT_EQ(error_of([&] { layer.build({floats({1, 2})}); }), said);
  EXPECT_EQ(error_of([&] { layer.variables(); }), said);
  EXPECT_EQ(error_of([&] { layer.set_trainable(false); }), said);
  EXPECT_EQ(error_of([&] { make_sequential({layer}, "y").variables(); }), said);
}

TEST(LayerErrors, SayWhoseInitializerIsEmpty) {
  EXPECT_THAT(error_of([] {
                Dense(2, {.kernel_initializer = {}}).build({floats({1, 2})});
              }),
              HasSubstr("/kernel\" is an empty function"));
}

TEST(LayerErrors, OfALayerWithoutInputsNameNone) {
  EXPECT_THAT(error_of([] { Add("x").output_spec({}); }),
              StartsWith("layer \"x\" (Add): adds at least 2 inputs, got 0"));
}

// A network that was not given a name has none to tell.
TEST(LayerErrors, OfANetworkWithoutANameTellItsType) {
  const Symbol x = Input({2});
  EXPECT_THAT(
      error_of([&] {
        make_functional({x}, Dense(1)(x)).output_spec({floats({2, 3})});
      }),
      StartsWith("Functional of float32[2,3]: the network's input 0 \"input\" is declared"));
}

}  // namespace
}  // namespace cohort::nn
