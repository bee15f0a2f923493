#include "core/runtime/plan.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/ops/array_ops.h"
#include "core/ops/custom_gradient.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/state_ops.h"
#include "core/runtime/function.h"
#include "core/runtime/variable.h"
#include "tests/runtime/trace.h"

namespace cohort {
namespace {

Tensor ramp(Shape shape, double scale = 0.1) {
  Tensor t(DType::kFloat32, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.data<float>()[i] = static_cast<float>(std::sin(i + 1.0) * scale);
  return t;
}

std::shared_ptr<Variable> variable(const std::string& name, const Tensor& value) {
  return make_local_variable(
      {.name = name, .spec = value.spec(), .initial_value = [value] { return value.clone(); }});
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.spec(), b.spec());
  const Tensor x = a.cast(DType::kFloat64), y = b.cast(DType::kFloat64);
  for (int64_t i = 0; i < x.num_elements(); ++i)
    ASSERT_NEAR(x.data<double>()[i], y.data<double>()[i], tolerance) << "element " << i;
}

TEST(PlanTest, RunsWhatWasTraced) {
  const auto f = function([](Value x, Value y) { return x * y + 1.0; });
  const auto out = f({Tensor::from<float>({1, 2, 3}, {3}), Tensor::from<float>({4, 5, 6}, {3})});
  expect_near(out[0], Tensor::from<float>({5, 11, 19}, {3}), 0);
}

TEST(PlanTest, RefusesFeedsOfAnotherShapeNamingTheInput) {
  const auto traced =
      trace({{DType::kFloat32, {2}}}, [](auto& x) { return std::vector<Value>{x[0] + 1.0}; });
  Plan plan(traced, {});
  try {
    plan.run(std::vector<Tensor>{ramp({3})}, {});
    FAIL() << "a wrong feed was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("float32[2]"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("float32[3]"), std::string::npos) << error.message();
  }
}

TEST(PlanTest, FusesADenseLayerIntoOneKernel) {
  const auto w = variable("w", ramp({4, 3})), b = variable("b", ramp({3}));
  const auto traced = trace({{DType::kFloat32, {5, 4}}}, [&](auto& x) {
    return std::vector<Value>{ops::relu(ops::matmul(x[0], w->read()) + b->read())};
  });
  Plan fused(traced, {}), plain(traced, {.optimize = false});
  EXPECT_EQ(fused.stats().kernels, 1);
  EXPECT_EQ(plain.stats().kernels, 3);
  const std::vector<Tensor> feeds = {ramp({5, 4})};
  expect_near(fused.run(feeds, {})[0], plain.run(feeds, {})[0], 1e-6);
}

TEST(PlanTest, FusesAnElementwiseTreeIntoOneKernel) {
  const auto traced = trace({{DType::kFloat32, {7, 3}}, {DType::kFloat32, {3}}}, [](auto& x) {
    const Value a = ops::tanh(x[0] + x[1]), b = ops::exp(-x[0]);
    return std::vector<Value>{a * b + 2.0, b};
  });
  Plan fused(traced, {}), plain(traced, {.optimize = false});
  EXPECT_EQ(fused.stats().kernels, 1);
  const std::vector<Tensor> feeds = {ramp({7, 3}), ramp({3})};
  const auto x = fused.run(feeds, {}), y = plain.run(feeds, {});
  expect_near(x[0], y[0], 1e-6);
  expect_near(x[1], y[1], 1e-6);
}

TEST(PlanTest, ACastToBoolInAChainIsStillZeroOrOne) {
  const auto traced = trace({{DType::kFloat32, {3}}}, [](auto& x) {
    const Value truth = ops::cast(x[0] * 2.0, DType::kBool);
    return std::vector<Value>{ops::cast(truth, DType::kFloat32) + 1.0};
  });
  Plan plan(traced, {});
  expect_near(plan.run(std::vector<Tensor>{Tensor::from<float>({0, 2.5, -3}, {3})}, {})[0],
              Tensor::from<float>({1, 2, 2}, {3}), 0);
}

TEST(PlanTest, WhatAConversionRoundsStaysRounded) {
  for (const auto& dtypes :
       {std::pair(DType::kFloat32, DType::kFloat16), std::pair(DType::kFloat32, DType::kBFloat16),
        std::pair(DType::kFloat64, DType::kFloat16), std::pair(DType::kFloat64, DType::kFloat32)}) {
    const DType wide = dtypes.first, narrow = dtypes.second;
    SCOPED_TRACE(str(wide, " to ", narrow));
    const Tensor x = Tensor::from<double>({5e5, 1.0 / 6, 1}, {3}).cast(wide);
    const Tensor expected =
        Tensor::from<double>({1e6, 1.0 / 3, 2}, {3}).cast(wide).cast(narrow).cast(DType::kFloat64);
    const auto traced = trace({x.spec()}, [&](auto& in) {
      const Value twice = in[0] + in[0], rounded = ops::cast(ops::cast(twice, narrow), wide);
      return std::vector<Value>{rounded, rounded - twice};
    });
    Plan fused(traced, {}), plain(traced, {.optimize = false});
    EXPECT_EQ(fused.stats().kernels, 2) << "what rounds ends a kernel";
    const std::vector<Tensor> feeds = {x};
    const auto a = fused.run(feeds, {}), b = plain.run(feeds, {});
    const Tensor sums = a[0].cast(DType::kFloat64), differences = a[1].cast(DType::kFloat64),
                 plain_differences = b[1].cast(DType::kFloat64);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(sums.data<double>()[i], expected.data<double>()[i]);
      EXPECT_EQ(differences.data<double>()[i], plain_differences.data<double>()[i]);
    }
  }
}

// Inside of one kernel 60000 * 2 would be a number.
TEST(PlanTest, WhatIsInfiniteInSixteenBitsIsToldFromNumbers) {
  const auto traced = trace({{DType::kFloat16, {2}}}, [](auto& x) {
    const Value y = x[0] * 2.0, zero = ops::constant(0, DType::kFloat16);
    const Value finite = ops::is_finite(y), most = ops::constant(65504, DType::kFloat16);
    return std::vector<Value>{y, finite, ops::where(finite, y, zero), ops::greater(y, most),
                              ops::cast(y, DType::kFloat32)};
  });
  const std::vector<Tensor> feeds = {Tensor::from<float>({60000, 1}, {2}).cast(DType::kFloat16)};
  const float infinity = std::numeric_limits<float>::infinity();
  for (const bool optimize : {true, false}) {
    const auto out = Plan(traced, {.optimize = optimize}).run(feeds, {});
    EXPECT_EQ(out[0].cast(DType::kFloat32).values<float>()[0], infinity);
    expect_near(out[1].cast(DType::kFloat32), Tensor::from<float>({0, 1}, {2}), 0);
    expect_near(out[2].cast(DType::kFloat32), Tensor::from<float>({0, 2}, {2}), 0);
    expect_near(out[3].cast(DType::kFloat32), Tensor::from<float>({1, 0}, {2}), 0);
    EXPECT_EQ(out[4].values<float>()[0], infinity);
  }
}

TEST(PlanTest, Float64BetweenConversionsIsComputedInFloat64) {
  const auto traced = trace({{DType::kFloat32, {2}}}, [](auto& x) {
    const Value wide = ops::exp(ops::cast(x[0], DType::kFloat64));
    return std::vector<Value>{ops::cast(ops::log(wide), DType::kFloat32)};
  });
  Plan plan(traced, {});
  const Tensor x = Tensor::from<float>({100, 1}, {2});  // exp(100) is no float32
  expect_near(plan.run(std::vector<Tensor>{x}, {})[0], x, 1e-5);
}

TEST(PlanTest, DoesNotFuseAcrossANodeInBetween) {
  // mean depends on a, and the last subtraction on mean: they cannot all be one kernel.
  const auto traced = trace({{DType::kFloat32, {6}}}, [](auto& x) {
    const Value a = ops::exp(x[0]);
    return std::vector<Value>{a - ops::reduce_mean(a)};
  });
  Plan plan(traced, {});
  EXPECT_EQ(plan.stats().kernels, 3);
  double sum = 0;
  for (float v : plan.run(std::vector<Tensor>{ramp({6})}, {})[0].values<float>()) sum += v;
  EXPECT_NEAR(sum, 0, 1e-5);
}

TEST(PlanTest, FoldsConstantsMergesEqualNodesAndDropsThoseThatNobodyNeeds) {
  const auto traced = trace({{DType::kFloat32, {2}}}, [](auto& x) {
    const Value c = ops::exp(ops::constant(1.0, DType::kFloat32));
    ops::tanh(x[0]);
    return std::vector<Value>{ops::exp(x[0]) * c, ops::exp(x[0]) * c};
  });
  Plan plan(traced, {}), plain(traced, {.optimize = false});
  EXPECT_EQ(plan.stats().kernels, 1);
  EXPECT_EQ(plain.stats().kernels, 2) << "one exponential and one product, which are not fused";
  const auto out = plan.run(std::vector<Tensor>{Tensor::from<float>({0, 1}, {2})}, {});
  expect_near(out[0], Tensor::from<float>({std::exp(1.0f), std::exp(2.0f)}, {2}), 1e-5);
  expect_near(out[0], out[1], 0);
}

// The square of this many comparisons would take minutes.
TEST(PlanTest, ManyConstantsAreToldApartInLittleTime) {
  constexpr int kMany = 100'000;
  const auto traced = trace({{DType::kFloat32, {1}}}, [](auto& x) {
    std::vector<Value> parts = {x[0]};
    for (int i = 0; i < kMany; ++i)
      parts.push_back(ops::constant(Tensor::full(DType::kFloat32, {1}, i % (kMany / 2))));
    return std::vector<Value>{ops::concat(parts, 0)};
  });
  const auto out = Plan(traced, {}).run(std::vector<Tensor>{Tensor::from<float>({7}, {1})}, {});
  ASSERT_EQ(out[0].shape(), (Shape{kMany + 1}));
  EXPECT_EQ(out[0].data<float>()[0], 7);
  EXPECT_EQ(out[0].data<float>()[kMany / 2], kMany / 2 - 1);
  EXPECT_EQ(out[0].data<float>()[kMany], kMany / 2 - 1);
}

TEST(PlanTest, FoldsOnlyIntoSoMuchMemory) {
  constexpr int kMany = 100, kFolded = 64;
  const auto traced = trace({}, [](auto&) {
    std::vector<Value> large;  // 1 MiB each
    for (int i = 0; i < kMany; ++i)
      large.push_back(ops::broadcast_to(ops::constant(i, DType::kFloat32), {1 << 18}));
    return large;
  });
  EXPECT_EQ(Plan(traced, {}).stats().kernels, kMany - kFolded);
}

TEST(PlanTest, FoldsWithTheThreadsThatItIsToRunOn) {
  const auto traced = trace({}, [](auto&) {
    const Value x = ops::constant(Tensor::from<float>({1, 2, 3, 4}, {2, 2}));
    return std::vector<Value>{ops::matmul(x, x)};
  });
  for (const int threads : {1, 2}) {  // of which one is not what the device has
    Plan plan(traced, {.threads = threads});
    EXPECT_EQ(plan.stats().kernels, 0);
    expect_near(plan.run({}, {})[0], Tensor::from<float>({7, 10, 15, 22}, {2, 2}), 0);
  }
}

TEST(PlanTest, ZerosOfDifferentSignsAreNotMerged) {
  const auto traced = trace({{DType::kFloat32, {1}}}, [](auto& x) {
    return std::vector<Value>{ops::pad(x[0], {1}, {0}, 0.0), ops::pad(x[0], {1}, {0}, -0.0)};
  });
  const auto out = Plan(traced, {}).run(std::vector<Tensor>{Tensor::from<float>({1}, {1})}, {});
  EXPECT_FALSE(std::signbit(out[0].data<float>()[0]));
  EXPECT_TRUE(std::signbit(out[1].data<float>()[0]));
}

TEST(PlanTest, ReadsSeeTheWritesTracedBeforeThemOnly) {
  const auto v = variable("v", Tensor::from<float>({1, 2}, {2}));
  const auto traced = trace({}, [&](auto&) {
    const Value before = v->read();
    v->assign(before * 10.0);
    const Value between = v->read();
    v->assign(between + 1.0);
    return std::vector<Value>{before, between, v->read(), before + between};
  });
  for (bool optimize : {true, false}) {
    v->assign(Tensor::from<float>({1, 2}, {2}));
    Plan plan(traced, {.optimize = optimize});
    const auto out = plan.run({}, {});
    expect_near(out[0], Tensor::from<float>({1, 2}, {2}), 0);
    expect_near(out[1], Tensor::from<float>({10, 20}, {2}), 0);
    expect_near(out[2], Tensor::from<float>({11, 21}, {2}), 0);
    expect_near(out[3], Tensor::from<float>({11, 22}, {2}), 0);
    expect_near(v->value(), Tensor::from<float>({11, 21}, {2}), 0);
  }
}

TEST(PlanTest, WhatHasAGradientOfItsOwnKeepsItsValueBehindAWrite) {
  const auto v = variable("v", Tensor::from<float>({1, 2}, {2}));
  const auto f = function([&](Value x) {
    const Value before = ops::with_gradient(
        v->read(), [](const Value& read) { return read; },
        [](const Value& dy, const Value&, const Value&) { return dy; });
    v->assign(before + x);
    return before;
  });
  const Tensor ten = Tensor::from<float>({10, 10}, {2});
  expect_near(f({ten})[0], Tensor::from<float>({1, 2}, {2}), 0);
  expect_near(v->value(), Tensor::from<float>({11, 12}, {2}), 0);
}

TEST(PlanTest, AnErrorLeavesWhatIsAssignedBehindItAsItWas) {
  const auto v = variable("v", Tensor::from<float>({8, 8}, {2}));
  const auto f = function([&](Value x, Value i, Value good) {
    const Value half = v->read() * 0.5;
    const Value row = ops::require(ops::gather(x, i), good, "not good");
    v->assign(half);
    return row;
  });
  const Tensor x = Tensor::from<float>({1, 2}, {2}), there = Tensor::from<int32_t>({1}, {1}),
               beyond = Tensor::from<int32_t>({7}, {1});
  const Tensor yes = Tensor::scalar(true), no = Tensor::scalar(false);
  EXPECT_THROW(f({x, beyond, yes}), Error);
  EXPECT_THROW(f({x, there, no}), Error);
  expect_near(v->value(), Tensor::from<float>({8, 8}, {2}), 0);
  f({x, there, yes});
  expect_near(v->value(), Tensor::from<float>({4, 4}, {2}), 0);
}

TEST(PlanTest, SwappingTwoVariablesKeepsBothValues) {
  const auto a = variable("a", Tensor::from<float>({1, 2}, {2})),
             b = variable("b", Tensor::from<float>({3, 4}, {2}));
  const auto traced = trace({}, [&](auto&) {
    const Value x = a->read() + 0.5, y = b->read() + 0.5;
    a->assign(y);
    b->assign(x);
    return std::vector<Value>{};
  });
  Plan plan(traced, {});
  plan.run({}, {});
  expect_near(a->value(), Tensor::from<float>({3.5, 4.5}, {2}), 0);
  expect_near(b->value(), Tensor::from<float>({1.5, 2.5}, {2}), 0);
}

TEST(PlanTest, UpdatesOfAllVariablesRunAsOneKernel) {
  std::vector<std::shared_ptr<Variable>> weights, momenta;
  for (int64_t n : {3, 1, 17}) {
    weights.push_back(variable("w", ramp({n})));
    momenta.push_back(variable("m", ramp({n}, 0.5)));
  }
  const auto body = [&](auto& x) {
    for (size_t i = 0; i < weights.size(); ++i) {
      const Value m = momenta[i]->read() * 0.9 + x[i];
      momenta[i]->assign(m);
      weights[i]->assign(weights[i]->read() - m * 0.1);
    }
    return std::vector<Value>{};
  };
  std::vector<TensorSpec> specs;
  std::vector<Tensor> feeds, expected;
  for (const auto& w : weights) {
    specs.push_back(w->spec());
    feeds.push_back(ramp(w->spec().shape, 2));
  }
  const auto traced = trace(specs, body);
  Plan fused(traced, {});
  EXPECT_EQ(fused.stats().kernels, 1);
  EXPECT_EQ(fused.stats().arena_bytes, 0u)
      << "every result should be written straight into its variable";
  fused.run(feeds, {});
  for (size_t i = 0; i < weights.size(); ++i) {
    const Tensor w = ramp(weights[i]->spec().shape), m = ramp(w.shape(), 0.5);
    for (int64_t k = 0; k < w.num_elements(); ++k) {
      const float momentum = m.data<float>()[k] * 0.9f + feeds[i].data<float>()[k];
      EXPECT_NEAR(momenta[i]->value().data<float>()[k], momentum, 1e-6);
      EXPECT_NEAR(weights[i]->value().data<float>()[k], w.data<float>()[k] - 0.1f * momentum, 1e-6);
    }
  }
}

TEST(PlanTest, MixedPrecisionRoundsOnlyWhatIsMultiplied) {
  const auto filter = variable("filter", ramp({3, 3, 2, 4}, 1)), w = variable("w", ramp({4, 3}, 1)),
             b = variable("b", ramp({3}, 1));
  const auto traced = trace({{DType::kFloat32, {2, 5, 5, 2}}}, [&](auto& x) {
    const Value f = filter->read(), kernel = w->read(), bias = b->read();
    const Value conv = ops::relu(ops::conv2d(x[0], f, {.padding = ops::Padding::same()}));
    const Value loss =
        ops::reduce_sum(ops::tanh(ops::matmul(ops::reduce_mean(conv, {1, 2}), kernel) + bias));
    const auto g = gradients(loss, {f, kernel, bias, x[0]});
    std::vector<Value> outputs = {loss};
    for (const Gradient& gradient : g) outputs.push_back(gradient.values);
    return outputs;
  });
  Plan exact(traced, {});
  const std::vector<Tensor> feeds = {ramp({2, 5, 5, 2}, 1)};
  const auto a = exact.run(feeds, {});
  for (const auto& [precision, tolerance] :
       {std::pair(Precision::kMixedBFloat16, 0.05), std::pair(Precision::kMixedFloat16, 0.006)}) {
    SCOPED_TRACE(precision_name(precision));
    Plan mixed(traced, {.precision = precision});
    const auto c = mixed.run(feeds, {});
    double difference = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      expect_near(a[i], c[i], tolerance);
      for (int64_t k = 0; k < a[i].num_elements(); ++k)
        difference += std::abs(a[i].data<float>()[k] - c[i].data<float>()[k]);
    }
    EXPECT_GT(difference, 0) << "nothing was rounded";
  }
}

TEST(PlanTest, Float16HasItsRange) {
  const auto traced = trace({{DType::kFloat32, {1, 2}}}, [](auto& x) {
    return std::vector<Value>{
        ops::matmul(x[0], ops::constant(Tensor::from<float>({1, 1}, {2, 1})))};
  });
  Plan half(traced, {.precision = Precision::kMixedFloat16});
  const auto sum = [&](float a, float b) {
    return half.run(std::vector<Tensor>{Tensor::from<float>({a, b}, {1, 2})}, {})[0].item();
  };
  EXPECT_EQ(sum(65504, 65504), 131008) << "products are added up in float32";
  EXPECT_EQ(sum(65520, 0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(sum(2e-8f, 1), 1);
  EXPECT_EQ(sum(2e-8f, 0), 0);
  EXPECT_TRUE(std::isnan(sum(std::numeric_limits<float>::quiet_NaN(), 1)));
}

TEST(PlanTest, IntermediatesShareMemory) {
  const auto traced = trace({{DType::kFloat32, {64, 64}}}, [](auto& x) {
    Value y = x[0];
    for (int i = 0; i < 8; ++i) y = ops::softmax(ops::matmul(y, y));
    return std::vector<Value>{y};
  });
  Plan plan(traced, {});
  EXPECT_LE(plan.stats().arena_bytes, plan.stats().unshared_bytes / 4);
}

TEST(PlanTest, AttentionAndItsGradientHoldNoMatrixOfScores) {
  const auto bytes = [](int64_t length) {
    const TensorSpec spec{DType::kFloat32, {1, length, 2, 8}};
    const auto traced = trace({spec, spec, spec}, [](const std::vector<Value>& x) {
      const Value y = ops::scaled_dot_product_attention(x[0], x[1], x[2], {.causal = true});
      std::vector<Value> outputs = {y};
      for (const Gradient& gradient : gradients(ops::reduce_sum(ops::square(y)), x))
        outputs.push_back(gradient.values);
      return outputs;
    });
    const Plan plan(traced, {});
    return plan.stats().unshared_bytes + plan.stats().scratch_bytes;
  };
  const size_t of_1024 = bytes(1024), of_2048 = bytes(2048);
  EXPECT_GT(of_1024, 0u);
  EXPECT_LT(of_2048, 3 * of_1024) << "a matrix would take four times as much";
  EXPECT_LT(of_2048, 2048 * 2048 * sizeof(float)) << "the scores of one head";
}

TEST(PlanTest, ResultsSurviveTheNextRunWhileTheCallerHoldsThem) {
  const auto traced =
      trace({{DType::kFloat32, {2}}}, [](auto& x) { return std::vector<Value>{x[0] * 2.0}; });
  Plan plan(traced, {});
  const auto first = plan.run(std::vector<Tensor>{Tensor::from<float>({1, 2}, {2})}, {});
  const auto second = plan.run(std::vector<Tensor>{Tensor::from<float>({5, 6}, {2})}, {});
  expect_near(first[0], Tensor::from<float>({2, 4}, {2}), 0);
  expect_near(second[0], Tensor::from<float>({10, 12}, {2}), 0);
}

// Grows a random function over [3,4] values: elementwise ops, products, reductions, reads and
// writes.
std::vector<Value> random_body(std::mt19937_64& random, const std::vector<Value>& inputs,
                               const std::vector<std::shared_ptr<Variable>>& variables) {
  std::vector<Value> pool = inputs;
  const auto pick = [&] { return pool[random() % pool.size()]; };
  for (int i = 0; i < 30; ++i) {
    const Value a = pick(), b = pick();
    switch (random() % 9) {
      case 0:
        pool.push_back(ops::tanh(a + b));
        break;
      case 1:
        pool.push_back(ops::relu(a - b));
        break;
      case 2:
        pool.push_back(a * ops::sigmoid(b));
        break;
      case 3:
        pool.push_back(ops::softmax(a));
        break;
      case 4:
        pool.push_back(ops::tanh(ops::matmul(a, ops::matmul(b, a, {.transpose_a = true}))));
        break;
      case 5:
        pool.push_back(a - ops::reduce_mean(b, {0}, true));
        break;
      case 6:
        pool.push_back(variables[random() % variables.size()]->read());
        break;
      case 7:
        variables[random() % variables.size()]->assign(ops::tanh(a));
        break;
      case 8:
        pool.push_back(ops::reshape(ops::reshape(a, {12}), {3, 4}));
        break;
    }
  }
  return {pick(), pick(), pool.back()};
}

TEST(PlanTest, OptimisedPlansComputeWhatPlainOnesDo) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::shared_ptr<Variable>> variables = {variable("v", ramp({3, 4})),
                                                        variable("w", ramp({3, 4}, 1))};
    const std::vector<TensorSpec> specs(2, {DType::kFloat32, {3, 4}});
    const auto traced = trace(specs, [&](auto& x) { return random_body(random, x, variables); });
    Plan optimised(traced, {}), plain(traced, {.optimize = false});
    const std::vector<Tensor> feeds = {ramp({3, 4}), ramp({3, 4}, 0.7)};
    std::vector<std::vector<Tensor>> results;
    for (Plan* plan : {&optimised, &plain}) {
      variables[0]->assign(ramp({3, 4}));
      variables[1]->assign(ramp({3, 4}, 1));
      results.push_back(plan->run(feeds, {}));
      results.push_back(plan->run(feeds, {}));
      results.push_back({variables[0]->value(), variables[1]->value()});
    }
    SCOPED_TRACE(testing::Message() << "round " << round << "\n" << *traced.graph);
    for (size_t i = 0; i < 3; ++i)
      for (size_t k = 0; k < results[i].size(); ++k)
        expect_near(results[i][k], results[i + 3][k], 1e-5);
  }
}

}  // namespace
}  // namespace cohort
