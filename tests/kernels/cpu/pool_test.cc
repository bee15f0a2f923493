#include "tests/kernels/cpu/nn_testing.h"

namespace cohort {
namespace {

struct Case {
  Shape x;
  List size, strides, pads = {0, 0, 0, 0};

  Attributes attributes() const { return {{"size", size}, {"strides", strides}, {"pads", pads}}; }
  Shape y() const {
    const auto extent = [&](int i) {
      return (x[i + 1] + pads[2 * i] + pads[2 * i + 1] - size[i]) / strides[i] + 1;
    };
    return {x[0], extent(0), extent(1), x[3]};
  }
  // The indices into x under the window of element `out` of y, in order.
  std::vector<int64_t> window(int64_t out) const {
    const Shape y_shape = y();
    const int64_t c = out % x[3], ow = out / x[3] % y_shape[2],
                  oh = out / x[3] / y_shape[2] % y_shape[1];
    const int64_t n = out / x[3] / y_shape[2] / y_shape[1];
    std::vector<int64_t> indices;
    for (int64_t h = oh * strides[0] - pads[0]; h < oh * strides[0] - pads[0] + size[0]; ++h)
      for (int64_t w = ow * strides[1] - pads[2]; w < ow * strides[1] - pads[2] + size[1]; ++w)
        if (h >= 0 && h < x[1] && w >= 0 && w < x[2])
          indices.push_back(((n * x[1] + h) * x[2] + w) * x[3] + c);
    return indices;
  }
};

const Case kCases[] = {
    {{2, 6, 8, 16}, {2, 2}, {2, 2}},
    {{2, 7, 5, 3}, {2, 2}, {2, 2}},
    {{1, 7, 7, 70}, {3, 3}, {2, 2}, {1, 1, 1, 1}},
    {{2, 5, 6, 1}, {3, 2}, {1, 3}, {0, 1, 1, 0}},
    {{1, 4, 4, 9}, {1, 1}, {2, 2}},
    {{0, 4, 4, 2}, {2, 2}, {2, 2}},
    {{2, 4, 4, 0}, {2, 2}, {2, 2}},
};

// Few distinct values, so that windows have ties.
Tensor tied_tensor(const Shape& shape) {
  Tensor t = random_tensor(shape, 4, 0, 3);
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.data<double>()[i] = std::floor(t.data<double>()[i]);
  return t;
}

Tensor max_pool(const Case& c, const Tensor& x) {
  Tensor y = Tensor::full(DType::kFloat64, c.y(), -INFINITY);
  for (int64_t o = 0; o < y.num_elements(); ++o)
    for (int64_t i : c.window(o))
      y.data<double>()[o] = std::max(y.data<double>()[o], x.data<double>()[i]);
  return y;
}

TEST(MaxPool2D, TakesTheGreatestOfEachWindow) {
  for (const Case& c : kCases)
    check_kernel(
        "MaxPool2D", {random_tensor(c.x, 1, -9, -5)}, c.attributes(),
        [&](const Tensors& in, const Attributes&) -> Tensors { return {max_pool(c, in[0])}; });
}

TEST(MaxPool2D, PassesNaNOn) {
  Tensor x = Tensor::full(DType::kFloat32, {1, 4, 4, 1}, 1);
  x.data<float>()[6] = NAN;
  const Tensor y = run_kernel("MaxPool2D", {x}, kCases[0].attributes())[0];
  EXPECT_EQ(y.data<float>()[0], 1);
  EXPECT_TRUE(std::isnan(y.data<float>()[1]));
}

TEST(MaxPool2DGrad, GoesToTheFirstMaximumOfEachWindow) {
  for (const Case& c : kCases) {
    const Tensor x = tied_tensor(c.x);
    check_kernel("MaxPool2DGrad", {random_tensor(c.y(), 2), x, max_pool(c, x)}, c.attributes(),
                 [&](const Tensors& in, const Attributes&) -> Tensors {
                   Tensor dx = Tensor::zeros(DType::kFloat64, c.x);
                   for (int64_t o = 0; o < in[0].num_elements(); ++o)
                     for (int64_t i : c.window(o))
                       if (in[1].data<double>()[i] == in[2].data<double>()[o]) {
                         dx.data<double>()[i] += in[0].data<double>()[o];
                         break;
                       }
                   return {dx};
                 });
  }
}

TEST(AvgPool2D, DoesNotCountPadding) {
  for (const Case& c : kCases)
    check_kernel("AvgPool2D", {random_tensor(c.x, 1)}, c.attributes(),
                 [&](const Tensors& in, const Attributes&) -> Tensors {
                   Tensor y = Tensor::zeros(DType::kFloat64, c.y());
                   for (int64_t o = 0; o < y.num_elements(); ++o)
                     for (int64_t i : c.window(o))
                       y.data<double>()[o] +=
                           in[0].data<double>()[i] / static_cast<double>(c.window(o).size());
                   return {y};
                 });
}

TEST(AvgPool2DGrad, IsSharedEqually) {
  for (const Case& c : kCases) {
    Attributes attributes = c.attributes();
    attributes.set("input_size", List{c.x[1], c.x[2]});
    check_kernel("AvgPool2DGrad", {random_tensor(c.y(), 2)}, attributes,
                 [&](const Tensors& in, const Attributes&) -> Tensors {
                   Tensor dx = Tensor::zeros(DType::kFloat64, c.x);
                   for (int64_t o = 0; o < in[0].num_elements(); ++o)
                     for (int64_t i : c.window(o))
                       dx.data<double>()[i] +=
                           in[0].data<double>()[o] / static_cast<double>(c.window(o).size());
                   return {dx};
                 });
  }
}

}  // namespace
}  // namespace cohort
