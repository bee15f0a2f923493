#include "core/nn/layers.h"
#include "tests/nn/testing.h"

namespace cohort::nn {
namespace {

using testing::error_of;
using testing::random_tensor;
using testing::run;
using testing::to_vector;
using testing::weight;

struct Case {
  Shape input;
  int64_t filters;
  Size2D kernel;
  Conv2DOptions options;
};

// One axis of the output: its extent, and the zeros cut off at its start.
struct Axis {
  int64_t size, before;
};

Axis axis_of(int64_t input, int64_t kernel, int64_t stride, int64_t dilation, Padding padding,
             int64_t before, int64_t after) {
  const int64_t span = (kernel - 1) * dilation + 1;
  if (padding.kind == Padding::Kind::kSame)
    return {input * stride, std::max<int64_t>(span - stride, 0) / 2};
  return {(input - 1) * stride + span - before - after, before};
}

// By the definition: each pixel adds its kernel to the image, `stride` apart.
std::vector<double> reference(const Case& c, const std::vector<double>& x,
                              const std::vector<double>& kernel, const std::vector<double>& bias,
                              Shape& shape) {
  const Size2D &strides = c.options.strides, &dilations = c.options.dilations;
  const Padding& padding = c.options.padding;
  const Axis rows = axis_of(c.input[1], c.kernel.height, strides.height, dilations.height, padding,
                            padding.top, padding.bottom);
  const Axis columns = axis_of(c.input[2], c.kernel.width, strides.width, dilations.width, padding,
                               padding.left, padding.right);
  const int64_t channels = c.input[3], group_in = channels / c.options.groups,
                group_out = c.filters / c.options.groups;
  shape = {c.input[0], rows.size, columns.size, c.filters};
  std::vector<double> y(static_cast<size_t>(shape.num_elements()));
  for (size_t i = 0; i < y.size(); ++i) y[i] = bias[i % bias.size()];
  for (int64_t n = 0; n < c.input[0]; ++n)
    for (int64_t h = 0; h < c.input[1]; ++h)
      for (int64_t w = 0; w < c.input[2]; ++w)
        for (int64_t i = 0; i < channels; ++i)
          for (int64_t kh = 0; kh < c.kernel.height; ++kh)
            for (int64_t kw = 0; kw < c.kernel.width; ++kw)
              for (int64_t f = 0; f < group_out; ++f) {
                const int64_t row = h * strides.height + kh * dilations.height - rows.before;
                const int64_t column = w * strides.width + kw * dilations.width - columns.before;
                if (row < 0 || row >= rows.size || column < 0 || column >= columns.size) continue;
                const int64_t o = i / group_in * group_out + f;
                y[((n * rows.size + row) * columns.size + column) * c.filters + o] +=
                    x[((n * c.input[1] + h) * c.input[2] + w) * channels + i] *
                    kernel[((kh * c.kernel.width + kw) * group_out + f) * channels + i];
              }
  return y;
}

void check(const Case& c, const std::string& what) {
  SCOPED_TRACE(what);
  Conv2DOptions options = c.options;
  options.bias_initializer = initializers::random_uniform(-1, 1);
  const Layer layer = Conv2DTranspose(c.filters, c.kernel, options);
  const Tensor x = random_tensor(c.input);
  const Tensor y = run(layer, {x});
  Shape shape;
  const auto expected = reference(c, to_vector(x), to_vector(weight(layer, "kernel")),
                                  to_vector(weight(layer, "bias")), shape);
  EXPECT_EQ(y.shape(), shape);
  testing::expect_near(y, expected);
}

TEST(Conv2DTransposeTest, AddsEachPixelsKernelToTheImage) {
  for (const Size2D strides : {Size2D(1), Size2D(2, 3)})
    for (const Padding& padding :
         {Padding::valid(), Padding::same(), Padding::explicit_padding(1, 0)})
      for (const Size2D dilations : {Size2D(1), Size2D(2, 3)})
        for (const int64_t groups : {1, 2, 4})
          check(
              {{2, 3, 5, 4},
               8,
               {3, 2},
               {.strides = strides, .padding = padding, .dilations = dilations, .groups = groups}},
              str("strides ", strides.height, ",", strides.width, ", padding ",
                  static_cast<int>(padding.kind), ", dilations ", dilations.height, ",",
                  dilations.width, ", groups ", groups));
}

TEST(Conv2DTransposeTest, TakesOddAndEmptyShapes) {
  check({{1, 1, 1, 3}, 3, 1, {.groups = 3}}, "one pixel, one group a channel");
  check({{3, 7, 1, 6}, 9, {5, 1}, {.strides = 3, .groups = 3}}, "a column");
  check({{1, 4, 4, 2}, 2, 1, {.strides = 3, .groups = 2}}, "strides beyond the kernel");
  check({{1, 4, 4, 32}, 16, 3, {.strides = 2, .padding = Padding::same(), .groups = 2}}, "wide");
  check({{0, 3, 3, 4}, 6, 3, {.groups = 2}}, "no images");
}

TEST(Conv2DTransposeTest, NamesChannelsThatGroupsDoNotDivide) {
  const std::string filters = error_of([] { Conv2DTranspose(5, 3, {.groups = 2}); });
  EXPECT_NE(filters.find("Conv2DTranspose: 5 filters"), std::string::npos) << filters;
  const std::string groups = error_of([] { Conv2DTranspose(5, 3, {.groups = 0}); });
  EXPECT_NE(groups.find("Conv2DTranspose: groups"), std::string::npos) << groups;
  const Layer up = Conv2DTranspose(4, 3, {.groups = 2, .name = "up"});
  const std::string channels = error_of([&] { up.output_spec({{DType::kFloat32, {1, 3, 3, 5}}}); });
  EXPECT_NE(channels.find("\"up\" (Conv2DTranspose) of float32[1,3,3,5]: 5 input channels"),
            std::string::npos)
      << channels;
}

}  // namespace
}  // namespace cohort::nn
