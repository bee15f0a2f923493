#include "core/tensor/elementwise_program.h"
#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double reference(Scalar op, double a, double b, double c) {
  switch (op) {
    case Scalar::kCopy:
      return a;
    case Scalar::kNeg:
      return -a;
    case Scalar::kAbs:
      return std::abs(a);
    case Scalar::kSign:
      return a > 0 ? 1 : a < 0 ? -1 : a;
    case Scalar::kExp:
      return std::exp(a);
    case Scalar::kExpm1:
      return std::expm1(a);
    case Scalar::kLog:
      return std::log(a);
    case Scalar::kLog1p:
      return std::log1p(a);
    case Scalar::kSqrt:
      return std::sqrt(a);
    case Scalar::kRsqrt:
      return 1 / std::sqrt(a);
    case Scalar::kSquare:
      return a * a;
    case Scalar::kReciprocal:
      return 1 / a;
    case Scalar::kTanh:
      return std::tanh(a);
    case Scalar::kErf:
      return std::erf(a);
    case Scalar::kSin:
      return std::sin(a);
    case Scalar::kCos:
      return std::cos(a);
    case Scalar::kFloor:
      return std::floor(a);
    case Scalar::kRound:
      return std::nearbyint(a);
    case Scalar::kSigmoid:
      return sigmoid(a);
    case Scalar::kSoftplus:
      return a > 30 ? a : std::log1p(std::exp(a));
    case Scalar::kRelu:
      return a < 0 ? 0 : a;
    case Scalar::kGelu:
      return a * normal_cdf(a);
    case Scalar::kGeluTanh:
      return gelu_tanh(a);
    case Scalar::kSilu:
      return a * sigmoid(a);
    case Scalar::kLogicalNot:
      return a == 0;
    case Scalar::kIsFinite:
      return std::isfinite(a);
    case Scalar::kAdd:
      return a + b;
    case Scalar::kSub:
      return a - b;
    case Scalar::kMul:
      return a * b;
    case Scalar::kDiv:
      return a / b;
    case Scalar::kPow:
      return std::pow(a, b);
    case Scalar::kMod:
      return a - b * std::floor(a / b);
    case Scalar::kMaximum:
      return std::isnan(a) || std::isnan(b) ? kNaN : std::max(a, b);
    case Scalar::kMinimum:
      return std::isnan(a) || std::isnan(b) ? kNaN : std::min(a, b);
    case Scalar::kEqual:
      return a == b;
    case Scalar::kNotEqual:
      return a != b;
    case Scalar::kLess:
      return a < b;
    case Scalar::kLessEqual:
      return a <= b;
    case Scalar::kGreater:
      return a > b;
    case Scalar::kGreaterEqual:
      return a >= b;
    case Scalar::kLogicalAnd:
      return a != 0 && b != 0;
    case Scalar::kLogicalOr:
      return a != 0 || b != 0;
    case Scalar::kReluGrad:
      return b > 0 ? a : 0;
    case Scalar::kTanhGrad:
      return a * (1 - b * b);
    case Scalar::kSigmoidGrad:
      return a * b * (1 - b);
    case Scalar::kGeluGrad:
      return a * (normal_cdf(b) + b * std::exp(-b * b / 2) / std::sqrt(2 * M_PI));
    case Scalar::kGeluTanhGrad:
      return a * (gelu_tanh(b + 1e-5) - gelu_tanh(b - 1e-5)) / 2e-5;
    case Scalar::kSiluGrad:
      return a * sigmoid(b) * (1 + b * (1 - sigmoid(b)));
    case Scalar::kSelect:
      return a != 0 ? b : c;
    case Scalar::kCount:
      break;
  }
  return kNaN;
}

bool gives_bool(Scalar op) {
  return (op >= Scalar::kEqual && op <= Scalar::kLogicalOr) || op == Scalar::kLogicalNot ||
         op == Scalar::kIsFinite;
}

std::vector<Scalar> scalars(int arity) {
  std::vector<Scalar> ops;
  for (int64_t i = 0; i < static_cast<int64_t>(Scalar::kCount); ++i)
    if (scalar_arity(static_cast<Scalar>(i)) == arity) ops.push_back(static_cast<Scalar>(i));
  return ops;
}

// The results in float64, but for overflow beyond the output's type.
std::vector<double> broadcast_reference(Scalar op, const std::vector<Tensor>& inputs,
                                        const TensorSpec& output) {
  const Shape& shape = output.shape;
  std::vector<std::vector<double>> values;
  for (const Tensor& t : inputs) values.push_back(to_doubles(t));
  std::vector<double> out;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    const auto position = unravel(i, shape);
    double operands[3] = {};
    for (size_t k = 0; k < inputs.size(); ++k)
      operands[k] = values[k][ravel_broadcast(position, inputs[k].shape())];
    const double y = reference(op, operands[0], operands[1], operands[2]);
    out.push_back(output.dtype == DType::kFloat32 ? static_cast<float>(y) : y);
  }
  return out;
}

// Checks an op with every thread count, with unaligned inputs and, where the kernel allows it, in
// place.
void check(Scalar op, const std::vector<Tensor>& inputs, DType output, double tolerance) {
  Shape shape;
  std::string what(scalar_name(op));
  for (const Tensor& t : inputs) {
    shape = broadcast_shapes(shape, t.shape());
    what += str(" ", t.spec());
  }
  const auto expected = broadcast_reference(op, inputs, {output, shape});
  Attributes attributes;
  if (op == Scalar::kCopy) attributes.set("dtype", output);
  for (int threads : {1, 2, 3})
    expect_near(expected,
                run_kernel(scalar_name(op), inputs, {{output, shape}}, attributes,
                           {threads, {}, threads == 2})[0],
                tolerance, what);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].spec() == TensorSpec{output, shape})
      expect_near(
          expected,
          run_kernel(
              scalar_name(op), inputs, {{output, shape}}, attributes,
              {.threads = 2, .in_place_output = 0, .in_place_input = static_cast<int>(i)})[0],
          tolerance, what + " in place");
}

const std::vector<DType> kFloats = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                    DType::kFloat16};
const std::vector<DType> kIntegers = {DType::kInt32, DType::kInt64, DType::kUInt8};

// The gradient of gelu's tanh form is checked against a difference quotient.
double tolerance_of(Scalar op, DType dtype) {
  return op == Scalar::kGeluTanhGrad ? std::max(1e-8, tolerance(dtype)) : tolerance(dtype);
}

TEST(Elementwise, UnaryOpsOfAllFloatTypes) {
  for (Scalar op : scalars(1)) {
    const bool positive = op == Scalar::kLog || op == Scalar::kLog1p || op == Scalar::kSqrt ||
                          op == Scalar::kRsqrt || op == Scalar::kReciprocal;
    for (DType dtype : kFloats)
      for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{7}, Shape{1024}, Shape{3, 41, 277}})
        check(op, {random_tensor(dtype, shape, positive ? 0.1 : -5, 5)},
              gives_bool(op) ? DType::kBool : dtype, tolerance_of(op, dtype));
  }
}

TEST(Elementwise, BinaryOpsOfAllFloatTypes) {
  for (Scalar op : scalars(2))
    for (DType dtype : kFloats)
      for (int64_t n : {0, 1, 5, 1025, 34000}) {
        const double low = op == Scalar::kPow || op == Scalar::kDiv ? 0.5 : -4;
        check(op, {random_tensor(dtype, {n}, low, 4, 1), random_tensor(dtype, {n}, low, 4, 2)},
              gives_bool(op) ? DType::kBool : dtype, tolerance_of(op, dtype));
      }
}

TEST(Elementwise, BroadcastsAsNumPyDoes) {
  const std::vector<std::pair<Shape, Shape>> cases = {
      {{}, {300, 7}},          {{300, 100}, {100}},
      {{2, 26, 26, 32}, {32}}, {{300, 1}, {300, 100}},
      {{5, 1, 7}, {1, 6, 1}},  {{2, 3, 1, 5}, {4, 5}},
      {{17, 1025}, {1025}},    {{9, 3000}, {3000}},
      {{0, 4}, {4}},           {{3, 0}, {1, 1}},
      {{1, 1}, {1}},           {{7, 1, 3, 1}, {7, 5, 3, 2}},
      {{9, 700}, {9, 1}},      {{1, 5000}, {2, 5000}},
      {{3, 1000}, {1000}},     {{1, 1, 2, 1, 2, 1, 2, 1}, {2, 2, 2, 2, 2, 2, 2, 2}},
      {{11, 13, 1}, {13, 90}}, {{1, 0}, {5, 1}},
      {{9000, 3}, {3}}};
  for (const auto& [a, b] : cases)
    for (DType dtype :
         {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt32, DType::kInt64})
      for (Scalar op : {Scalar::kSub, Scalar::kLess}) {
        const DType output = op == Scalar::kLess ? DType::kBool : dtype;
        check(op, {random_tensor(dtype, a, -50, 50, 1), random_tensor(dtype, b, -50, 50, 2)},
              output, tolerance(dtype));
        check(op, {random_tensor(dtype, b, -50, 50, 1), random_tensor(dtype, a, -50, 50, 2)},
              output, tolerance(dtype));
      }
}

TEST(Elementwise, SelectTakesABoolConditionOfItsOwnShape) {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat16, DType::kFloat64, DType::kInt64, DType::kBool})
    for (const Shape& condition : {Shape{}, Shape{600}, Shape{50, 1}, Shape{50, 600}})
      check(
          Scalar::kSelect,
          {random_tensor(DType::kFloat32, condition, -1, 1).cast(DType::kInt32).cast(DType::kBool),
           random_tensor(dtype, {50, 600}, -9, 9, 1), random_tensor(dtype, {600}, -9, 9, 2)},
          dtype, 0);
}

TEST(Elementwise, SelectBroadcastsEachOperand) {
  const Shape cases[][3] = {
      {{}, {}, {}},          {{0}, {1}, {}},          {{}, {0, 3}, {3}},
      {{2, 0, 3}, {3}, {1}}, {{1}, {1}, {1}},         {{7}, {7}, {7}},
      {{7}, {}, {1}},        {{1}, {5}, {5, 1}},      {{3, 1}, {1, 5}, {3, 5}},
      {{1025}, {1}, {1025}}, {{2, 1, 3}, {4, 1}, {}}, {{17, 1025}, {1025}, {17, 1}}};
  for (const auto& [condition, a, b] : cases)
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      check(Scalar::kSelect,
            {random_tensor(DType::kFloat32, condition, 0, 2).cast(DType::kInt32).cast(DType::kBool),
             random_tensor(dtype, a, 1, 9, 1), random_tensor(dtype, b, 11, 19, 2)},
            dtype, 0);
    }
}

TEST(Elementwise, IntegerArithmeticIsExactAndWraps) {
  for (DType dtype : kIntegers)
    for (Scalar op : {Scalar::kAdd, Scalar::kSub, Scalar::kMul, Scalar::kMaximum, Scalar::kMinimum,
                      Scalar::kEqual, Scalar::kNotEqual, Scalar::kLess, Scalar::kLessEqual,
                      Scalar::kGreater, Scalar::kGreaterEqual})
      check(op, {random_tensor(dtype, {3000}, 20, 40, 1), random_tensor(dtype, {3000}, 2, 6, 2)},
            gives_bool(op) ? DType::kBool : dtype, 0);
  for (DType dtype : {DType::kInt32, DType::kInt64})
    for (Scalar op : {Scalar::kNeg, Scalar::kAbs, Scalar::kSign, Scalar::kSquare})
      check(op, {random_tensor(dtype, {3000}, -40, 40)}, dtype, 0);
  const auto large = Tensor::from<int64_t>({(int64_t{1} << 62) + 1, INT64_MAX}, {2});
  const auto sum =
      run_kernel("Add", {large, Tensor::from<int64_t>({2, 1}, {2})}, {large.spec()})[0];
  EXPECT_EQ(sum.values<int64_t>()[0], (int64_t{1} << 62) + 3);
  EXPECT_EQ(sum.values<int64_t>()[1], INT64_MIN);
  const auto bytes =
      run_kernel("Add", {Tensor::from<uint8_t>({250}, {1}), Tensor::from<uint8_t>({10}, {1})},
                 {{DType::kUInt8, {1}}})[0];
  EXPECT_EQ(bytes.values<uint8_t>()[0], 4);
}

TEST(Elementwise, IntegerDivisionTruncatesAndByZeroIsZero) {
  const auto a = Tensor::from<int64_t>({7, -7, 5, INT64_MIN, 0}, {5});
  const auto b = Tensor::from<int64_t>({2, 2, 0, -1, 0}, {5});
  const auto y = run_kernel("Div", {a, b}, {a.spec()})[0];
  EXPECT_EQ(std::vector<int64_t>(y.values<int64_t>().begin(), y.values<int64_t>().end()),
            (std::vector<int64_t>{3, -3, 0, INT64_MIN, 0}));
}

TEST(Elementwise, RemaindersHaveTheDivisorsSignAndByZeroAreZeroOrNaN) {
  const std::vector<int64_t> a = {7, -7, 7, -7, -6, 5, INT64_MIN, INT64_MIN, 0},
                             b = {3, 3, -3, -3, 3, 0, -1, INT64_MAX, 0};
  const Shape shape{static_cast<int64_t>(a.size())};
  const Tensor y = run_kernel("Mod", {Tensor::from(a, shape), Tensor::from(b, shape)},
                              {{DType::kInt64, shape}})[0];
  EXPECT_EQ(std::vector<int64_t>(y.values<int64_t>().begin(), y.values<int64_t>().end()),
            (std::vector<int64_t>{1, 2, -2, -1, 0, 0, 0, INT64_MAX - 1, 0}));
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const auto row = [&](const std::vector<double>& values) {
      return Tensor::from(values, {static_cast<int64_t>(values.size())}).cast(dtype);
    };
    const Tensor x = row({7, -7, 7, -7, 5.5, 0, kInf, 2, -2, kNaN, 1}),
                 by = row({3, 3, -3, -3, 1.25, 3, 3, kInf, kInf, 3, 0});
    expect_near({1, 2, -2, -1, 0.5, 0, kNaN, 2, kInf, kNaN, kNaN},
                run_kernel("Mod", {x, by}, {x.spec()})[0], 0, str("of ", dtype));
  }
}

TEST(Elementwise, HalvesRoundToEven) {
  const std::vector<double> x = {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609, 7.75};
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Tensor given = Tensor::from(x, {static_cast<int64_t>(x.size())}).cast(dtype);
    expect_near({-2, -2, 0, 0, 2, 2, 0, 8388609, 8},
                run_kernel("Round", {given}, {given.spec()})[0], 0, str("of ", dtype));
  }
}

TEST(Elementwise, BoolLogic) {
  const auto a = Tensor::from<uint8_t>({0, 0, 1, 1}, {4}).cast(DType::kBool);
  const auto b = Tensor::from<uint8_t>({0, 1, 0, 1}, {4}).cast(DType::kBool);
  for (Scalar op : {Scalar::kLogicalAnd, Scalar::kLogicalOr, Scalar::kEqual, Scalar::kNotEqual})
    check(op, {a, b}, DType::kBool, 0);
  check(Scalar::kLogicalNot, {a}, DType::kBool, 0);
}

TEST(Elementwise, CastsBetweenAllTypes) {
  for (int from = 0; from < kNumDTypes; ++from)
    for (int to = 0; to < kNumDTypes; ++to)
      for (int64_t n : {0, 1, 9, 5000}) {
        const Tensor x = random_tensor(static_cast<DType>(from), {n}, 0, 100);
        const auto target = static_cast<DType>(to);
        for (bool misaligned : {false, true})
          expect_same_bytes(x.cast(target),
                            run_kernel("Cast", {x}, {{target, x.shape()}}, {{"dtype", target}},
                                       {2, {}, misaligned})[0],
                            str("Cast ", x.spec(), " to ", target));
      }
}

TEST(Elementwise, CastsKeepLargeIntegersAndSaturateFloats) {
  const auto large = Tensor::from<int64_t>({(int64_t{1} << 53) + 1, -5}, {2});
  const auto wrapped =
      run_kernel("Cast", {large}, {{DType::kInt32, {2}}}, {{"dtype", DType::kInt32}})[0];
  EXPECT_EQ(wrapped.values<int32_t>()[0], 1);
  const auto x = Tensor::from<float>({1e30f, -1e30f, std::nanf(""), -1.9f, 255.5f}, {5});
  const auto ints = run_kernel("Cast", {x}, {{DType::kInt32, {5}}}, {{"dtype", DType::kInt32}})[0];
  expect_near({INT32_MAX, INT32_MIN, 0, -1, 255}, ints, 0, "int32");
  const auto bytes = run_kernel("Cast", {x}, {{DType::kUInt8, {5}}}, {{"dtype", DType::kUInt8}})[0];
  expect_near({255, 0, 0, 0, 255}, bytes, 0, "uint8");
  const auto longs = run_kernel("Cast", {x}, {{DType::kInt64, {5}}}, {{"dtype", DType::kInt64}})[0];
  EXPECT_EQ(longs.values<int64_t>()[0], INT64_MAX);
  EXPECT_EQ(longs.values<int64_t>()[1], INT64_MIN);
}

// Feeds, initial values and constants are converted by tensors, not by a kernel.
TEST(Elementwise, TensorsSaturateAsCastsDo) {
  const std::vector<double> values = {
      kNaN,  kInf, -kInf, 1e30,   -1e30,   2147483647.5, 2147483648.0, -2147483649.0, 255.9,
      256.0, -0.9, -1.9,  9.3e18, -9.3e18, 6e4,          -6.5e4,       0.0,           7.5};
  const Tensor wide = Tensor::from<double>(values, {static_cast<int64_t>(values.size())});
  for (const DType to : kIntegers) {
    for (const DType from : kFloats) {
      const Tensor x = wide.cast(from);
      expect_same_bytes(run_kernel("Cast", {x}, {{to, x.shape()}}, {{"dtype", to}})[0], x.cast(to),
                        str("a tensor ", x.spec(), " as ", to));
    }
    const Tensor cast = wide.cast(to);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(Tensor::full(to, {}, values[i]).item(),
                cast.slice_rows(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1).item())
          << to << " of " << values[i];
  }
  expect_near({0, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MAX, INT32_MIN, 255,
               256, 0, -1, INT32_MAX, INT32_MIN, 60000, -65000, 0, 7},
              wide.cast(DType::kInt32), 0, "int32");
  expect_near({0, 255, 0, 255, 0, 255, 255, 0, 255, 255, 0, 0, 255, 0, 255, 0, 0, 7},
              wide.cast(DType::kUInt8), 0, "uint8");
}

TEST(Elementwise, SpecialValuesFollowIeee) {
  const std::vector<double> special = {
      0.0,   -0.0, 1,    -1,   kInf, -kInf, kNaN,  1e-40,          -1e-40, 1e30, -1e30, 88.7, 89,
      -87.5, -95,  -103, -104, 3e38, 1e-8,  -1e-8, 1.17549435e-38, 20,     -20,  0.5,   4.5,  -4.5};
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Tensor x =
        Tensor::from<double>(special, {static_cast<int64_t>(special.size())}).cast(dtype);
    for (Scalar op : scalars(1)) {
      if (op == Scalar::kGelu || op == Scalar::kGeluTanh || op == Scalar::kSilu)
        continue;  // 0 * inf at -inf
      check(op, {x}, gives_bool(op) ? DType::kBool : dtype, tolerance(dtype));
    }
    for (Scalar op :
         {Scalar::kMaximum, Scalar::kMinimum, Scalar::kAdd, Scalar::kEqual, Scalar::kLess})
      check(op, {x.reshape({x.num_elements(), 1}), x}, gives_bool(op) ? DType::kBool : dtype, 1e-7);
  }
}

// Relative, also for results much smaller than 1.
TEST(Elementwise, Float32FunctionsAreAccurate) {
  const auto worst = [](std::string_view op, double low, double high, double (*f)(double),
                        bool relative) {
    const Tensor x = random_tensor(DType::kFloat32, {200000}, low, high, 5);
    const Tensor y = run_kernel(op, {x}, {x.spec()})[0];
    double largest = 0;
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      const double expected = f(x.values<float>()[i]),
                   error = std::abs(y.values<float>()[i] - expected);
      largest = std::max(largest, relative ? error / std::abs(expected) : error);
    }
    return largest;
  };
  using F = double (*)(double);
  EXPECT_LT(worst("Exp", -86, 88, F(std::exp), true), 5e-7);
  EXPECT_LT(worst("Expm1", -1, 1, F(std::expm1), true), 5e-7);
  EXPECT_LT(worst("Log", 1e-6, 3, F(std::log), true), 5e-7);
  EXPECT_LT(worst("Log", 0, 1e38, F(std::log), true), 5e-7);
  EXPECT_LT(worst("Log1p", -0.9, 1, F(std::log1p), true), 5e-7);
  EXPECT_LT(worst("Tanh", -4, 4, F(std::tanh), true), 5e-7);
  EXPECT_LT(worst("Erf", -5, 5, F(std::erf), false), 2e-7);
  EXPECT_LT(worst("Erf", -0.5, 0.5, F(std::erf), true), 5e-7);
}

TEST(Elementwise, RealFunctionsRejectIntegersByName) {
  const auto x = Tensor::from<int32_t>({1}, {1});
  try {
    run_kernel("Exp", {x}, {x.spec()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnimplemented);
    EXPECT_NE(error.message().find("Exp does not support int32"), std::string::npos)
        << error.what();
  }
}

TEST(Elementwise, BroadcastToRepeats) {
  const std::vector<std::pair<Shape, Shape>> cases = {{{}, {}},
                                                      {{}, {1}},
                                                      {{}, {7, 11}},
                                                      {{}, {0}},
                                                      {{1}, {1025}},
                                                      {{5}, {5}},
                                                      {{5}, {3, 5}},
                                                      {{1, 1}, {0, 3}},
                                                      {{0}, {4, 0}},
                                                      {{0, 1}, {0, 6}},
                                                      {{9, 1}, {9, 2500}},
                                                      {{1, 2500}, {9, 2500}},
                                                      {{3, 1, 5}, {2, 3, 400, 5}},
                                                      {{7, 1, 3, 1}, {7, 5, 3, 2}},
                                                      {{1, 2, 1, 2, 1, 2}, {2, 1, 2, 3, 2, 2, 2}}};
  for (const auto& [from, to] : cases)
    for (int i = 0; i < kNumDTypes; ++i)
      for (const int threads : {1, 2, 3}) {
        const auto dtype = static_cast<DType>(i);
        const Tensor x = random_tensor(dtype, from, 0, 5);
        const Tensor y = run_kernel("BroadcastTo", {x}, {{dtype, to}}, {{"shape", to.to_vector()}},
                                    {threads, {}, threads == 2})[0];
        expect_near(broadcast_reference(Scalar::kCopy, {x}, y.spec()), y, 0,
                    str("BroadcastTo of ", x.spec(), " to ", to));
      }
}

}  // namespace
}  // namespace cohort::testing
