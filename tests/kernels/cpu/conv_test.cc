#include <iterator>

#include "tests/kernels/cpu/nn_testing.h"

namespace cohort {
namespace {

struct Case {
  Shape x, filter;
  List strides = {1, 1}, pads = {0, 0, 0, 0}, dilations = {1, 1};
  int64_t groups = 1;

  Attributes attributes() const {
    return {{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"groups", groups}};
  }
  Shape y() const {
    const auto extent = [&](int i) {
      const int64_t span = (filter[i] - 1) * dilations[i] + 1;
      return (x[i + 1] + pads[2 * i] + pads[2 * i + 1] - span) / strides[i] + 1;
    };
    return {x[0], extent(0), extent(1), filter[3]};
  }
};

// Calls visit(index into x, into the filter, into y) for every product of a convolution.
template <typename F>
void for_each_product(const Case& c, F visit) {
  const Shape &x = c.x, &filter = c.filter, y = c.y();
  const int64_t group_in = filter[2], group_out = filter[3] / c.groups;
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t oh = 0; oh < y[1]; ++oh)
      for (int64_t ow = 0; ow < y[2]; ++ow)
        for (int64_t o = 0; o < y[3]; ++o)
          for (int64_t kh = 0; kh < filter[0]; ++kh)
            for (int64_t kw = 0; kw < filter[1]; ++kw)
              for (int64_t i = 0; i < group_in; ++i) {
                const int64_t h = oh * c.strides[0] - c.pads[0] + kh * c.dilations[0];
                const int64_t w = ow * c.strides[1] - c.pads[2] + kw * c.dilations[1];
                if (h < 0 || h >= x[1] || w < 0 || w >= x[2]) continue;
                visit(((n * x[1] + h) * x[2] + w) * x[3] + o / group_out * group_in + i,
                      ((kh * filter[1] + kw) * group_in + i) * filter[3] + o,
                      ((n * y[1] + oh) * y[2] + ow) * y[3] + o);
              }
}

// The three convolutions by their definition.
Tensor convolution(const Case& c, const Tensor& x, const Tensor& filter) {
  Tensor y = Tensor::zeros(DType::kFloat64, c.y());
  for_each_product(c, [&](int64_t i, int64_t f, int64_t o) {
    y.data<double>()[o] += x.data<double>()[i] * filter.data<double>()[f];
  });
  return y;
}

Tensor input_gradient(const Case& c, const Tensor& dy, const Tensor& filter) {
  Tensor dx = Tensor::zeros(DType::kFloat64, c.x);
  for_each_product(c, [&](int64_t i, int64_t f, int64_t o) {
    dx.data<double>()[i] += dy.data<double>()[o] * filter.data<double>()[f];
  });
  return dx;
}

Tensor filter_gradient(const Case& c, const Tensor& x, const Tensor& dy) {
  Tensor dfilter = Tensor::zeros(DType::kFloat64, c.filter);
  for_each_product(c, [&](int64_t i, int64_t f, int64_t o) {
    dfilter.data<double>()[f] += x.data<double>()[i] * dy.data<double>()[o];
  });
  return dfilter;
}

// By size, and what oneDNN takes or leaves.
const Case kCases[] = {
    {{2, 5, 6, 1}, {3, 3, 1, 8}},
    {{2, 8, 8, 3}, {3, 3, 3, 16}, {1, 1}, {1, 1, 1, 1}},
    {{2, 8, 8, 16}, {3, 3, 16, 16}, {1, 1}, {1, 1, 1, 1}},
    {{1, 9, 7, 16}, {3, 3, 16, 32}, {2, 2}, {1, 1, 1, 1}},
    {{2, 8, 8, 16}, {1, 1, 16, 32}, {2, 2}},
    {{1, 7, 9, 5}, {3, 2, 5, 7}, {2, 3}, {0, 2, 1, 0}},
    {{1, 9, 9, 4}, {3, 3, 4, 6}, {1, 1}, {2, 2, 2, 2}, {2, 2}},
    {{2, 6, 6, 6}, {3, 3, 3, 4}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 2},
    {{1, 6, 6, 16}, {3, 3, 1, 16}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 16},
    {{1, 6, 6, 3}, {3, 3, 1, 6}, {2, 2}, {0, 1, 0, 1}, {1, 1}, 3},
    {{1, 2, 2, 3}, {5, 5, 3, 4}, {1, 1}, {2, 2, 2, 2}},
    {{1, 3, 3, 2}, {1, 1, 2, 3}, {1, 1}, {2, 2, 2, 2}},
    {{0, 4, 4, 3}, {3, 3, 3, 4}},
    {{2, 4, 4, 0}, {3, 3, 0, 4}},
    {{2, 4, 4, 3}, {3, 3, 3, 0}},
    {{1, 8, 8, 16}, {3, 3, 8, 32}, {2, 2}, {2, 2, 2, 2}, {2, 2}, 2},
    {{0, 5, 5, 4}, {3, 3, 2, 4}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 2},
    {{2, 4, 4, 0}, {3, 3, 0, 4}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 2},
    {{2, 4, 4, 4}, {3, 3, 2, 0}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 2},
};

// Those, and every combination of strides, padding, dilations and groups.
std::vector<Case> all_cases() {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  for (const List& strides : {List{1, 1}, List{2, 3}})
    for (const List& pads : {List{0, 0, 0, 0}, List{1, 2, 0, 1}})
      for (const List& dilations : {List{1, 1}, List{2, 3}})
        for (const int64_t groups : {1, 2, 4})
          cases.push_back({{2, 7, 8, 4}, {3, 2, 4 / groups, 8}, strides, pads, dilations, groups});
  return cases;
}

TEST(Conv2D, MatchesTheDefinition) {
  for (const Case& c : all_cases())
    check_kernel("Conv2D", {random_tensor(c.x, 1), random_tensor(c.filter, 2)}, c.attributes(),
                 [&](const Tensors& in, const Attributes&) -> Tensors {
                   return {convolution(c, in[0], in[1])};
                 });
}

TEST(Conv2DGradInput, IsTheTransposeOfConv2D) {
  for (const Case& c : all_cases()) {
    Attributes attributes = c.attributes();
    attributes.set("input_size", List{c.x[1], c.x[2]});
    check_kernel("Conv2DGradInput", {random_tensor(c.y(), 1), random_tensor(c.filter, 2)},
                 attributes, [&](const Tensors& in, const Attributes&) -> Tensors {
                   return {input_gradient(c, in[0], in[1])};
                 });
  }
}

TEST(Conv2DGradFilter, SumsOverAllPixels) {
  for (const Case& c : all_cases()) {
    Attributes attributes = c.attributes();
    attributes.set("filter_size", List{c.filter[0], c.filter[1]});
    check_kernel("Conv2DGradFilter", {random_tensor(c.x, 1), random_tensor(c.y(), 2)}, attributes,
                 [&](const Tensors& in, const Attributes&) -> Tensors {
                   return {filter_gradient(c, in[0], in[1])};
                 });
  }
}

// Nothing is rounded to 16 bits on the way.
TEST(Conv2D, GivesFloat32OfHalfOperandsAsDoItsGradients) {
  for (const Case& c : kCases)
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      Attributes attributes = c.attributes();
      attributes.set("dtype", DType::kFloat32);
      attributes.set("input_size", List{c.x[1], c.x[2]});
      attributes.set("filter_size", List{c.filter[0], c.filter[1]});
      const Tensor x = random_tensor(c.x, 1).cast(dtype),
                   filter = random_tensor(c.filter, 2).cast(dtype),
                   dy = random_tensor(c.y(), 3).cast(dtype);
      const auto check = [&](const std::string& op, const Tensor& a, const Tensor& b,
                             Tensor (*definition)(const Case&, const Tensor&, const Tensor&)) {
        const Tensor got = run_kernel(op, {a, b}, attributes)[0];
        EXPECT_EQ(got.dtype(), DType::kFloat32) << op;
        expect_close(got, definition(c, a.cast(DType::kFloat64), b.cast(DType::kFloat64)),
                     tolerance_of(DType::kFloat32), str(op, " of ", a.spec(), " and ", b.spec()));
      };
      check("Conv2D", x, filter, convolution);
      check("Conv2DGradInput", dy, filter, input_gradient);
      check("Conv2DGradFilter", x, dy, filter_gradient);
    }
}

// Each case with one activation, and the next case with the next one.
TEST(FusedConv2D, AddsBiasAndActivates) {
  const char* activations[] = {"", "Relu", "Sigmoid"};
  const std::vector<Case> cases = all_cases();
  for (size_t shift = 0; shift < std::size(activations); ++shift)
    for (size_t k = 0; k < cases.size(); ++k) {
      if (shift > 0 && k % 4 != 0) continue;  // every fourth with all of them
      const Case& c = cases[k];
      const char* activation = activations[(k + shift) % std::size(activations)];
      Attributes attributes = c.attributes();
      attributes.set("activation", std::string(activation));
      check_kernel(
          "FusedConv2D",
          {random_tensor(c.x, 1), random_tensor(c.filter, 2), random_tensor({c.filter[3]}, 3)},
          attributes, [&](const Tensors& in, const Attributes& attributes) -> Tensors {
            Tensor y = convolution(c, in[0], in[1]);
            for (int64_t i = 0; i < y.num_elements(); ++i) {
              double& v = y.data<double>()[i];
              v += in[2].data<double>()[i % c.filter[3]];
              if (attributes.get<std::string>("activation") == "Relu") v = v < 0 ? 0 : v;
              if (attributes.get<std::string>("activation") == "Sigmoid")
                v = 1 / (1 + std::exp(-v));
            }
            return {y};
          });
    }
}

TEST(FusedConv2D, ReluPassesNaNOn) {
  const Case c{{1, 4, 4, 8}, {1, 1, 8, 16}};
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    Tensor x = Tensor::full(DType::kFloat64, c.x, -0.5);
    x.data<double>()[5 * 8] = NAN;  // in the sixth pixel
    Attributes attributes = c.attributes();
    attributes.set("activation", std::string("Relu"));
    const Tensor y =
        run_kernel("FusedConv2D",
                   {x.cast(dtype), Tensor::full(dtype, c.filter, 1), Tensor::zeros(dtype, {16})},
                   attributes)[0]
            .cast(DType::kFloat64);
    for (int64_t i = 0; i < y.num_elements(); ++i)
      if (i / 16 == 5)
        EXPECT_TRUE(std::isnan(y.data<double>()[i])) << dtype << " at " << i;
      else
        EXPECT_EQ(y.data<double>()[i], 0) << dtype << " at " << i;
  }
}

}  // namespace
}  // namespace cohort
