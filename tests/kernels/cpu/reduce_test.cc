#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

const std::vector<DType> kNumbers = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                     DType::kFloat16, DType::kInt32,   DType::kInt64,
                                     DType::kUInt8};

// Of random elements that have a sign where the dtype has one.
double lowest(DType dtype) { return dtype == DType::kUInt8 ? 0 : -4; }

struct Reduction {
  std::string op;
  double identity;
  std::function<double(double, double)> combine;
};

double nan_max(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? a + b : std::max(a, b);
}
double nan_min(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? a + b : std::min(a, b);
}

const std::vector<Reduction> kReductions = {{"ReduceSum", 0, std::plus<double>()},
                                            {"ReduceMean", 0, std::plus<double>()},
                                            {"ReduceProd", 1, std::multiplies<double>()},
                                            {"ReduceMax", -kInf, nan_max},
                                            {"ReduceMin", kInf, nan_min}};

Shape kept_shape(const Shape& shape, const std::vector<int64_t>& axes) {
  Shape kept = shape;
  for (int64_t axis : axes) kept = kept.with_dim(static_cast<int>(axis), 1);
  return kept;
}

std::vector<double> reference(const Reduction& reduction, const Tensor& x,
                              const std::vector<int64_t>& axes) {
  const Shape kept = kept_shape(x.shape(), axes);
  std::vector<double> out(kept.num_elements(), reduction.identity);
  const auto values = to_doubles(x);
  for (size_t i = 0; i < values.size(); ++i) {
    double& sum = out[ravel_broadcast(unravel(static_cast<int64_t>(i), x.shape()), kept)];
    sum = reduction.combine(sum, values[i]);
  }
  if (reduction.op == "ReduceMean")
    for (double& sum : out)
      sum /= static_cast<double>(x.num_elements()) / static_cast<double>(out.size());
  return out;
}

// What an integer dtype holds of a result: beyond every number its extremes, and bytes wrap.
double as_integer(DType dtype, double value) {
  if (std::isinf(value)) return Tensor::full(dtype, {}, value).item();
  return dtype == DType::kUInt8 ? std::fmod(value, 256) : value;
}

struct Case {
  Shape shape;
  std::vector<int64_t> axes;
};

const std::vector<Case> kCases = {{{}, {}},
                                  {{1}, {0}},
                                  {{7}, {0}},
                                  {{5000}, {0}},
                                  {{100003}, {0}},
                                  {{300, 70}, {1}},
                                  {{300, 70}, {0}},
                                  {{300, 70}, {0, 1}},
                                  {{2, 9000}, {1}},
                                  {{9000, 2}, {0}},
                                  {{9001, 3}, {0}},
                                  {{700, 256}, {0}},
                                  {{3, 3000}, {0}},
                                  {{3, 4, 5}, {1}},
                                  {{3, 4, 5}, {0, 2}},
                                  {{2, 3, 4, 5}, {1, 3}},
                                  {{2, 3, 4, 5}, {0, 2}},
                                  {{6, 1, 4, 1}, {1, 3}},
                                  {{40, 5, 5, 33}, {0, 1, 2}},
                                  {{0, 4}, {0}},
                                  {{4, 0}, {1}},
                                  {{4, 0}, {0}},
                                  {{0}, {0}},
                                  {{0, 4, 0}, {0, 2}},
                                  {{2, 3, 2, 2, 2, 1, 2, 3}, {1, 3, 6}}};

// Makes a few of the ones of `x` 3 and 2, whose product no integer dtype but bytes overflows, and a
// double holds exactly.
void scatter_factors(Tensor& x) {
  const int64_t n = x.num_elements();
  if (n == 0) return;
  dispatch(IntegerTypes{}, x.dtype(), "factors", [&]<typename T>() {
    for (int64_t i = 0; i < 12; ++i) x.data<T>()[i * 7919 % n] = static_cast<T>(2 + i % 2);
  });
}

TEST(Reduce, AllOpsShapesAndDtypes) {
  for (const auto& reduction : kReductions)
    for (DType dtype : kNumbers)
      for (const Case& c : kCases) {
        const bool product = reduction.op == "ReduceProd", integer = is_integer(dtype);
        if (integer && reduction.op == "ReduceMean") continue;
        // Products near 1 neither overflow nor vanish.
        const double low = product ? (integer ? 1 : 0.99) : lowest(dtype),
                     high = product ? (integer ? 1 : 1.01) : 5;
        Tensor x = random_tensor(dtype, c.shape, low, high);
        if (product && integer) scatter_factors(x);
        auto expected = reference(reduction, x, c.axes);
        if (integer)
          for (double& value : expected) value = as_integer(dtype, value);
        // Kept or removed, the axes give the same elements.
        const TensorSpec output{dtype, kept_shape(c.shape, c.axes)};
        for (int threads : {1, 2, 3})
          expect_near(
              expected,
              run_kernel(reduction.op, {x}, {output}, {{"axes", c.axes}, {"keep_dims", true}},
                         {threads, {}, threads == 2})[0],
              (product ? 50 : 5) * tolerance(dtype),
              str(reduction.op, " ", x.spec(), " to ", output.shape));
      }
}

TEST(Reduce, SameBitsForAnyNumberOfThreads) {
  for (const Case& c : {Case{{300001}, {0}}, Case{{5000, 130}, {0}}, Case{{130, 5000}, {1}},
                        Case{{50, 40, 30}, {0, 2}}}) {
    const Tensor x = random_tensor(DType::kFloat32, c.shape, -1, 1);
    const TensorSpec output{x.dtype(), kept_shape(c.shape, c.axes)};
    const Attributes attributes = {{"axes", c.axes}, {"keep_dims", true}};
    const auto one = run_kernel("ReduceSum", {x}, {output}, attributes)[0];
    for (int threads : {2, 3})
      expect_same_bytes(one, run_kernel("ReduceSum", {x}, {output}, attributes, {threads})[0],
                        "ReduceSum");
  }
}

TEST(Reduce, LongSumsStayAccurate) {
  const Tensor ones = Tensor::full(DType::kFloat32, {20'000'000}, 1.0),
               tenths = Tensor::full(DType::kFloat32, {3'000'000}, 0.1);
  const Attributes attributes = {{"axes", std::vector<int64_t>{0}}, {"keep_dims", false}};
  EXPECT_EQ(run_kernel("ReduceSum", {ones}, {{DType::kFloat32, {}}}, attributes)[0].item(),
            20'000'000);
  EXPECT_NEAR(run_kernel("ReduceSum", {tenths}, {{DType::kFloat32, {}}}, attributes)[0].item(), 3e5,
              0.1);
  const Tensor halves = Tensor::full(DType::kBFloat16, {100'000}, 1.0);
  EXPECT_EQ(run_kernel("ReduceMean", {halves}, {{DType::kBFloat16, {}}}, attributes)[0].item(), 1);
}

TEST(Reduce, ExtremesPassNaNOn) {
  for (int64_t n : {1, 40, 9000})
    for (int64_t inner : {1, 3, 100}) {
      Tensor x = random_tensor(DType::kFloat32, {n, inner}, -1, 1);
      x.data<float>()[(n / 2) * inner] = NAN;
      for (const char* op : {"ReduceMax", "ReduceMin"}) {
        const auto y = run_kernel(op, {x}, {{DType::kFloat32, {inner}}},
                                  {{"axes", std::vector<int64_t>{0}}, {"keep_dims", false}})[0];
        EXPECT_TRUE(std::isnan(y.values<float>()[0])) << op;
        EXPECT_EQ(std::isnan(y.values<float>()[inner - 1]), inner == 1) << op;
      }
    }
}

TEST(ArgMax, FirstLargestAlongAnyAxisAndNaNWins) {
  for (DType dtype : kNumbers)
    for (const Shape& shape : {Shape{7, 60, 11}, Shape{1}, Shape{5}, Shape{1, 1, 1}, Shape{3, 9001},
                               Shape{9001, 3}, Shape{0, 4}, Shape{4, 0}, Shape{2, 0, 3}})
      for (int64_t axis = 0; axis < shape.rank(); ++axis) {
        if (shape[static_cast<int>(axis)] == 0) continue;  // has no largest element
        const Tensor x = random_tensor(dtype, shape, lowest(dtype), 9);
        const auto values = to_doubles(x);
        const Shape kept = kept_shape(shape, {axis});
        std::vector<double> best(kept.num_elements(), -kInf), expected(kept.num_elements());
        for (int64_t i = 0; i < x.num_elements(); ++i) {
          const auto position = unravel(i, shape);
          const int64_t line = ravel_broadcast(position, kept);
          if (values[i] > best[line]) {
            best[line] = values[i];
            expected[line] = static_cast<double>(position[axis]);
          }
        }
        for (int threads : {1, 2, 3})
          expect_near(expected,
                      run_kernel("ArgMax", {x}, {{DType::kInt64, kept}}, {{"axis", axis}},
                                 {threads, {}, threads == 2})[0],
                      0, str("ArgMax of ", x.spec(), " along ", axis));
      }
  const auto x = Tensor::from<float>({1, NAN, 5, NAN}, {4});
  EXPECT_EQ(run_kernel("ArgMax", {x}, {{DType::kInt64, {}}}, {{"axis", int64_t{0}}})[0].item(), 1);
}

struct Scan {
  std::string op;
  double identity;
  std::function<double(double, double)> combine;
  double bound;  // of elements, so that integers do not overflow
};

const std::vector<Scan> kScans = {{"CumSum", 0, std::plus<double>(), 4},
                                  {"CumProd", 1, std::multiplies<double>(), 1.9}};

std::vector<double> reference(const Scan& scan, const Tensor& x, int axis, bool exclusive,
                              bool reverse) {
  const Shape& shape = x.shape();
  const int64_t n = shape[axis], stride = shape.count(axis + 1, shape.rank());
  const auto values = to_doubles(x);
  std::vector<double> out(values.size(), scan.identity);
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const int64_t at = i / stride % n;
    for (int64_t k = 0; k < n; ++k) {
      const bool before = reverse ? k > at : k < at;
      if (before || (k == at && !exclusive))
        out[i] = scan.combine(out[i], values[i + (k - at) * stride]);
    }
    if (is_integer(x.dtype())) out[i] = as_integer(x.dtype(), out[i]);
  }
  return out;
}

void check_scan(const Scan& scan, const Tensor& x, int axis) {
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      const auto expected = reference(scan, x, axis, exclusive, reverse);
      const Attributes attributes = {
          {"axis", int64_t{axis}}, {"exclusive", exclusive}, {"reverse", reverse}};
      for (int threads : {1, 2, 3})
        expect_near(
            expected,
            run_kernel(scan.op, {x}, {x.spec()}, attributes, {threads, {}, threads == 2})[0],
            tolerance(x.dtype()), str(scan.op, " of ", x.spec(), " along ", axis));
    }
}

TEST(CumSumAndCumProd, AllDirectionsAndAxes) {
  for (const Scan& scan : kScans)
    for (DType dtype : kNumbers)
      for (const Shape& shape : {Shape{5, 60, 9}, Shape{1, 0, 3}, Shape{2, 1, 1}, Shape{1},
                                 Shape{701}, Shape{0, 5}, Shape{131, 4}})
        for (int axis = 0; axis < shape.rank(); ++axis)
          check_scan(scan,
                     random_tensor(dtype, shape, std::max(lowest(dtype), -scan.bound), scan.bound),
                     axis);
}

TEST(CumProd, OfIntegersWrapsAround) {
  const Attributes attributes = {{"axis", int64_t{0}}, {"exclusive", false}, {"reverse", false}};
  const auto x = Tensor::from<int64_t>({int64_t{1} << 62, 2, -1, 3}, {4});
  const Tensor y = run_kernel("CumProd", {x}, {x.spec()}, attributes)[0];
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(std::vector<int64_t>(y.data<int64_t>(), y.data<int64_t>() + 4),
            (std::vector<int64_t>{int64_t{1} << 62, kLowest, kLowest, kLowest}));
}

void check_top_k(const Tensor& x, int64_t k) {
  const auto values = to_doubles(x);
  const int64_t extent = x.shape().dim(-1), rows = x.shape().count(0, x.shape().rank() - 1);
  std::vector<double> expected_values, expected_indices;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int64_t> order(extent);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return values[row * extent + a] > values[row * extent + b];
    });
    for (int64_t i = 0; i < k; ++i) {
      expected_values.push_back(values[row * extent + order[i]]);
      expected_indices.push_back(static_cast<double>(order[i]));
    }
  }
  const Shape shape = x.shape().with_dim(x.shape().rank() - 1, k);
  for (int threads : {1, 2, 3}) {
    const auto y = run_kernel("TopK", {x}, {{x.dtype(), shape}, {DType::kInt32, shape}}, {{"k", k}},
                              {threads, {}, threads == 2});
    const std::string what = str("the first ", k, " of ", x.spec());
    expect_near(expected_values, y[0], 0, what);
    expect_near(expected_indices, y[1], 0, what + ", indices");
  }
}

TEST(TopK, FallingOrderWithLowerIndexFirst) {
  for (DType dtype : kNumbers)
    for (const Shape& shape : {Shape{400, 50}, Shape{50}, Shape{1}, Shape{3, 1, 5},
                               Shape{2, 3, 701}, Shape{0, 4}, Shape{4, 0}})
      for (int64_t k : {0, 1, 3, 50})
        if (k <= shape.dim(-1)) check_top_k(random_tensor(dtype, shape, lowest(dtype), 20), k);
}

}  // namespace
}  // namespace cohort::testing
