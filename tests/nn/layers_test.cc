#include "core/nn/layers.h"

#include <cmath>

#include "core/graph/gradients.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "tests/nn/testing.h"
#include "tests/testing/gradient_check.h"

namespace cohort::nn {
namespace {

using testing::expect_near;
using testing::random_tensor;
using testing::run;
using testing::to_vector;
using testing::weight;

Shape output_shape(const Layer& layer, const Shape& input, DType dtype = DType::kFloat32) {
  return layer.output_spec({{dtype, input}}).shape;
}

TEST(DenseTest, MultipliesAddsAndActivates) {
  const Layer dense = Dense(2, {.activation = relu,
                                .kernel_initializer = initializers::constant(2),
                                .bias_initializer = initializers::constant(-5)});
  expect_near(run(dense, {Tensor::from<float>({1, 1, 3, 4}, {2, 2})}), {0, 0, 9, 9});
  EXPECT_EQ(output_shape(Dense(7), {2, 3, 4}), (Shape{2, 3, 7}));
}

TEST(ConvolutionTest, HasTheShapesOfKeras) {
  const Shape image{2, 9, 8, 4};
  EXPECT_EQ(output_shape(Conv2D(6, 3), image), (Shape{2, 7, 6, 6}));
  EXPECT_EQ(output_shape(Conv2D(6, {3, 5}, {.strides = 2, .padding = Padding::same()}), image),
            (Shape{2, 5, 4, 6}));
  EXPECT_EQ(output_shape(Conv2D(6, 3, {.dilations = 2, .groups = 2}), image), (Shape{2, 5, 4, 6}));
  EXPECT_EQ(output_shape(DepthwiseConv2D(3, {.depth_multiplier = 2}), image), (Shape{2, 7, 6, 8}));
  EXPECT_EQ(output_shape(Conv2DTranspose(6, 3, {.strides = 2, .padding = Padding::same()}), image),
            (Shape{2, 18, 16, 6}));
  EXPECT_EQ(output_shape(Conv2DTranspose(6, 3, {.strides = 2}), image), (Shape{2, 19, 17, 6}));
  // Of PyTorch, where the stride leaves gaps.
  EXPECT_EQ(output_shape(Conv2DTranspose(6, 2, {.strides = 3}), {2, 4, 4, 4}),
            (Shape{2, 11, 11, 6}));
}

TEST(ConvolutionTest, KeepsChannelsApartWhenDepthwise) {
  const Layer layer =
      DepthwiseConv2D(1, {.depth_multiplier = 2, .bias_initializer = initializers::ones()});
  const Tensor x = random_tensor({1, 1, 1, 3});
  const auto y = to_vector(run(layer, {x})), k = to_vector(weight(layer, "kernel")),
             in = to_vector(x);
  for (size_t c = 0; c < 3; ++c)
    for (size_t m = 0; m < 2; ++m) EXPECT_NEAR(y[c * 2 + m], in[c] * k[c * 2 + m] + 1, 1e-6);
}

TEST(ConvolutionTest, TakesDepthwiseKernelsAndTheirPenaltyAsGiven) {
  const Layer layer = DepthwiseConv2D(1, {.use_bias = false,
                                          .depthwise_initializer = initializers::constant(3),
                                          .depthwise_regularizer = regularizers::l2(0.5)});
  expect_near(run(layer, {Tensor::from<float>({1, -2}, {1, 1, 1, 2})}), {3, -6});
  const Function penalty(
      [&](const std::vector<Value>&) { return std::vector<Value>{layer.regularization_loss()}; });
  expect_near(penalty({})[0], {9});
}

TEST(ConvolutionTest, OfEachChannelAndThenOfPixelsIsSeparable) {
  const SeparableConv2DOptions options{.strides = 2,
                                       .padding = Padding::same(),
                                       .depth_multiplier = 2,
                                       .bias_initializer = initializers::constant(0.5)};
  const Layer layer = SeparableConv2D(4, 3, options);
  const Tensor x = random_tensor({2, 5, 6, 3}), y = run(layer, {x});
  EXPECT_EQ(y.shape(), (Shape{2, 3, 3, 4}));
  const Tensor by_channel = weight(layer, "/depthwise_kernel"),
               by_pixel = weight(layer, "/pointwise_kernel");
  EXPECT_EQ(by_channel.shape(), (Shape{3, 3, 3, 2}));
  EXPECT_EQ(by_pixel.shape(), (Shape{1, 1, 6, 4}));
  const auto as_given = [](const Tensor& value) {
    return [value](const TensorSpec&, uint64_t) { return value.clone(); };
  };
  const Layer two =
      make_sequential({DepthwiseConv2D(3, {.strides = 2,
                                           .padding = Padding::same(),
                                           .depth_multiplier = 2,
                                           .use_bias = false,
                                           .depthwise_initializer = as_given(by_channel)}),
                       Conv2D(4, 1,
                              {.kernel_initializer = as_given(by_pixel),
                               .bias_initializer = initializers::constant(0.5)})});
  expect_near(y, to_vector(run(two, {x})));
}

TEST(ResizingTest, PadsWithZeros) {
  const Tensor x = Tensor::from<float>({1, 2}, {1, 1, 2, 1});
  expect_near(run(ZeroPadding2D(), {x}), {0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0});
  expect_near(run(ZeroPadding2D({Padding::Kind::kExplicit, 1, 0, 0, 2}), {x}),
              {0, 0, 0, 0, 1, 2, 0, 0});
  EXPECT_EQ(testing::error_of([] { ZeroPadding2D(Padding::same()); }),
            "ZeroPadding2D: the padding must be explicit and not negative");
  EXPECT_EQ(testing::error_of([] { ZeroPadding2D(Padding::explicit_padding(0, -1)); }),
            "ZeroPadding2D: the padding must be explicit and not negative");
}

TEST(ResizingTest, RepeatsPixels) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 2, 2});
  expect_near(run(UpSampling2D({2, 1}), {x}), {1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8});
  expect_near(run(UpSampling2D({1, 2}), {x}), {1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5, 6, 7, 8, 7, 8});
  EXPECT_EQ(output_shape(UpSampling2D(), {3, 4, 5, 2}), (Shape{3, 8, 10, 2}));
  EXPECT_EQ(testing::error_of([] {
              UpSampling2D({2, 0});
            }),
            "UpSampling2D: size must be at least 1, got 0");
}

// As tf.image.resize does, whose pixels have their centres in the middle.
TEST(ResizingTest, InterpolatesBetweenPixels) {
  const UpSampling2DOptions bilinear{.interpolation = Interpolation::kBilinear};
  const Tensor row = Tensor::from<float>({0, 4, 12}, {1, 1, 3, 1});
  expect_near(run(UpSampling2D({1, 2}, bilinear), {row}), {0, 1, 3, 6, 10, 12});
  const Tensor x = Tensor::from<float>({0, 10, 4, 20, 8, 30, 12, 40}, {1, 2, 2, 2});
  expect_near(run(UpSampling2D(2, bilinear), {x}), {0, 10, 1, 12.5, 3,  17.5, 4,  20,  //
                                                    2, 15, 3, 17.5, 5,  22.5, 6,  25,  //
                                                    6, 25, 7, 27.5, 9,  32.5, 10, 35,  //
                                                    8, 30, 9, 32.5, 11, 37.5, 12, 40});
  expect_near(run(UpSampling2D(3, bilinear), {Tensor::full(DType::kFloat32, {1, 2, 3, 1}, 7)}),
              std::vector<double>(54, 7));
}

TEST(ResizingTest, HasGradients) {
  for (const Interpolation interpolation : {Interpolation::kNearest, Interpolation::kBilinear}) {
    const Layer layer = UpSampling2D(2, {.interpolation = interpolation});
    testing::check_gradients([&](const std::vector<Value>& in) { return layer(in[0]); },
                             {{{2, 2, 3, 2}}});
  }
  testing::check_gradients([](const std::vector<Value>& in) { return ZeroPadding2D()(in[0]); },
                           {{{1, 2, 3, 2}}});
}

TEST(PoolingTest, PoolsWindowsAndWholeImages) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {1, 2, 2, 1});
  expect_near(run(MaxPool2D(), {x}), {4});
  expect_near(run(AveragePooling2D(), {x}), {2.5});
  expect_near(run(GlobalAveragePooling2D(), {x}), {2.5});
  expect_near(run(GlobalMaxPool2D(), {x}), {4});
  EXPECT_EQ(output_shape(MaxPool2D(3, {.strides = 2, .padding = Padding::same()}), {1, 7, 7, 2}),
            (Shape{1, 4, 4, 2}));
  EXPECT_EQ(output_shape(GlobalMaxPool2D(), {3, 7, 7, 2}), (Shape{3, 2}));
}

TEST(ShapeLayersTest, ChangeShapesAndKeepTheBatch) {
  EXPECT_EQ(output_shape(Flatten(), {5, 2, 3}), (Shape{5, 6}));
  EXPECT_EQ(output_shape(Flatten(), {5}), (Shape{5, 1}));
  EXPECT_EQ(output_shape(Reshape({3, -1}), {5, 6}), (Shape{5, 3, 2}));
  // As of a replica whose share of a batch has no rows.
  EXPECT_EQ(output_shape(Flatten(), {0, 2, 3}), (Shape{0, 6}));
  EXPECT_EQ(output_shape(Reshape({3, -1}), {0, 6}), (Shape{0, 3, 2}));
}

TEST(ShapeLayersTest, PermuteAxesCountedFromOne) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {1, 2, 3});
  expect_near(run(Permute({2, 1}), {x}), {1, 4, 2, 5, 3, 6});
  EXPECT_EQ(output_shape(Permute({3, 1, 2}), {7, 2, 3, 4}), (Shape{7, 4, 2, 3}));
  EXPECT_EQ(testing::error_of([] {
              Permute({0, 1});
            }),
            "Permute: the order must have each axis from 1 to the last once, got 0, 1");
}

TEST(ShapeLayersTest, TakeTheSoftmaxOfAnyAxis) {
  const float three = std::log(3.0F);
  const Tensor x = Tensor::from<float>({0, 0, three, 0}, {1, 2, 2});
  expect_near(run(Softmax(), {x}), {0.5, 0.5, 0.75, 0.25});
  expect_near(run(Softmax(1), {x}), {0.25, 0.5, 0.75, 0.5});
}

TEST(ShapeLayersTest, RefuseExtentsThatAreNone) {
  EXPECT_EQ(testing::error_of([] {
              Reshape({-1, 2, -1});
            }),
            "Reshape: one extent may be -1, the others are at least 0, got -1, 2, -1");
  EXPECT_EQ(testing::error_of([] { Reshape({-2}); }),
            "Reshape: one extent may be -1, the others are at least 0, got -2");
}

TEST(DropoutTest, DropsInTrainingOnly) {
  const Tensor x = Tensor::full(DType::kFloat32, {100, 100}, 1);
  expect_near(run(Dropout(0.25), {x}), to_vector(x));
  int dropped = 0;
  double sum = 0;
  for (const double y : to_vector(run(Dropout(0.25), {x}, true))) {
    dropped += y == 0;
    sum += y;
  }
  EXPECT_NEAR(dropped, 2500, 200);
  EXPECT_NEAR(sum, 10000, 300);
}

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const std::vector<double>& values) {
  Moments m;
  for (const double v : values) m.mean += v / static_cast<double>(values.size());
  for (const double v : values)
    m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  return m;
}

TEST(BatchNormalizationTest, NormalisesByTheBatchAndMovesItsStatistics) {
  const Layer layer = BatchNormalization();
  const std::vector<double> in = {1, 2, 3, 10};
  const Tensor x = Tensor::from<float>({1, 2, 3, 10}, {4, 1});
  const Moments m = moments(in);
  const auto y = to_vector(run(layer, {x}, true));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(y[i], (in[i] - m.mean) / std::sqrt(m.variance + 1e-3), 1e-5);
  EXPECT_NEAR(weight(layer, "moving_mean").item(), 0.01 * m.mean, 1e-6);
  EXPECT_NEAR(weight(layer, "moving_variance").item(), 0.99 + 0.01 * m.variance, 1e-5);
}

TEST(BatchNormalizationTest, UsesMovingStatisticsOutsideTrainingAndWhenFrozen) {
  const Layer layer =
      BatchNormalization({.momentum = 0, .epsilon = 0, .center = false, .scale = false});
  const Tensor x = Tensor::from<float>({2, 6}, {2, 1});
  run(layer, {x}, true);
  const Tensor other = Tensor::from<float>({8}, {1, 1});
  expect_near(run(layer, {other}), {2});
  layer.set_trainable(false);
  expect_near(run(layer, {other}, true), {2});
  EXPECT_EQ(weight(layer, "moving_mean").item(), 4);
  EXPECT_EQ(layer.variables().size(), 2u);
}

TEST(BatchNormalizationTest, LeavesItsStatisticsAloneWithoutRows) {
  const Layer layer = BatchNormalization();
  EXPECT_EQ(run(layer, {Tensor(DType::kFloat32, {0, 2})}, true).shape(), (Shape{0, 2}));
  expect_near(weight(layer, "moving_mean"), {0, 0});
  expect_near(weight(layer, "moving_variance"), {1, 1});
}

TEST(LayerNormalizationTest, NormalisesEachRow) {
  const Tensor x = random_tensor({2, 5});
  const auto in = to_vector(x), y = to_vector(run(LayerNormalization(), {x})),
             z = to_vector(run(RMSNorm(), {x}));
  for (size_t r = 0; r < 2; ++r) {
    const Moments m = moments({in.begin() + 5 * r, in.begin() + 5 * r + 5});
    for (size_t i = 5 * r; i < 5 * r + 5; ++i) {
      EXPECT_NEAR(y[i], (in[i] - m.mean) / std::sqrt(m.variance + 1e-3), 1e-5);
      EXPECT_NEAR(z[i], in[i] / std::sqrt(m.variance + m.mean * m.mean + 1e-6), 1e-5);
    }
  }
}

TEST(EmbeddingTest, LooksUpRowsAndAddsPositions) {
  const Layer words = Embedding(5, 2), positions = PositionEmbedding(4);
  const auto y = to_vector(
      run(make_sequential({words, positions}), {Tensor::from<int32_t>({3, 0, 3}, {1, 3})}));
  const auto w = to_vector(weight(words, "embeddings")),
             p = to_vector(weight(positions, "embeddings"));
  const size_t ids[] = {3, 0, 3};
  for (size_t t = 0; t < 3; ++t)
    for (size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(y[2 * t + i], w[2 * ids[t] + i] + p[2 * t + i], 1e-6);
  EXPECT_NE(testing::error_of([&] {
              run(positions, {random_tensor({1, 5, 2})});
            }).find("of float32[1,5,2]: has 4 positions, the input has 5"),
            std::string::npos);
}

TEST(EmbeddingTest, BeginsWithTheTableAskedFor) {
  const EmbeddingOptions options{.embeddings_initializer = initializers::constant(2)};
  const Tensor ids = Tensor::from<int32_t>({1, 0}, {1, 2});
  expect_near(run(Embedding(3, 1, options), {ids}), {2, 2});
  expect_near(run(EmbeddingBag(3, 1,
                               {.combiner = ops::Combiner::kSum,
                                .embeddings_initializer = initializers::constant(2)}),
                  {ids}),
              {4});
  expect_near(run(PositionEmbedding(2, options), {Tensor::zeros(DType::kFloat32, {1, 2, 1})}),
              {2, 2});
}

TEST(EmbeddingTest, CombinesTheRowsOfABag) {
  const Layer bag = EmbeddingBag(5, 2, {.combiner = ops::Combiner::kSum, .default_id = 4});
  const Tensor ids = Tensor::from<int32_t>({3, 0, -1, -1, -1, 1}, {3, 2}),
               weights = Tensor::from<float>({2, 3, 1, 1, 1, 0.5}, {3, 2});
  const Tensor plain = run(bag, {ids}), weighed = run(bag, {ids, weights});
  EXPECT_EQ(testing::names(bag.variables()), std::vector<std::string>{bag.name() + "/embeddings"});
  const auto w = to_vector(weight(bag, "embeddings"));
  testing::expect_near(plain, {w[6] + w[0], w[7] + w[1], w[8], w[9], w[2], w[3]}, 1e-6);
  testing::expect_near(
      weighed, {2 * w[6] + 3 * w[0], 2 * w[7] + 3 * w[1], w[8], w[9], w[2] / 2, w[3] / 2}, 1e-6);
  EXPECT_NE(testing::error_of([&] {
              run(EmbeddingBag(5, 2), {ids, weights, weights});
            }).find("takes ids, or ids and weights; got 3 inputs"),
            std::string::npos);
}

std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, size_t n) {
  const size_t k = b.size() / n, m = a.size() / k;
  std::vector<double> out(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      for (size_t l = 0; l < k; ++l) out[i * n + j] += a[i * k + l] * b[l * n + j];
  return out;
}

// By the Dense sublayer `name`, whose bias there may be.
std::vector<double> project(const Layer& layer, const std::string& name,
                            const std::vector<double>& x, size_t width) {
  auto y = product(x, to_vector(weight(layer, name + "/kernel")), width);
  if (layer.variables().size() == 4) return y;
  const auto bias = to_vector(weight(layer, name + "/bias"));
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % width];
  return y;
}

// One sequence of attention, written out.
std::vector<double> attend(const Layer& layer, const std::vector<double>& query,
                           const std::vector<double>& value, const std::vector<double>& key,
                           size_t heads, size_t size, bool causal) {
  const size_t width = heads * size;
  const auto q = project(layer, "query", query, width), k = project(layer, "key", key, width),
             v = project(layer, "value", value, width);
  const size_t queries = q.size() / width, keys = k.size() / width;
  std::vector<double> out(q.size());
  for (size_t h = 0; h < heads; ++h) {
    for (size_t i = 0; i < queries; ++i) {
      std::vector<double> p(causal ? i + 1 : keys);
      double total = 0;
      for (size_t j = 0; j < p.size(); ++j) {
        double dot = 0;
        for (size_t s = h * size; s < h * size + size; ++s)
          dot += q[i * width + s] * k[j * width + s];
        total += p[j] = std::exp(dot / std::sqrt(static_cast<double>(size)));
      }
      for (size_t j = 0; j < p.size(); ++j)
        for (size_t s = h * size; s < h * size + size; ++s)
          out[i * width + s] += p[j] / total * v[j * width + s];
    }
  }
  return project(layer, "attention_output", out, query.size() / queries);
}

TEST(MultiHeadAttentionTest, AttendsToItselfAndToAnother) {
  const Tensor x = random_tensor({1, 5, 6}), memory = random_tensor({1, 3, 6}, 1);
  const Layer self = MultiHeadAttention(2, 4), causal = MultiHeadAttention(2, 4, {.causal = true});
  const Tensor of_self = run(self, {x}), of_past = run(causal, {x}),
               of_memory = run(self, {x, memory});
  const auto in = to_vector(x), remembered = to_vector(memory);
  expect_near(of_self, attend(self, in, in, in, 2, 4, false));
  expect_near(of_past, attend(causal, in, in, in, 2, 4, true));
  expect_near(of_memory, attend(self, in, remembered, remembered, 2, 4, false));
  EXPECT_EQ(self.variables().size(), 8u);
}

TEST(MultiHeadAttentionTest, LooksForKeysOfTheirOwn) {
  const Tensor x = random_tensor({1, 5, 6}), values = random_tensor({1, 3, 6}, 1),
               keys = random_tensor({1, 3, 7}, 2);
  const Layer layer = MultiHeadAttention(2, 4);
  const Tensor y = run(layer, {x, values, keys});
  expect_near(y, attend(layer, to_vector(x), to_vector(values), to_vector(keys), 2, 4, false));
}

TEST(MultiHeadAttentionTest, LeavesOutKeysThatAreMasked) {
  const Tensor x = random_tensor({2, 4, 6}), memory = random_tensor({2, 5, 6}, 1),
               lengths = Tensor::from<int32_t>({5, 3}, {2});
  const Layer layer = MultiHeadAttention(2, 4);
  const Function f([&](const std::vector<Value>& in) {
    return std::vector<Value>{layer({in[0], in[1], ops::sequence_mask(in[2], 5)})};
  });
  const Tensor y = f({x, memory, lengths})[0];
  for (int64_t row = 0; row < 2; ++row) {
    const int64_t keys = lengths.data<int32_t>()[row];
    const auto in = to_vector(x.slice_rows(row, row + 1)),
               remembered =
                   to_vector(memory.slice_rows(row, row + 1).reshape({5, 6}).slice_rows(0, keys));
    expect_near(y.slice_rows(row, row + 1), attend(layer, in, remembered, remembered, 2, 4, false));
  }
}

TEST(MultiHeadAttentionTest, TakesAMaskOfQueriesOrHeadsBesideCausality) {
  const Tensor x = random_tensor({1, 3, 6});
  Tensor past = Tensor::zeros(DType::kBool, {1, 3, 3});
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j <= i; ++j) past.data<bool>()[3 * i + j] = true;
  // Equal names begin with equal weights.
  const Layer all = MultiHeadAttention(2, 4, {.name = "same"}),
              causal = MultiHeadAttention(2, 4, {.causal = true, .name = "same"});
  const auto expected = to_vector(run(causal, {x}));
  expect_near(run(all, {x, past}), expected);
  expect_near(run(all, {x, x, x, past.reshape({1, 1, 3, 3})}), expected);

  Tensor not_first = Tensor::full(DType::kBool, {1, 3}, 1);
  not_first.data<bool>()[0] = false;
  Tensor both = past.clone();
  for (const int64_t i : {0, 3, 6}) both.data<bool>()[i] = false;
  const Tensor y = run(causal, {x, not_first});
  expect_near(run(all, {x, both}), to_vector(y));
  // Query 0 sees nothing, and biases are 0.
  expect_near(y.reshape({3, 6}).slice_rows(0, 1), std::vector<double>(6));
}

TEST(MultiHeadAttentionTest, IgnoresPaddingInANetworkThatIsDrawn) {
  const Layer words = Embedding(5, 4), attention = MultiHeadAttention(2, 4),
              is_word = Lambda([](const Value&ids) {
                return ops::not_equal(ids, ops::constant(0, ids.dtype()));
              });
  const auto network = [&](int64_t length) {
    const Symbol ids = Input({length}, {.dtype = DType::kInt32}), x = words(ids);
    return make_functional({ids}, attention({x, is_word(ids)}));
  };
  const Tensor padded = run(network(4), {Tensor::from<int32_t>({3, 1, 0, 0}, {1, 4})}),
               plain = run(network(2), {Tensor::from<int32_t>({3, 1}, {1, 2})});
  expect_near(padded.reshape({4, 4}).slice_rows(0, 2), to_vector(plain));
}

TEST(MultiHeadAttentionTest, AddsBiasesWhereItHasThem) {
  const Tensor x = random_tensor({1, 5, 6});
  const auto in = to_vector(x);
  const Layer with =
      MultiHeadAttention(2, 4, {.bias_initializer = initializers::random_uniform(-1, 1)});
  const Tensor y_with = run(with, {x});
  expect_near(y_with, attend(with, in, in, in, 2, 4, false));
  EXPECT_EQ(with.variables().size(), 8u);
  const Layer without = MultiHeadAttention(2, 4, {.use_bias = false});
  const Tensor y_without = run(without, {x});
  expect_near(y_without, attend(without, in, in, in, 2, 4, false));
  EXPECT_EQ(without.variables().size(), 4u);
}

TEST(MultiHeadAttentionTest, DropsPartOfItsResultInTrainingOnly) {
  const Tensor x = random_tensor({1, 100, 6});
  const auto in = to_vector(x);
  const Layer layer = MultiHeadAttention(2, 4, {.dropout = 0.5});
  const Tensor whole = run(layer, {x});
  expect_near(whole, attend(layer, in, in, in, 2, 4, false));
  const auto all = to_vector(whole), kept = to_vector(run(layer, {x}, true));
  int dropped = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_dropped = kept[i] == 0;
    EXPECT_NEAR(kept[i], is_dropped ? 0 : 2 * all[i], 1e-5) << "element " << i;
    dropped += is_dropped;
  }
  EXPECT_NEAR(dropped, 300, 75);
}

TEST(MultiHeadAttentionTest, IsFrozenAsAWholeBeforeItIsBuilt) {
  const Layer layer = MultiHeadAttention(2, 4);
  layer.set_trainable(false);
  layer.build({{DType::kFloat32, {1, 5, 6}}});
  EXPECT_EQ(layer.variables().size(), 8u);
  EXPECT_TRUE(layer.trainable_variables().empty());
  layer.set_trainable(true);
  EXPECT_EQ(layer.trainable_variables().size(), 8u);
}

TEST(ResidualTest, AddsTheShortcut) {
  const Tensor x = random_tensor({2, 3});
  const auto in = to_vector(x), y = to_vector(run(Residual({ActivationLayer(relu)}), {x}));
  for (size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(y[i], std::max(in[i], 0.0) + in[i], 1e-6);
  EXPECT_NE(testing::error_of([&] {
              run(Residual({Dense(4)}), {x});
            }).find("(Residual) of float32[2,3]: the inner layers give [2,4], the shortcut [2,3]"),
            std::string::npos);
}

TEST(ActivationTest, FollowKeras) {
  const auto at = [](const Activation& f, float x) {
    return run(ActivationLayer(f), {Tensor::from<float>({x}, {1, 1})}).item();
  };
  EXPECT_NEAR(at(relu6, 7), 6, 0);
  EXPECT_NEAR(at(leaky_relu, -2), -0.4, 1e-6);
  EXPECT_NEAR(at(elu, -1), std::expm1(-1), 1e-6);
  EXPECT_NEAR(at(selu, -1), 1.05070098 * 1.67326324 * std::expm1(-1), 1e-6);
  EXPECT_NEAR(at(selu, 2), 1.05070098 * 2, 1e-6);
  EXPECT_NEAR(at(gelu, 1), 0.8413447, 1e-6);
  EXPECT_NEAR(at(silu, 1), 1 / (1 + std::exp(-1)), 1e-6);
}

TEST(ActivationTest, HaveTheLowerSlopeWhereTwoMeet) {
  const auto slope = [](const Activation& f, float x) {
    const Function gradient([&](const std::vector<Value>& in) {
      return std::vector{gradients(ops::reduce_sum(f(in[0])), in)[0].dense()};
    });
    return gradient({Tensor::scalar(x)})[0].item();
  };
  EXPECT_EQ(slope(relu, 0), 0);
  EXPECT_EQ(slope(relu6, 0), 0);
  EXPECT_EQ(slope(relu6, 3), 1);
  EXPECT_EQ(slope(relu6, 6), 0);
  EXPECT_NEAR(slope(leaky_relu, 0), 0.2, 1e-7);
}

}  // namespace
}  // namespace cohort::nn
