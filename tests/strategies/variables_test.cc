#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>

#include "tests/strategies/variables_testing.h"

// Variables as code outside replicas sees them, those that are synchronised on read or not at all,
// and how all are made and placed.
namespace cohort {
namespace {

INSTANTIATE_TEST_SUITE_P(All, VariablesTest, testing::ValuesIn(all_cases()));

// --- Outside replicas

TEST_P(VariablesTest, OutsideEveryCopyIsWritten) {
  for (const Synchronization synchronization : {Synchronization::kAuto, Synchronization::kNone})
    for (const Aggregation aggregation : kAggregations) {
      const auto v = make_variable(number(0), {synchronization, aggregation});
      v->assign(number(1));
      EXPECT_EQ(copies(v), n_times(1));
      v->assign_add(number(1));
      EXPECT_EQ(copies(v), n_times(2));
      v->assign_sub(number(-1));
      EXPECT_EQ(copies(v), n_times(3));
      EXPECT_EQ(v->value().item(), 3);
    }
}

TEST_P(VariablesTest, AFunctionOfItsOwnWritesEveryCopy) {
  for (const Aggregation aggregation : kAggregations) {
    const auto v = on_write(Tensor::from<float>({1, 2}, {2}), aggregation);
    const auto step = function([&](Value x) {
      v->assign(v->read() * x);
      v->assign_add(v->read());
      v->scatter(ScatterOp::kUpdate, ops::constant(Tensor::from<int32_t>({0}, {1})),
                 ops::reshape(x, {1}));
      return v->read();
    });
    EXPECT_EQ(to_doubles(step({number(5)})[0]), (std::vector<double>{5, 20}));
    EXPECT_EQ(copies(v), n_times({5, 20}));
  }
}

TEST_P(VariablesTest, WhatActsOutsideIsRefusedWhileAFunctionIsTraced) {
  const Tensor row = Tensor::from<int32_t>({0}, {1}), one = Tensor::from<float>({1}, {1});
  const std::pair<const char*, std::function<void(Variable&)>> calls[] = {
      {"use read()", [](Variable& v) { v.value(); }},
      {"use assign(const Value&)", [&](Variable& v) { v.assign(one); }},
      {"use assign_add(const Value&)", [&](Variable& v) { v.assign_add(one); }},
      {"use assign_sub(const Value&)", [&](Variable& v) { v.assign_sub(one); }},
      {"use scatter(ScatterOp, const Value&, const Value&)",
       [&](Variable& v) { v.scatter(ScatterOp::kAdd, row, one); }}};
  for (const Synchronization synchronization :
       {Synchronization::kAuto, Synchronization::kOnRead, Synchronization::kNone}) {
    const auto v = make_variable(Tensor::from<float>({3}, {1}),
                                 {synchronization, Aggregation::kOnlyFirstReplica});
    for (const auto& [instead, call] : calls) {
      const auto body = [&v = *v, &call = call](Value x) {
        call(v);
        return x;
      };
      for (const auto& trace : {std::function<void()>([&] { run(body, number(1)); }),
                                std::function<void()>([&] { function(body)({number(1)}); })}) {
        const std::string message = error_of(Code::kFailedPrecondition, trace);
        EXPECT_TRUE(contains(message, "variable \"v\"") && contains(message, instead)) << message;
      }
    }
    EXPECT_EQ(copies(v), n_times(3));
  }
}

TEST_P(VariablesTest, ATensorWithoutAValueIsRefused) {
  const Tensor none, row = Tensor::from<int32_t>({0}, {1}), one = Tensor::from<float>({1}, {1});
  const std::pair<const char*, std::function<void(Variable&)>> calls[] = {
      {"assign was given", [&](Variable& v) { v.assign(none); }},
      {"assign_add was given", [&](Variable& v) { v.assign_add(none); }},
      {"assign_sub was given", [&](Variable& v) { v.assign_sub(none); }},
      {"scatter was given", [&](Variable& v) { v.scatter(ScatterOp::kAdd, none, one); }},
      {"scatter was given", [&](Variable& v) { v.scatter(ScatterOp::kAdd, row, none); }}};
  for (const Synchronization synchronization :
       {Synchronization::kAuto, Synchronization::kOnRead, Synchronization::kNone}) {
    const auto v = make_variable(one, {synchronization, Aggregation::kOnlyFirstReplica});
    for (const auto& [said, call] : calls) {
      const auto message = error_of(Code::kInvalidArgument, [&, &call = call] { call(*v); });
      EXPECT_TRUE(contains(message, str("variable \"v\": ", said, " a tensor that has no value")))
          << message;
    }
    EXPECT_EQ(copies(v), n_times(1));
    const auto message = error_of(Code::kInvalidArgument, [&] {
      create_variable({.name = "w",
                       .spec = none.spec(),
                       .initial_value = [] { return Tensor(); },
                       .synchronization = synchronization,
                       .aggregation = Aggregation::kOnlyFirstReplica});
    });
    EXPECT_TRUE(contains(message, "variable \"w\"") && contains(message, "initial_value returned"))
        << message;
  }
}

TEST_P(VariablesTest, AFunctionThatUsesVariablesIsNotCalledWhileAnotherIsTraced) {
  const auto v = on_write(number(3), Aggregation::kMean);
  const auto reads = function([&](Value x) { return x + v->read(); }),
             adds = function([&](Value x) { return v->assign_add(x); }),
             doubles = function([](Value x) { return x * 2.0; });
  for (const Function& nested : {reads, adds}) {
    const auto message = error_of(Code::kFailedPrecondition, [&] {
      run([&](Value x) { return x + ops::constant(nested({number(1)})[0]); }, number(1));
    });
    EXPECT_TRUE(contains(message, "variable \"v\"") && contains(message, "call its body"))
        << message;
  }
  EXPECT_EQ(copies(v), n_times(3));
  const auto seen =
      run([&](Value x) { return x + ops::constant(doubles({number(1)})[0]); }, number(1));
  EXPECT_EQ(results(seen), n_times(3));
}

TEST_P(VariablesTest, AfterTheScopeEveryCopyIsWritten) {
  const auto v = on_write(number(1), Aggregation::kNone);
  scope_.exit();
  v->assign(number(3));
  EXPECT_EQ(copies(v), n_times(3));
  function([&](Value x) { return v->assign(x); })({number(4)});
  EXPECT_EQ(copies(v), n_times(4));
}

// --- Synchronised on read

TEST_P(VariablesTest, OnReadReplicasKeepTheirOwn) {
  const auto x = [](int r) { return 3.0 * r + 1; };
  for (const Aggregation aggregation : kAggregations) {
    const auto v = on_read(number(0), aggregation);
    const auto seen = run([&](Value value) { return v->assign(value); }, each(x));
    const auto own = results(each(x));
    EXPECT_EQ(results(seen), own);
    EXPECT_EQ(results(run([&] { return v->read() + 1.0; }))[0], x(0) + 1);
    EXPECT_EQ(results(run([&](Value d) { return v->assign_add(d); }, number(2)))[0], x(0) + 2);
    EXPECT_EQ(results(run([&](Value d) { return v->assign_sub(d); }, number(2))), own);
    EXPECT_EQ(copies(v), own);
    const auto one = function([&](Value y) { return v->read() + y; });
    if (aggregation == Aggregation::kNone && GetParam().kind != Kind::kOneDevice) {
      for (const auto& call : {std::function<void()>([&] { v->value(); }),
                               std::function<void()>([&] { v->assign(number(1)); }),
                               std::function<void()>([&] { v->assign_add(number(1)); }),
                               std::function<void()>([&] { v->assign_sub(number(1)); })}) {
        const auto message = error_of(Code::kInvalidArgument, call);
        EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "inside a replica")) << message;
      }
      if (n_ > 1) {
        error_of(Code::kInvalidArgument, [&] { one({number(1)}); });
        const auto write = function([&](Value y) { return v->assign(y); });
        error_of(Code::kInvalidArgument, [&] { write({number(1)}); });
      }
      EXPECT_EQ(copies(v), own);
    } else {
      EXPECT_EQ(v->value().item(), number(combined(aggregation, x)).item());
      EXPECT_FLOAT_EQ(static_cast<float>(one({number(1)})[0].item()),
                      static_cast<float>(combined(aggregation, x) + 1));
    }
  }
}

TEST_P(VariablesTest, OnReadAnAssignedSumIsSharedOut) {
  const auto v = on_read(number(0), Aggregation::kSum);
  v->assign(number(n_));
  EXPECT_EQ(copies(v), n_times(1));
  EXPECT_EQ(v->value().item(), n_);
  if (GetParam().kind == Kind::kOneDevice) return;
  for (const auto& change : {std::function<void()>([&] { v->assign_add(number(1)); }),
                             std::function<void()>([&] { v->assign_sub(number(1)); })}) {
    const std::string message = error_of(Code::kInvalidArgument, change);
    EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "assign the new value")) << message;
  }
  EXPECT_EQ(copies(v), n_times(1));
  // Whatever the number of replicas, nothing of an integer is lost.
  for (const DType dtype : {DType::kInt32, DType::kInt64})
    for (const int64_t total : {0, 1, 5, 100, -13}) {
      const auto count = on_read(number(0, dtype), Aggregation::kSum);
      count->assign(number(static_cast<double>(total), dtype));
      EXPECT_EQ(count->value().item(), total);
      const auto seen = copies(count);
      const auto [low, high] = std::minmax_element(seen.begin(), seen.end());
      EXPECT_LT(*high - *low, n_);
    }
  const auto large = on_read(number(0, DType::kInt64), Aggregation::kSum);
  const int64_t beyond_float64 = (int64_t{1} << 60) + 1;
  large->assign(Tensor::scalar(beyond_float64));
  EXPECT_EQ(*large->value().data<int64_t>(), beyond_float64);
}

// To the last bit, in every type, also of numbers that are not divisible by the number of copies.
TEST_P(VariablesTest, OnReadAnAssignedSumOfFloatsReadsBackAsItIs) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> totals = {0, 1, -0.1, 1e-40, 65504, kInfinity, -kInfinity};
  std::mt19937_64 random(n_);
  for (int i = 0; i < 2000; ++i)
    totals.push_back(std::uniform_real_distribution(-4.0, 4.0)(random));
  for (const auto& [dtype, largest, digits] :
       {std::tuple(DType::kFloat64, std::numeric_limits<double>::max(), 53),
        std::tuple(DType::kFloat32, double{std::numeric_limits<float>::max()}, 24),
        std::tuple(DType::kFloat16, 65504.0, 11), std::tuple(DType::kBFloat16, 3e38, 8)}) {
    SCOPED_TRACE(str(dtype));
    totals[1] = largest;
    const Tensor total = Tensor::from(totals, {static_cast<int64_t>(totals.size())}).cast(dtype);
    const auto v = on_read(Tensor::zeros(dtype, total.shape()), Aggregation::kSum);
    v->assign(total);
    const auto expected = to_doubles(total);
    EXPECT_EQ(to_doubles(v->value()), expected);
    EXPECT_EQ(to_doubles(function([&](Value x) { return v->assign(x); })({total})[0]), expected);
    for (int r = 0; r < n_; ++r) {
      const auto part = to_doubles(v->storage(r));
      for (size_t i = 0; i < part.size(); ++i) {
        if (!std::isfinite(expected[i])) continue;
        EXPECT_NEAR(part[i], expected[i] / n_, std::ldexp(std::abs(expected[i]), 4 - digits) + 1e-7)
            << "copy " << r << " of " << expected[i];
      }
    }
  }
}

TEST_P(VariablesTest, OnReadOthersAreWrittenToEveryCopy) {
  const auto x = [](int r) { return 2.0 * r; };
  for (const Aggregation aggregation : {Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    const auto v = on_read(number(0), aggregation);
    run([&](Value value) { return v->assign(value); }, each(x));
    v->assign_add(number(1));
    EXPECT_EQ(copies(v), results(each([&](int r) { return x(r) + 1; })));
    EXPECT_EQ(v->value().item(), combined(aggregation, x) + 1);
    v->assign(number(6));
    EXPECT_EQ(copies(v), n_times(6));
  }
}

// Each share is traced by itself. Whoever writes waits for all others first, in whatever order the
// sizes of shares come.
TEST_P(VariablesTest, SomeReplicasMayHaveNothingToWriteToTheirOwnCopy) {
  const std::pair<int64_t, int64_t> sizes[] = {{2, 1}, {3, 1}, {2, 1}, {2, 2},
                                               {1, 3}, {0, 3}, {3, 3}};
  for (const Synchronization synchronization : {Synchronization::kOnRead, Synchronization::kNone})
    for (const bool asks : {false, true}) {
      const auto v = make_variable(number(0), {synchronization, Aggregation::kSum});
      const auto step = strategy_->function([&](Value x) {
        if (asks) get_replica_context()->global_extent(x);
        if (x.shape()[0] == 3) v->assign_add(ops::reduce_sum(x));
        return ops::reduce_sum(x);
      });
      std::vector<double> expected = n_times(0);
      for (const auto& [first, others] : sizes) {
        PerReplica<Tensor> shares(static_cast<size_t>(n_));
        std::vector<double> sums;
        for (size_t r = 0; r < shares.size(); ++r) {
          const int64_t rows = r == 0 ? first : others;
          shares[r] = Tensor::full(DType::kFloat32, {rows}, 1);
          sums.push_back(static_cast<double>(rows));
          if (rows == 3) expected[r] += 3;
        }
        EXPECT_EQ(results(strategy_->run(step, shares)), sums);
        EXPECT_EQ(copies(v), expected);
      }
    }
}

TEST_P(VariablesTest, NotSynchronisedTheFirstCopyCounts) {
  for (const Aggregation aggregation : kAggregations) {
    const auto v = make_variable(number(9), {Synchronization::kNone, aggregation});
    const auto seen = run([&](Value id) { return v->assign_add(id * 2.0); }, ids());
    const auto own = results(each([](int r) { return 9 + 2 * r; }));
    EXPECT_EQ(results(seen), own);
    EXPECT_EQ(copies(v), own);
    EXPECT_EQ(v->value().item(), 9);
    v->assign(number(4));
    EXPECT_EQ(copies(v), n_times(4));
  }
}

// Code written for strategies runs unchanged under one without replicas.
TEST_P(VariablesTest, UnderOneDeviceEveryVariableIsAnOrdinaryOne) {
  const auto expect_ordinary = [] {
    for (const Aggregation aggregation : kAggregations)
      for (const Synchronization synchronization :
           {Synchronization::kAuto, Synchronization::kOnWrite, Synchronization::kOnRead,
            Synchronization::kNone}) {
        const auto v = make_variable(number(1), {synchronization, aggregation});
        v->assign(number(5));
        v->assign_add(number(2));
        v->assign_sub(number(3));
        EXPECT_EQ(function([&](Value x) { return v->assign_add(x); })({number(6)})[0].item(), 10);
        EXPECT_EQ(v->value().item(), 10);
      }
  };
  if (GetParam().kind == Kind::kOneDevice) expect_ordinary();
  scope_.exit();
  expect_ordinary();
}

// --- Making and using

TEST_P(VariablesTest, OneMadeInAStepHasEqualCopies) {
  int made = 0;
  std::mt19937_64 random;  // not seeded anew: another call would give other numbers
  for (const Synchronization synchronization :
       {Synchronization::kAuto, Synchronization::kOnRead, Synchronization::kNone}) {
    made = 0;
    VariablePtr v;
    const auto step = strategy_->function([&](Value x) {
      if (v == nullptr)
        v = create_variable({.name = "made",
                             .spec = {DType::kFloat64, {100}},
                             .initial_value =
                                 [&] {
                                   ++made;
                                   Tensor t(DType::kFloat64, {100});
                                   for (int i = 0; i < 100; ++i)
                                     t.data<double>()[i] =
                                         std::uniform_real_distribution(-1.0, 1.0)(random);
                                   return t;
                                 },
                             .synchronization = synchronization,
                             .aggregation = Aggregation::kSum});
      return ops::reduce_sum(v->read()) * ops::cast(ops::reduce_sum(x), DType::kFloat64);
    });
    for (const int64_t rows : {2, 3, 2}) {
      const auto seen = results(strategy_->run(step, Tensor::full(DType::kFloat32, {rows}, 1)));
      EXPECT_EQ(seen, n_times(seen[0]));
    }
    EXPECT_EQ(made, 1);
    EXPECT_EQ(step.trace_count(), 2);
    ASSERT_NE(v, nullptr);
    EXPECT_EQ(copies(v), n_times(to_doubles(v->storage(0))));
  }
}

TEST_P(VariablesTest, AnotherStrategysIsRefused) {
  const auto v = on_write(number(1), Aggregation::kNone);
  scope_.exit();
  for (const Case& other : {Case{Kind::kMirrored, n_ == 1 ? 2 : n_ - 1}, Case{Kind::kMirrored, n_},
                            Case{Kind::kCentral, n_}, Case{Kind::kOneDevice, 1}}) {
    const auto strategy = make_strategy(other);
    for (const auto& use :
         {std::function<Value()>([&] { return v->read() + 1.0; }),
          std::function<Value()>([&] { return v->assign(ops::constant(2, DType::kFloat32)); })}) {
      const auto message =
          error_of(Code::kFailedPrecondition, [&] { strategy->run(strategy->function(use)); });
      for (const std::string& part :
           {str("\"v\" was made for ", n_, " replica"), " of " + strategy_->name(),
            str(strategy->name() == strategy_->name() ? "another " : "", strategy->name(), " with ",
                other.replicas)})
        EXPECT_TRUE(contains(message, part)) << part << " in: " << message;
    }
  }
}

TEST_P(VariablesTest, AVariableMadeOutsideAnyScopeIsForOneReplica) {
  scope_.exit();
  const auto v = on_write(number(1), Aggregation::kNone);
  const auto add = [&] { run([&](Value x) { return v->assign_add(x); }, number(2)); };
  if (n_ == 1)
    add();
  else
    EXPECT_TRUE(contains(error_of(Code::kFailedPrecondition, add), "outside any scope"));
  EXPECT_EQ(v->value().item(), n_ == 1 ? 3 : 1);
}

TEST_P(VariablesTest, CopiesAreWhereTheStrategyPutsThem) {
  const auto written = on_write(number(1), Aggregation::kNone);
  const auto read = on_read(number(1), Aggregation::kSum);
  EXPECT_EQ(written->num_replicas(), n_);
  EXPECT_EQ(read->devices(), strategy_->devices());
  EXPECT_TRUE(written->is_same_on_replicas());
  EXPECT_FALSE(read->is_same_on_replicas());
  for (int r = 1; r < n_; ++r) {
    EXPECT_NE(read->storage(r).raw(), read->storage(0).raw());
    EXPECT_TRUE(read->is_written_by(r));
  }
  EXPECT_THROW(written->storage(n_), Error);
  EXPECT_EQ(written->devices(), std::vector{strategy_->devices()[0]});
  EXPECT_EQ(written->is_shared(), GetParam().kind != Kind::kOneDevice);
  for (int r = 0; r < n_; ++r) {
    EXPECT_EQ(written->storage(r).raw(), written->storage(0).raw());
    EXPECT_EQ(written->is_written_by(r), r == 0);
  }
}

TEST_P(VariablesTest, CopiesAreNamedAfterTheirReplicas) {
  for (const auto& v :
       {on_write(number(1), Aggregation::kNone), on_read(number(1), Aggregation::kSum)}) {
    EXPECT_EQ(v->name(), "v");
    std::vector<std::string> names, expected;
    for (const auto& copy : v->other_copies()) names.push_back(copy->name());
    for (size_t r = 1; r < v->devices().size(); ++r) expected.push_back(str("v/replica_", r));
    EXPECT_EQ(names, expected);
  }
}

// Replicas that share a copy read it while it is still, whatever the order of their threads.
TEST_P(VariablesTest, NobodyReadsAValueThatIsHalfWritten) {
  constexpr int64_t kSize = 20000;
  constexpr int kSteps = 30;
  const auto v = on_write(Tensor::zeros(DType::kFloat32, {kSize}), Aggregation::kMean);
  const auto step = strategy_->function([&](Value x) {
    const Value before = ops::reduce_sum(v->read());
    const Value after = v->assign_add(v->read() * 0.0 + x);
    v->scatter(ScatterOp::kSub, ops::constant(Tensor::from<int32_t>({0}, {1})),
               ops::reshape(x, {1}));
    return std::vector{before, ops::reduce_sum(after), ops::reduce_sum(v->read())};
  });
  const auto own = each([](int r) { return r; });
  const double mean = (n_ - 1) / 2.0;
  for (int i = 0; i < kSteps; ++i) {
    const auto seen = strategy_->run(step, own);
    ASSERT_EQ(results(seen[0]), n_times(i * mean * (kSize - 1))) << "in step " << i;
    ASSERT_EQ(results(seen[1]), n_times(i * mean * (kSize - 1) + mean * kSize)) << "in step " << i;
    ASSERT_EQ(results(seen[2]), n_times((i + 1) * mean * (kSize - 1))) << "in step " << i;
  }
}

}  // namespace
}  // namespace cohort
