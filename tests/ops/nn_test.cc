#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "tests/testing/error_of.h"
#include "tests/testing/evaluate.h"
#include "tests/testing/gradient_check.h"

namespace cohort {
namespace {

using namespace ops;
using testing::check_gradients;
using testing::check_gradients_at;
using testing::check_second_gradients;
using testing::evaluate;
using Values = std::vector<Value>;

struct ConvCase {
  const char* name;
  Shape x, filter;
  Conv2DOptions options;
};

const ConvCase kConvCases[] = {
    {"valid", {2, 5, 4, 2}, {3, 2, 2, 3}, {}},
    {"same", {1, 5, 4, 2}, {3, 3, 2, 2}, {.padding = Padding::same()}},
    {"strided_same", {1, 6, 5, 1}, {3, 2, 1, 2}, {.strides = {2, 3}, .padding = Padding::same()}},
    {"dilated",
     {1, 6, 6, 1},
     {2, 3, 1, 2},
     {.dilations = {3, 2}, .padding = Padding::explicit_padding(1, 0)}},
    {"grouped", {1, 4, 4, 4}, {2, 2, 2, 6}, {.groups = 2}},
    {"depthwise", {1, 4, 4, 3}, {2, 2, 1, 3}, {.groups = 3}},
    {"grouped_strided_dilated",
     {1, 6, 5, 4},
     {2, 2, 2, 4},
     {.strides = {2, 1}, .dilations = {2, 3}, .padding = Padding::same(), .groups = 2}}};

TEST(Conv2DGradient, AgreesWithDifferences) {
  for (const auto& c : kConvCases) {
    SCOPED_TRACE(c.name);
    const auto conv = [&](const Values& v) { return conv2d(v[0], v[1], c.options); };
    check_gradients(conv, {{c.x}, {c.filter}});
  }
}

TEST(Conv2DGradient, HasSecondDerivatives) {
  const Conv2DOptions options{
      .strides = {2, 1}, .dilations = {1, 2}, .padding = Padding::same(), .groups = 2};
  check_second_gradients([&](const Values& v) { return conv2d(v[0], v[1], options); },
                         {{{1, 4, 3, 4}}, {{3, 2, 2, 2}}});
}

struct TransposeCase {
  const char* name;
  Shape y, filter;
  std::pair<int64_t, int64_t> output_size;
  Conv2DOptions options;
};

const TransposeCase kTransposeCases[] = {
    {"strided_same",
     {1, 3, 2, 2},
     {3, 3, 1, 2},
     {5, 4},
     {.strides = {2, 2}, .padding = Padding::same()}},
    {"dilated",
     {1, 2, 3, 2},
     {3, 2, 2, 2},
     {4, 6},
     {.dilations = {2, 3}, .padding = Padding::explicit_padding(1, 0)}},
    {"grouped", {2, 3, 2, 4}, {2, 2, 3, 4}, {4, 3}, {.groups = 2}},
    {"depthwise", {1, 2, 2, 3}, {2, 2, 1, 3}, {4, 4}, {.strides = {2, 2}, .groups = 3}},
    {"grouped_strided_dilated",
     {1, 2, 3, 4},
     {3, 2, 1, 4},
     {5, 5},
     {.strides = {2, 1},
      .dilations = {2, 2},
      .padding = Padding::explicit_padding(1, 0),
      .groups = 2}}};

TEST(Conv2DTranspose, GradientAgreesWithDifferences) {
  for (const auto& c : kTransposeCases) {
    SCOPED_TRACE(c.name);
    check_gradients(
        [&](const Values& v) { return conv2d_transpose(v[0], v[1], c.output_size, c.options); },
        {{c.y}, {c.filter}});
  }
}

TEST(Conv2D, SamePaddingPutsTheOddRowAtTheEnd) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {1, 4, 4, 1}});
  const Value f = graph.add_input("f", {DType::kFloat32, {2, 3, 1, 1}});
  const Value y = conv2d(x, f, {.padding = Padding::same()});
  EXPECT_EQ(y.shape(), (Shape{1, 4, 4, 1}));
  EXPECT_EQ(y.node().attributes().get<std::vector<int64_t>>("pads"),
            (std::vector<int64_t>{0, 1, 1, 1}));
}

TEST(Conv2D, RefusesWhatDoesNotFit) {
  Graph graph;
  const auto input = [&](Shape shape) { return graph.add_input("x", {DType::kFloat32, shape}); };
  const Value x = input({1, 4, 4, 3});
  EXPECT_THROW(conv2d(x, input({5, 1, 3, 2})), Error);
  EXPECT_THROW(conv2d(x, input({2, 2, 2, 2})), Error);
  EXPECT_THROW(conv2d(x, input({2, 2, 3})), Error);
  EXPECT_THROW(conv2d(x, input({2, 2, 3, 2}), {.strides = {0, 1}, .padding = Padding::same()}),
               Error);
  EXPECT_THROW(conv2d(x, input({2, 2, 3, 2}), {.groups = 0}), Error);
  EXPECT_THROW(conv2d(x, input({2, 2, 3, 2}), {.padding = Padding::explicit_padding(-1, 0)}),
               Error);
  EXPECT_THROW(conv2d_transpose(input({1, 3, 3, 2}), input({2, 2, 3, 2}), {9, 9}), Error);
}

TEST(PoolGradient, AgreesWithDifferences) {
  for (const Pool2DOptions& options :
       {Pool2DOptions{},
        Pool2DOptions{.size = {3, 2}, .strides = {2, 1}, .padding = Padding::same()},
        Pool2DOptions{
            .size = {3, 3}, .strides = {2, 2}, .padding = Padding::explicit_padding(1, 2)}}) {
    check_gradients([&](const Values& v) { return max_pool2d(v[0], options); }, {{{2, 5, 4, 2}}});
    check_gradients([&](const Values& v) { return avg_pool2d(v[0], options); }, {{{2, 5, 4, 2}}});
  }
  check_second_gradients([](const Values& v) { return square(avg_pool2d(v[0])); },
                         {{{1, 4, 4, 1}}});
}

TEST(Pool, RefusesPaddingAsWideAsTheWindow) {
  Graph graph;
  const Value x = graph.add_input("x", {DType::kFloat32, {1, 4, 4, 3}});
  EXPECT_THROW(max_pool2d(x, {.padding = Padding::explicit_padding(2, 0)}), Error);
  EXPECT_THROW(avg_pool2d(x, {.size = {0, 1}}), Error);
}

constexpr double kEpsilon = 1e-3;

TEST(NormGradient, OfBatchNorm) {
  check_gradients([](const Values& v) { return batch_norm(v[0], v[1], v[2], kEpsilon).y; },
                  {{{3, 2, 2}}, {{2}}, {{2}}});
}

TEST(NormGradient, OfBatchNormsStatistics) {
  const auto all = [](const Values& v) {
    const BatchNorm norm = batch_norm(v[0], v[1], v[2], kEpsilon);
    return norm.y * norm.mean + norm.variance * norm.variance;
  };
  check_gradients(all, {{{3, 2, 2}}, {{2}}, {{2}}});
  check_gradients(
      [](const Values& v) { return batch_norm(v[0], v[1], v[2], kEpsilon).mean * v[1]; },
      {{{3, 2}}, {{2}}, {{2}}});
  check_gradients(
      [](const Values& v) { return batch_norm(v[0], v[1], v[2], kEpsilon).variance * v[2]; },
      {{{3, 2}}, {{2}}, {{2}}});
}

TEST(NormGradient, OfBatchNormWithRelu) {
  const auto fused = [](const Values& v) {
    return v[0]
        .graph()
        .add("BatchNorm", v, {{"epsilon", kEpsilon}, {"activation", std::string("Relu")}})
        .output();
  };
  check_gradients(fused, {{{5, 2}}, {{2}}, {{2}}});
}

TEST(NormGradient, OfBatchNormInference) {
  check_gradients(
      [](const Values& v) { return batch_norm_inference(v[0], v[1], v[2], v[3], v[4], kEpsilon); },
      {{{3, 2}}, {{2}}, {{2}}, {{2}}, {{2}, 0.5, 2}});
}

TEST(NormGradient, OfLayerNormAndRmsNorm) {
  check_gradients([](const Values& v) { return layer_norm(v[0], v[1], v[2], kEpsilon); },
                  {{{2, 2, 4}}, {{4}}, {{4}}});
  check_gradients([](const Values& v) { return rms_norm(v[0], v[1], kEpsilon); },
                  {{{2, 2, 4}}, {{4}}});
}

TEST(NormGradient, OfLayerNormAndRmsNormHasADerivative) {
  for (const Shape& shape : {Shape{2, 2, 4}, Shape{4}}) {
    check_second_gradients([](const Values& v) { return layer_norm(v[0], v[1], v[2], kEpsilon); },
                           {{shape}, {{4}}, {{4}}});
    check_second_gradients([](const Values& v) { return rms_norm(v[0], v[1], kEpsilon); },
                           {{shape}, {{4}}});
  }
}

TEST(NormGradient, OfNoRowsInFloat16HasADerivativeOfEachInputsDtype) {
  Graph graph;
  const GraphScope scope(graph);
  const TensorSpec rows{DType::kFloat16, {0, 4}}, parameter{DType::kFloat32, {4}};
  const Value x = graph.add_input("x", rows), gamma = graph.add_input("gamma", parameter);
  const auto loss = [](const Value& y) { return reduce_sum(square(cast(y, DType::kFloat32))); };
  for (const Value& y : {layer_norm(x, gamma, gamma, kEpsilon), rms_norm(x, gamma, kEpsilon)}) {
    const Value dx = gradients(loss(y), {x})[0].dense();
    const auto d = gradients(loss(dx), {x, gamma});
    const auto result =
        evaluate({d[0].dense(), d[1].dense()},
                 {Tensor::zeros(DType::kFloat16, {0, 4}), Tensor::full(DType::kFloat32, {4}, 1)});
    EXPECT_EQ(result[0].spec(), rows);
    EXPECT_EQ(to_string(result[1]), to_string(Tensor::zeros(DType::kFloat32, {4})));
  }
}

TEST(Norm, RefusesParametersOfAnotherLength) {
  Graph graph;
  const auto input = [&](Shape shape) { return graph.add_input("x", {DType::kFloat32, shape}); };
  EXPECT_THROW(layer_norm(input({2, 4}), input({3}), input({3}), kEpsilon), Error);
  EXPECT_THROW(batch_norm(input({2, 4}), input({4}), input({3}), kEpsilon), Error);
  EXPECT_THROW(rms_norm(input({}), input({}), kEpsilon), Error);
  EXPECT_THROW(rms_norm(input({2, 4}), input({4}), -1), Error);
}

TEST(SoftmaxGradient, AgreesWithDifferences) {
  check_gradients([](const Values& v) { return softmax(v[0]); }, {{{2, 3, 4}}});
  check_gradients([](const Values& v) { return log_softmax(v[0]); }, {{{2, 3, 4}}});
  check_second_gradients([](const Values& v) { return softmax(v[0]); }, {{{2, 4}}});
  check_second_gradients([](const Values& v) { return log_softmax(v[0]); }, {{{2, 4}}});
}

TEST(CrossEntropyGradient, AgreesWithDifferences) {
  const Tensor labels = Tensor::from<int32_t>({3, 0, 1}, {3});
  check_gradients([](const Values& v) { return sparse_softmax_cross_entropy(v[0], v[1]); },
                  {{{3, 4}}}, {labels});
  const Tensor targets = Tensor::from<double>({0.1, 0.2, 0.7, 1, 0, 0}, {2, 3});
  check_gradients([](const Values& v) { return softmax_cross_entropy(v[0], v[1]); }, {{{2, 3}}},
                  {targets});
  check_gradients([](const Values& v) { return sigmoid_cross_entropy(v[0], v[1]); },
                  {{{5}, -2, 2}, {{5}, 0, 1}});
  check_gradients_at([](const Values& v) { return sigmoid_cross_entropy(v[0], v[0] + 1.0); },
                     {Tensor::scalar(0.0)});
}

TEST(SigmoidCrossEntropy, IsStableFarFromZero) {
  Graph graph;
  const GraphScope scope(graph);
  const Value x = constant(Tensor::from<double>({1000, -1000, 40}, {3}));
  const Value t = constant(Tensor::from<double>({1, 1, 1}, {3}));
  const Tensor loss = evaluate({sigmoid_cross_entropy(x, t)})[0];
  EXPECT_EQ(loss.values<double>()[0], 0);
  EXPECT_EQ(loss.values<double>()[1], 1000);
  EXPECT_NEAR(loss.values<double>()[2], std::exp(-40), 1e-25);
}

TEST(CrossEntropy, RefusesLabelsOfAnotherShape) {
  Graph graph;
  const Value logits = graph.add_input("x", {DType::kFloat32, {3, 4}});
  EXPECT_THROW(sparse_softmax_cross_entropy(logits, graph.add_input("y", {DType::kInt32, {4}})),
               Error);
  EXPECT_THROW(sparse_softmax_cross_entropy(logits, graph.add_input("y", {DType::kFloat32, {3}})),
               Error);
  EXPECT_THROW(softmax_cross_entropy(logits, graph.add_input("y", {DType::kFloat32, {3}})), Error);
}

TEST(CrossEntropy, RefusesLogitsWithoutClasses) {
  Graph graph;
  const Value logits = graph.add_input("x", {DType::kFloat32, {3, 0}}),
              labels = graph.add_input("y", {DType::kInt32, {3}});
  const std::function<void()> mistakes[] = {[&] { sparse_softmax_cross_entropy(logits, labels); },
                                            [&] { softmax_cross_entropy(logits, logits); }};
  for (const auto& mistake : mistakes) {
    const Error error = testing::error_of(mistake);
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("logits of shape [3,0] have no classes"), std::string::npos)
        << error.message();
  }
}

TEST(AttentionGradient, AgreesWithDifferences) {
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.causal = true, .scale = 0.7}})
    check_gradients(
        [&](const Values& v) { return scaled_dot_product_attention(v[0], v[1], v[2], options); },
        {{{2, 3, 2, 4}}, {{2, 5, 2, 4}}, {{2, 5, 2, 4}}});
}

// Of two heads and three keys, for the rows of a batch or for all: what each of two queries sees.
const Tensor kMasks[] = {
    Tensor::from<bool>(std::array<bool, 6>{true, true, false, false, true, true}, {2, 1, 1, 3}),
    Tensor::from<bool>(std::array<bool, 6>{true, false, true, false, true, false}, {2, 3}),
    Tensor::from<bool>(std::array<bool, 6>{true, false, true, false, false, false}, {1, 2, 1, 3})};

TEST(AttentionGradient, WithAMaskAgreesWithDifferences) {
  for (const Tensor& mask : kMasks) {
    SCOPED_TRACE(str(mask.shape()));
    for (const bool causal : {false, true}) {
      const auto attention = [&](const Values& v) {
        return scaled_dot_product_attention(v[0], v[1], v[2], {.causal = causal, .mask = v[3]});
      };
      check_gradients(attention, {{{2, 2, 2, 4}}, {{2, 3, 2, 4}}, {{2, 3, 2, 4}}}, {mask});
    }
  }
  check_second_gradients(
      [](const Values& v) {
        return scaled_dot_product_attention(v[0], v[0], v[0], {.scale = 2, .mask = v[1]});
      },
      {{{1, 3, 1, 2}}}, {Tensor::from<bool>(std::array<bool, 3>{true, false, true}, {3})});
}

// Equal scores: the mean of the values that are seen.
TEST(Attention, SeesWhatTheMaskAllows) {
  const auto seen = [](const Tensor& mask, bool causal, DType dtype) {
    Graph graph;
    const GraphScope scope(graph);
    const Value q = constant(Tensor::zeros(dtype, {1, 2, 1, 1})),
                k = constant(Tensor::from<float>({5, 9, -7}, {1, 3, 1, 1}).cast(dtype)),
                v = constant(Tensor::from<float>({1, 2, 6}, {1, 3, 1, 1}).cast(dtype));
    const Tensor y = evaluate({scaled_dot_product_attention(
        q, k, v, {.causal = causal, .mask = constant(mask)})})[0]
                         .cast(DType::kFloat32);
    return std::vector<float>{y.values<float>().begin(), y.values<float>().end()};
  };
  const Tensor second = Tensor::from<bool>(
                   std::array<bool, 6>{false, true, false, true, false, true}, {2, 3}),
               last = Tensor::from<bool>(std::array<bool, 3>{false, false, true}, {3});
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    EXPECT_EQ(seen(second, false, dtype), (std::vector<float>{2, 3.5})) << dtype;
    // Query 0 may see keys 0 and 1, query 1 all three.
    EXPECT_EQ(seen(second, true, dtype), (std::vector<float>{2, 3.5})) << dtype;
    EXPECT_EQ(seen(last, false, dtype), (std::vector<float>{6, 6})) << dtype;
    EXPECT_EQ(seen(last, true, dtype), (std::vector<float>{0, 6}))
        << dtype << ": nothing and key 2";
  }
}

TEST(Attention, WithAMaskThatHidesNothingIsThatWithout) {
  Graph graph;
  const Value q = graph.add_input("q", {DType::kFloat64, {1, 2, 1, 2}}),
              k = graph.add_input("k", {DType::kFloat64, {1, 3, 1, 2}});
  const GraphScope scope(graph);
  const Value all = constant(Tensor::full(DType::kBool, {3}, 1));
  for (const bool causal : {false, true}) {
    const auto y = evaluate(
        {scaled_dot_product_attention(q, k, k, {.causal = causal, .scale = 3, .mask = all}),
         scaled_dot_product_attention(q, k, k, {.causal = causal, .scale = 3})},
        {Tensor::from<double>({1, -2, 0.5, 3}, {1, 2, 1, 2}),
         Tensor::from<double>({0.1, 0.2, -1, 2, 0.7, 0}, {1, 3, 1, 2})});
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(y[0].values<double>()[i], y[1].values<double>()[i], 1e-12);
  }
}

TEST(Attention, RefusesAMaskThatDoesNotFit) {
  Graph graph;
  const auto input = [&](Shape shape, DType dtype = DType::kBool) {
    return graph.add_input("x", {dtype, shape});
  };
  const Value q = input({2, 3, 1, 4}, DType::kFloat32), k = input({2, 5, 1, 4}, DType::kFloat32);
  for (const Value& mask :
       {input({4}), input({3, 1, 3, 5}), input({1, 1, 1, 1, 5}), input({3, 5}, DType::kFloat32)})
    EXPECT_THROW(scaled_dot_product_attention(q, k, k, {.mask = mask}), Error) << mask.spec();
  EXPECT_THROW(scaled_dot_product_attention(k, q, q, {.causal = true, .mask = input({3})}), Error);
}

TEST(Attention, RefusesFewerKeysThanCausalQueries) {
  Graph graph;
  const auto input = [&](Shape shape) { return graph.add_input("x", {DType::kFloat32, shape}); };
  const Value q = input({1, 3, 2, 4}), k = input({1, 2, 2, 4});
  EXPECT_THROW(scaled_dot_product_attention(q, k, k, {.causal = true}), Error);
  EXPECT_THROW(scaled_dot_product_attention(q, k, q), Error);
  EXPECT_THROW(scaled_dot_product_attention(q, input({1, 2, 1, 4}), k), Error);
}

}  // namespace
}  // namespace cohort
