#include <algorithm>

#include "tests/kernels/cpu/nn_testing.h"

namespace cohort {
namespace {

const Shape kShapes[] = {{1, 1}, {7, 10}, {3, 4, 33}, {2, 1000}, {9}, {0, 4}, {3, 1}};

Tensor row_tensor(const Shape& x) { return Tensor(DType::kFloat64, x.without_axis(x.rank() - 1)); }

double max_of(const double* x, int64_t n) { return *std::max_element(x, x + n); }

// Of exp(x - the largest x).
double log_sum_of(const double* x, int64_t n) {
  const double high = max_of(x, n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - high);
  return std::log(sum);
}

double log_softmax_of(const double* x, int64_t n, int64_t i) {
  return x[i] - max_of(x, n) - log_sum_of(x, n);
}

// Applies row(input rows, output row, row number) to every row of inputs of one shape.
template <typename F>
Tensor by_rows(const Tensor& a, const Tensor& b, F row) {
  Tensor out(DType::kFloat64, a.shape());
  const int64_t n = a.shape().dim(-1);
  for (int64_t i = 0; i < a.num_elements(); i += n)
    row(a.data<double>() + i, b.data<double>() + i, out.data<double>() + i, n, i / n);
  return out;
}

Tensor log_softmax(const Tensor& x) {
  return by_rows(x, x, [](const double* x, const double*, double* y, int64_t n, int64_t) {
    for (int64_t i = 0; i < n; ++i) y[i] = log_softmax_of(x, n, i);
  });
}

Tensor exp_of(Tensor x) {
  for (int64_t i = 0; i < x.num_elements(); ++i)
    x.data<double>()[i] = std::exp(x.data<double>()[i]);
  return x;
}

TEST(Softmax, GivesADistributionForEachRow) {
  for (const Shape& shape : kShapes)
    check_kernel("Softmax", {random_tensor(shape, 1, -5, 5)}, {},
                 [](const Tensors& in, const Attributes&) -> Tensors {
                   return {exp_of(log_softmax(in[0]))};
                 });
}

TEST(Softmax, OfRowsWithoutElementsIsAsEmpty) {
  const Tensor empty(DType::kFloat64, {3, 0});
  const auto first = [](const Tensors& in, const Attributes&) -> Tensors { return {in[0]}; };
  for (const char* op : {"Softmax", "LogSoftmax"}) check_kernel(op, {empty}, {}, first);
  for (const char* op : {"SoftmaxGrad", "LogSoftmaxGrad"})
    check_kernel(op, {empty, empty}, {}, first);
}

TEST(Softmax, SurvivesLogitsThatOverflow) {
  const Tensor x = Tensor::from<float>({1e30f, -1e30f, 1000, 1000}, {2, 2});
  const Tensor y = run_kernel("Softmax", {x}, {})[0];
  EXPECT_EQ(y.values<float>()[0], 1);
  EXPECT_EQ(y.values<float>()[1], 0);
  EXPECT_EQ(y.values<float>()[2], 0.5f);
}

TEST(LogSoftmax, IsTheLogarithmOfSoftmax) {
  for (const Shape& shape : kShapes)
    check_kernel(
        "LogSoftmax", {random_tensor(shape, 1, -5, 5)}, {},
        [](const Tensors& in, const Attributes&) -> Tensors { return {log_softmax(in[0])}; });
}

TEST(SoftmaxGrad, MatchesTheFormula) {
  for (const Shape& shape : kShapes)
    check_kernel(
        "SoftmaxGrad", {random_tensor(shape, 1), random_tensor(shape, 2, 0, 1)}, {},
        [](const Tensors& in, const Attributes&) -> Tensors {
          return {by_rows(in[0], in[1],
                          [](const double* dy, const double* y, double* dx, int64_t n, int64_t) {
                            double dot = 0;
                            for (int64_t i = 0; i < n; ++i) dot += dy[i] * y[i];
                            for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
                          })};
        });
}

TEST(LogSoftmaxGrad, MatchesTheFormula) {
  for (const Shape& shape : kShapes)
    check_kernel(
        "LogSoftmaxGrad", {random_tensor(shape, 1), random_tensor(shape, 2, -3, 0)}, {},
        [](const Tensors& in, const Attributes&) -> Tensors {
          return {by_rows(in[0], in[1],
                          [](const double* dy, const double* y, double* dx, int64_t n, int64_t) {
                            double sum = 0;
                            for (int64_t i = 0; i < n; ++i) sum += dy[i];
                            for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - std::exp(y[i]) * sum;
                          })};
        });
}

Tensor random_labels(DType dtype, const Shape& logits) {
  Tensor labels = row_tensor(logits);
  RandomStream random(kSeed, 8);
  for (int64_t i = 0; i < labels.num_elements(); ++i)
    labels.data<double>()[i] =
        static_cast<double>(random.below(std::min<int64_t>(logits.dim(-1), 200)));
  return labels.cast(dtype);
}

int64_t label(const Tensor& labels, int64_t row) {
  return static_cast<int64_t>(labels.cast(DType::kFloat64).data<double>()[row]);
}

TEST(SparseSoftmaxCrossEntropy, IsMinusTheLogarithmOfTheLabelsProbability) {
  for (const Shape& shape : kShapes)
    for (DType dtype : {DType::kInt32, DType::kInt64, DType::kUInt8})
      check_kernel("SparseSoftmaxCrossEntropy",
                   {random_tensor(shape, 1, -5, 5), random_labels(dtype, shape)}, {},
                   [](const Tensors& in, const Attributes&) -> Tensors {
                     Tensor loss = row_tensor(in[0].shape()), log_sum = row_tensor(in[0].shape());
                     by_rows(in[0], in[0],
                             [&](const double* x, const double*, double*, int64_t n, int64_t row) {
                               log_sum.data<double>()[row] = log_sum_of(x, n);
                               loss.data<double>()[row] = -log_softmax_of(x, n, label(in[1], row));
                             });
                     return {loss, log_sum};
                   });
}

TEST(SparseSoftmaxCrossEntropyGrad, IsSoftmaxMinusOneHot) {
  for (const Shape& shape : kShapes) {
    const Shape rows = shape.without_axis(shape.rank() - 1);
    check_kernel(
        "SparseSoftmaxCrossEntropyGrad",
        {random_tensor(rows, 1), random_tensor(shape, 2), random_labels(DType::kInt64, shape),
         random_tensor(rows, 3, 1, 3)},
        {},
        [](const Tensors& in, const Attributes&) -> Tensors {
          return {by_rows(in[1], in[1],
                          [&](const double* x, const double*, double* dx, int64_t n, int64_t row) {
                            for (int64_t i = 0; i < n; ++i)
                              dx[i] = in[0].data<double>()[row] *
                                      (std::exp(x[i] - max_of(x, n) - in[3].data<double>()[row]) -
                                       (i == label(in[2], row) ? 1 : 0));
                          })};
        },
        {3});
  }
}

TEST(SparseSoftmaxCrossEntropy, NamesALabelThatIsNoClass) {
  const Tensor logits = Tensor::zeros(DType::kFloat32, {3, 4});
  for (int64_t bad : {-1, 4}) try {
      run_kernel("SparseSoftmaxCrossEntropy", {logits, Tensor::from<int64_t>({0, bad, 1}, {3})},
                 {});
      ADD_FAILURE() << "label " << bad << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kOutOfRange);
      EXPECT_NE(error.message().find(str("label ", bad, " of row 1")), std::string::npos)
          << error.message();
    }
}

TEST(SoftmaxCrossEntropy, WeighsLogProbabilitiesByTargets) {
  for (const Shape& shape : kShapes)
    check_kernel("SoftmaxCrossEntropy",
                 {random_tensor(shape, 1, -5, 5), exp_of(log_softmax(random_tensor(shape, 2)))}, {},
                 [](const Tensors& in, const Attributes&) -> Tensors {
                   Tensor loss = row_tensor(in[0].shape()), log_sum = row_tensor(in[0].shape());
                   by_rows(in[0], in[1],
                           [&](const double* x, const double* t, double*, int64_t n, int64_t row) {
                             double sum = 0;
                             for (int64_t i = 0; i < n; ++i) sum -= t[i] * log_softmax_of(x, n, i);
                             log_sum.data<double>()[row] = log_sum_of(x, n);
                             loss.data<double>()[row] = sum;
                           });
                   return {loss, log_sum};
                 });
}

TEST(SoftmaxCrossEntropyGrad, IsSoftmaxTimesTheirSumMinusTargets) {
  for (const Shape& shape : kShapes) {
    const Shape rows = shape.without_axis(shape.rank() - 1);
    check_kernel(
        "SoftmaxCrossEntropyGrad",
        {random_tensor(rows, 1), random_tensor(shape, 2), random_tensor(shape, 4, 0, 1),
         random_tensor(rows, 3, 1, 3)},
        {},
        [](const Tensors& in, const Attributes&) -> Tensors {
          return {by_rows(
              in[1], in[2],
              [&](const double* x, const double* t, double* dx, int64_t n, int64_t row) {
                double total = 0;
                for (int64_t i = 0; i < n; ++i) total += t[i];
                for (int64_t i = 0; i < n; ++i)
                  dx[i] =
                      in[0].data<double>()[row] *
                      (total * std::exp(x[i] - max_of(x, n) - in[3].data<double>()[row]) - t[i]);
              })};
        },
        {3});
  }
}

// As logits that are less by their maximum: 1e8 + log(2) is 1e8 in float32.
TEST(CrossEntropy, KeepsItsDigitsWhereLogitsAreLarge) {
  const Tensor logits = Tensor::from<float>({1e8f, 1e8f, -1e5f, -1e5f}, {2, 2});
  const Tensor dloss = Tensor::from<float>({1, 1}, {2});
  const std::pair<std::string, Tensor> ops[] = {
      {"SparseSoftmaxCrossEntropy", Tensor::from<int32_t>({0, 1}, {2})},
      {"SoftmaxCrossEntropy", Tensor::from<float>({1, 0, 0, 1}, {2, 2})}};
  for (const auto& [op, targets] : ops) {
    const Tensors y = run_kernel(op, {logits, targets}, {});
    for (const float loss : y[0].values<float>()) EXPECT_FLOAT_EQ(loss, std::log(2.0f)) << op;
    const Tensor gradient = run_kernel(op + "Grad", {dloss, logits, targets, y[1]}, {})[0];
    expect_close(gradient, Tensor::from<double>({-0.5, 0.5, 0.5, -0.5}, {2, 2}), 1e-6, op);
  }
}

}  // namespace
}  // namespace cohort
