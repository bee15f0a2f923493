#include "tests/kernels/cpu/nn_testing.h"

namespace cohort {
namespace {

constexpr double kEpsilon = 1e-3;

const Shape kShapes[] = {{1, 1},   {7, 5}, {40, 16}, {3, 4, 5, 3}, {2, 300, 33},
                         {200, 1}, {17},   {0, 4},   {3, 0},       {0, 0}};

struct Matrix {
  int64_t rows, columns;
  explicit Matrix(const Shape& x) : rows(x.count(0, x.rank() - 1)), columns(x.dim(-1)) {}
};

Tensor row_tensor(const Shape& x) {
  return Tensor::zeros(DType::kFloat64, x.without_axis(x.rank() - 1));
}
Tensor column_tensor(const Shape& x) { return Tensor::zeros(DType::kFloat64, {x.dim(-1)}); }

bool relu(const Attributes& attributes) {
  return attributes.get<std::string>("activation") == "Relu";
}

Attributes batch_norm_attributes(bool relu) {
  return {{"epsilon", kEpsilon}, {"activation", std::string(relu ? "Relu" : "")}};
}

// x -> y, mean, variance.
Tensors batch_norm(const Tensors& in, const Attributes& attributes) {
  const Shape& shape = in[0].shape();
  const Matrix s(shape);
  Tensor y(DType::kFloat64, shape), mean = column_tensor(shape), variance = column_tensor(shape);
  const double* x = in[0].data<double>();
  for (int64_t c = 0; c < s.columns; ++c) {
    double &m = mean.data<double>()[c], &v = variance.data<double>()[c];
    for (int64_t r = 0; r < s.rows; ++r) m += x[r * s.columns + c] / static_cast<double>(s.rows);
    for (int64_t r = 0; r < s.rows; ++r)
      v += std::pow(x[r * s.columns + c] - m, 2) / static_cast<double>(s.rows);
    for (int64_t r = 0; r < s.rows; ++r) {
      const double xhat = (x[r * s.columns + c] - m) / std::sqrt(v + kEpsilon);
      const double value = xhat * in[1].data<double>()[c] + in[2].data<double>()[c];
      y.data<double>()[r * s.columns + c] = relu(attributes) ? std::max(value, 0.0) : value;
    }
  }
  return {y, mean, variance};
}

// dy, x, gamma, mean, variance [, y] -> dx, dgamma, dbeta.
Tensors batch_norm_grad(const Tensors& in, const Attributes& attributes) {
  const Shape& shape = in[1].shape();
  const Matrix s(shape);
  Tensor dx(DType::kFloat64, shape), dgamma = column_tensor(shape), dbeta = column_tensor(shape);
  for (int64_t c = 0; c < s.columns; ++c) {
    const double rstd = 1 / std::sqrt(in[4].data<double>()[c] + kEpsilon);
    const auto dy = [&](int64_t i) {
      return relu(attributes) && !(in[5].data<double>()[i] > 0) ? 0 : in[0].data<double>()[i];
    };
    const auto xhat = [&](int64_t i) {
      return (in[1].data<double>()[i] - in[3].data<double>()[c]) * rstd;
    };
    double &sum = dbeta.data<double>()[c], &product = dgamma.data<double>()[c];
    for (int64_t i = c; i < s.rows * s.columns; i += s.columns)
      sum += dy(i), product += dy(i) * xhat(i);
    for (int64_t i = c; i < s.rows * s.columns; i += s.columns)
      dx.data<double>()[i] = in[2].data<double>()[c] * rstd *
                             (dy(i) - (sum + xhat(i) * product) / static_cast<double>(s.rows));
  }
  return {dx, dgamma, dbeta};
}

TEST(BatchNorm, NormalisesEachChannel) {
  for (const Shape& shape : kShapes)
    for (const bool relu : {false, true}) {
      const Shape channels{shape.dim(-1)};
      check_kernel(
          "BatchNorm",
          {random_tensor(shape, 1, -2, 4), random_tensor(channels, 2), random_tensor(channels, 3)},
          batch_norm_attributes(relu), batch_norm);
    }
}

TEST(BatchNorm, KeepsASmallVarianceAroundALargeMean) {
  Tensor x = random_tensor({5000, 3}, 1);
  for (int64_t i = 0; i < x.num_elements(); ++i) x.data<double>()[i] += 3000;
  const Tensor ones = Tensor::full(DType::kFloat32, {3}, 1),
               zeros = Tensor::zeros(DType::kFloat32, {3});
  const Tensor rounded = x.cast(DType::kFloat32);
  const Tensors got = run_kernel("BatchNorm", {rounded, ones, zeros}, batch_norm_attributes(false));
  const Tensors want = batch_norm(
      {rounded.cast(DType::kFloat64), ones.cast(DType::kFloat64), zeros.cast(DType::kFloat64)},
      batch_norm_attributes(false));
  for (int64_t c = 0; c < 3; ++c)
    EXPECT_NEAR(got[2].data<float>()[c], want[2].data<double>()[c],
                1e-5 * want[2].data<double>()[c]);
  expect_close(got[0], want[0], 5e-4, "y");
}

TEST(BatchNorm, IsTheSameForAnyNumberOfThreads) {
  const Tensor x = random_tensor({3000, 24}, 1).cast(DType::kFloat32);
  const Tensor gamma = Tensor::full(DType::kFloat32, {24}, 1);
  const auto run = [&](int threads) {
    return run_kernel("BatchNorm", {x, gamma, gamma}, batch_norm_attributes(true),
                      {.threads = threads});
  };
  const Tensors one = run(1);
  for (int threads : {2, 3})
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(std::memcmp(one[i].raw(), run(threads)[i].raw(), one[i].bytes()), 0)
          << "output " << i;
}

TEST(BatchNormGrad, MatchesTheFormula) {
  for (const Shape& shape : kShapes)
    for (const bool relu : {false, true}) {
      const Shape channels{shape.dim(-1)};
      Tensors inputs = {random_tensor(shape, 1), random_tensor(shape, 2),
                        random_tensor(channels, 3), random_tensor(channels, 4),
                        random_tensor(channels, 5, 0, 2)};
      if (relu) inputs.push_back(random_tensor(shape, 6));
      check_kernel("BatchNormGrad", inputs, batch_norm_attributes(relu), batch_norm_grad, {3, 4});
    }
}

// x -> y, mean, rstd; RMS normalisation has mean 0 and no beta.
Tensors row_norm(const Tensors& in, bool centered) {
  const Shape& shape = in[0].shape();
  const Matrix s(shape);
  Tensor y(DType::kFloat64, shape), mean = row_tensor(shape), rstd = row_tensor(shape);
  for (int64_t r = 0; r < s.rows; ++r) {
    const double* x = in[0].data<double>() + r * s.columns;
    double m = 0, v = 0;
    for (int64_t c = 0; c < s.columns && centered; ++c) m += x[c] / static_cast<double>(s.columns);
    for (int64_t c = 0; c < s.columns; ++c)
      v += (x[c] - m) * (x[c] - m) / static_cast<double>(s.columns);
    mean.data<double>()[r] = m;
    rstd.data<double>()[r] = 1 / std::sqrt(v + kEpsilon);
    for (int64_t c = 0; c < s.columns; ++c)
      y.data<double>()[r * s.columns + c] =
          (x[c] - m) * rstd.data<double>()[r] * in[1].data<double>()[c] +
          (centered ? in[2].data<double>()[c] : 0);
  }
  return centered ? Tensors{y, mean, rstd} : Tensors{y, rstd};
}

// dy, x, gamma [, mean], rstd -> dx, dgamma [, dbeta].
Tensors row_norm_grad(const Tensors& in, bool centered) {
  const Shape& shape = in[1].shape();
  const Matrix s(shape);
  Tensor dx(DType::kFloat64, shape), dgamma = column_tensor(shape), dbeta = column_tensor(shape);
  for (int64_t r = 0; r < s.rows; ++r) {
    const double *dy = in[0].data<double>() + r * s.columns,
                 *x = in[1].data<double>() + r * s.columns;
    const double *gamma = in[2].data<double>(), rstd = in.back().data<double>()[r];
    const double mean = centered ? in[3].data<double>()[r] : 0, n = static_cast<double>(s.columns);
    double sum = 0, product = 0;
    for (int64_t c = 0; c < s.columns; ++c) {
      const double xhat = (x[c] - mean) * rstd;
      if (centered) sum += dy[c] * gamma[c];
      product += dy[c] * gamma[c] * xhat;
      dgamma.data<double>()[c] += dy[c] * xhat;
      dbeta.data<double>()[c] += dy[c];
    }
    for (int64_t c = 0; c < s.columns; ++c)
      dx.data<double>()[r * s.columns + c] =
          rstd * (dy[c] * gamma[c] - sum / n - (x[c] - mean) * rstd * product / n);
  }
  return centered ? Tensors{dx, dgamma, dbeta} : Tensors{dx, dgamma};
}

TEST(LayerNorm, NormalisesEachRow) {
  for (const Shape& shape : kShapes) {
    const Shape channels{shape.dim(-1)};
    check_kernel(
        "LayerNorm",
        {random_tensor(shape, 1, -2, 4), random_tensor(channels, 2), random_tensor(channels, 3)},
        {{"epsilon", kEpsilon}},
        [](const Tensors& in, const Attributes&) { return row_norm(in, true); });
  }
}

TEST(RmsNorm, NormalisesEachRow) {
  for (const Shape& shape : kShapes)
    check_kernel("RmsNorm", {random_tensor(shape, 1, -2, 4), random_tensor({shape.dim(-1)}, 2)},
                 {{"epsilon", kEpsilon}},
                 [](const Tensors& in, const Attributes&) { return row_norm(in, false); });
}

TEST(LayerNormGrad, MatchesTheFormula) {
  for (const Shape& shape : kShapes) {
    const Shape rows = shape.without_axis(shape.rank() - 1);
    check_kernel(
        "LayerNormGrad",
        {random_tensor(shape, 1), random_tensor(shape, 2), random_tensor({shape.dim(-1)}, 3),
         random_tensor(rows, 4), random_tensor(rows, 5, 0.5, 2)},
        {}, [](const Tensors& in, const Attributes&) { return row_norm_grad(in, true); }, {3, 4});
  }
}

TEST(RmsNormGrad, MatchesTheFormula) {
  for (const Shape& shape : kShapes) {
    const Shape rows = shape.without_axis(shape.rank() - 1);
    check_kernel("RmsNormGrad",
                 {random_tensor(shape, 1), random_tensor(shape, 2),
                  random_tensor({shape.dim(-1)}, 3), random_tensor(rows, 5, 0.5, 2)},
                 {}, [](const Tensors& in, const Attributes&) { return row_norm_grad(in, false); },
                 {3});
  }
}

// As in mixed precision: gamma and beta in float32, whatever x is.
TEST(Normalisations, TakeWideParameters) {
  for (const Shape& shape : {Shape{40, 16}, Shape{2, 300, 33}}) {
    const Shape channels{shape.dim(-1)}, rows = shape.without_axis(shape.rank() - 1);
    const Tensor x = random_tensor(shape, 1, -2, 4), dy = random_tensor(shape, 2),
                 y = random_tensor(shape, 3), gamma = random_tensor(channels, 4),
                 beta = random_tensor(channels, 5), variance = random_tensor(channels, 6, 0, 2),
                 mean = random_tensor(rows, 7), rstd = random_tensor(rows, 8, 0.5, 2);
    const Attributes epsilon = {{"epsilon", kEpsilon}}, relu = batch_norm_attributes(true);
    const auto layer = [](const Tensors& in, const Attributes&) { return row_norm(in, true); };
    const auto rms = [](const Tensors& in, const Attributes&) { return row_norm(in, false); };
    const auto layer_grad = [](const Tensors& in, const Attributes&) {
      return row_norm_grad(in, true);
    };
    const auto rms_grad = [](const Tensors& in, const Attributes&) {
      return row_norm_grad(in, false);
    };
    check_kernel("BatchNorm", {x, gamma, beta}, relu, batch_norm, {1, 2});
    check_kernel("BatchNormGrad", {dy, x, gamma, beta, variance, y}, relu, batch_norm_grad,
                 {2, 3, 4});
    check_kernel("LayerNorm", {x, gamma, beta}, epsilon, layer, {1, 2});
    check_kernel("LayerNormGrad", {dy, x, gamma, mean, rstd}, {}, layer_grad, {2, 3, 4});
    check_kernel("RmsNorm", {x, gamma}, epsilon, rms, {1});
    check_kernel("RmsNormGrad", {dy, x, gamma, rstd}, {}, rms_grad, {2, 3});
  }
}

}  // namespace
}  // namespace cohort
