#include <cmath>

#include <gtest/gtest.h>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
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

TEST(AttentionGradient, AgreesWithDifferences) {
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.causal = true, .scale = 0.7}})
    check_gradients(
        [&](const Values& v) { return scaled_dot_product_attention(v[0], v[1], v[2], options); },
        {{{2, 3, 2, 4}}, {{2, 5, 2, 4}}, {{2, 5, 2, 4}}});
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
