#include <algorithm>
#include <random>
#include <thread>

#include "tests/strategies/variables_testing.h"

namespace cohort {
namespace {

INSTANTIATE_TEST_SUITE_P(All, VariablesTest, testing::ValuesIn(all_cases()));

// --- Synchronised on write, inside replicas

TEST_P(VariablesTest, WritesOfReplicasAreAggregated) {
  const auto x = [](int r) { return 4.0 * r * r - 3; };
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32})
    for (const Aggregation aggregation :
         {Aggregation::kSum, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
      if (!is_floating(dtype) && aggregation == Aggregation::kMean) continue;
      SCOPED_TRACE(str(dtype, " aggregation ", static_cast<int>(aggregation)));
      const auto v = on_write(number(15, dtype), aggregation);
      const double change = number(combined(aggregation, x), dtype).item();

      auto seen = run([&](Value value) { return v->assign(value); }, each(x, dtype));
      EXPECT_EQ(results(seen), n_times(change));
      EXPECT_EQ(copies(v), n_times(change));

      v->assign(number(15, dtype));
      seen = run([&](Value value) { return v->assign_add(value); }, each(x, dtype));
      EXPECT_EQ(results(seen), n_times(number(15 + change, dtype).item()));
      EXPECT_EQ(copies(v), results(seen));

      seen = run([&](Value value) { return v->assign_sub(value); }, each(x, dtype));
      EXPECT_EQ(results(seen), copies(v));
      EXPECT_NEAR(v->value().item(), 15, 1e-5);
    }
}

TEST_P(VariablesTest, AWriteTakesEffectWhereItStands) {
  const auto v = on_write(number(1), Aggregation::kMean);
  const auto seen = run(
      [&](Value x) {
        const Value before = v->read();
        v->assign(x);
        const Value between = v->read();
        v->assign_add(x * 10.0);
        return std::vector{before, between, v->read(), before + between};
      },
      each([](int r) { return r + 1; }));
  const double mean = (n_ + 1) / 2.0;
  EXPECT_EQ(results(seen[0]), n_times(1));
  EXPECT_EQ(results(seen[1]), n_times(mean));
  EXPECT_EQ(results(seen[2]), n_times(11 * mean));
  EXPECT_EQ(results(seen[3]), n_times(1 + mean));
  EXPECT_EQ(copies(v), n_times(11 * mean));
}

TEST_P(VariablesTest, WithoutAggregationAValueThatIsTheSameIsWritten) {
  const auto v = on_write(number(0), Aggregation::kNone);
  EXPECT_EQ(results(run([&] { return v->assign(ops::constant(5, DType::kFloat32)); })), n_times(5));
  EXPECT_EQ(results(run([&] { return v->assign_add(v->read() * 2.0); })), n_times(15));
  EXPECT_EQ(results(run([&](Value x) { return v->assign_sub(x); }, 4.0f)), n_times(11));
  const auto reduced =
      run([&](Value x) { return v->assign(get_replica_context()->all_reduce(ReduceOp::kSum, x)); },
          each([](int r) { return r + 1; }));
  EXPECT_EQ(results(reduced), n_times(n_ * (n_ + 1) / 2.0));
  EXPECT_EQ(copies(v), results(reduced));
}

TEST_P(VariablesTest, WithoutAggregationReplicasMayNotWriteTheirOwn) {
  const auto v = on_write(number(2), Aggregation::kNone);
  const auto assign = [&] { run([&](Value x) { return v->assign(x); }, ids()); };
  if (n_ == 1) return assign();
  const std::string message = error_of(Code::kInvalidArgument, assign);
  for (const char* part : {"\"v\"", "kSum", "kMean", "kOnlyFirstReplica"})
    EXPECT_TRUE(contains(message, part)) << message;
  error_of(Code::kInvalidArgument, [&] { run([&](Value x) { return v->assign_add(x); }, ids()); });
  error_of(Code::kInvalidArgument, [&] {
    run([&] {
      const Value id = get_replica_context()->replica_id_in_sync_group();
      return v->assign(ops::cast(id, DType::kFloat32));
    });
  });
  EXPECT_EQ(copies(v), n_times(2));
}

TEST_P(VariablesTest, ASumRefusesOneValueForAllReplicas) {
  const auto v = on_write(number(3), Aggregation::kSum);
  const auto constant = [&] { run([&] { return v->assign(ops::constant(5, DType::kFloat32)); }); };
  const auto argument = [&] { run([&](Value x) { return v->assign_add(x); }, number(5)); };
  if (n_ == 1) {
    constant();
    argument();
    EXPECT_EQ(copies(v), n_times(10));
    return;
  }
  for (const auto& write : {std::function<void()>(constant), std::function<void()>(argument)}) {
    const std::string message = error_of(Code::kInvalidArgument, write);
    EXPECT_TRUE(contains(message, "\"v\"") && contains(message, str("each of the ", n_)) &&
                contains(message, str("divide it by ", n_)))
        << message;
  }
  EXPECT_EQ(copies(v), n_times(3));
}

TEST_P(VariablesTest, ASumTakesAShareOfEachReplicaOrNothing) {
  const auto v = on_write(number(3), Aggregation::kSum);
  const auto share =
      run([&] { return v->assign(ops::constant(5, DType::kFloat32) / static_cast<double>(n_)); });
  for (const double value : results(share)) EXPECT_NEAR(value, 5, 1e-5);
  EXPECT_EQ(results(run([&] { return v->assign(ops::constant(0, DType::kFloat32)); })), n_times(0));
  const auto same = run([&](Value x) { return v->assign_sub(x); }, each([](int) { return -2; }));
  EXPECT_EQ(results(same), n_times(2.0 * n_)) << "equal values of replicas are theirs";
}

TEST_P(VariablesTest, OneValueForAllReplicasIsItsOwnMeanWithoutCommunication) {
  for (const Aggregation aggregation : {Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    const auto v = on_write(number(1), aggregation);
    std::string graph;
    const Function step([&](const std::vector<Value>&) {
      v->assign(ops::constant(5, DType::kFloat32));
      const Value twice = v->assign_add(v->read());
      graph = str(current_graph());
      return std::vector{twice};
    });
    const PerReplica<std::vector<Tensor>> nothing(static_cast<size_t>(n_));
    for (const auto& outputs : strategy_->run(step, nothing)) EXPECT_EQ(outputs[0].item(), 10);
    EXPECT_EQ(copies(v), n_times(10));
    EXPECT_FALSE(contains(graph, "AllReduce") || contains(graph, "Broadcast")) << graph;
  }
}

// All replicas compute the same gradient of what they gathered, and each gets its part of the sum.
TEST_P(VariablesTest, TheGradientOfAGatherIsEachReplicasOwn) {
  const auto own = [this](int r) { return 1.0 * n_ * (r + 1); };
  const auto step = [&](const VariablePtr& v) {
    return run(
        [&](Value x) {
          const Value all = get_replica_context()->all_gather(ops::reshape(x, {1}), 0);
          std::vector<float> weights;
          for (int r = 0; r < n_; ++r) weights.push_back(static_cast<float>(r + 1));
          const Value loss = ops::reduce_sum(all * ops::constant(Tensor::from(weights, {n_})));
          return v->assign(ops::reshape(gradients(loss, {x})[0].values, {}));
        },
        ids());
  };
  for (const Aggregation aggregation : {Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    const auto v = on_write(number(0), aggregation);
    EXPECT_EQ(results(step(v)), n_times(combined(aggregation, own)));
    EXPECT_EQ(copies(v), n_times(combined(aggregation, own)));
  }
  const auto none = on_write(number(0), Aggregation::kNone);
  if (n_ == 1) return;
  EXPECT_TRUE(contains(error_of(Code::kInvalidArgument, [&] { step(none); }), "\"v\""));
}

// --- Shares of several sizes, each of which is traced by itself

// 3 rows for the first replica, 2 for each other.
int rows_of(int replica) { return replica == 0 ? 3 : 2; }
PerReplica<Tensor> uneven_shares(int replicas) {
  PerReplica<Tensor> shares(static_cast<size_t>(replicas));
  for (int r = 0; r < replicas; ++r)
    shares[static_cast<size_t>(r)] = Tensor::full(DType::kFloat32, {rows_of(r)}, r + 1);
  return shares;
}

TEST_P(VariablesTest, AConstantThatFollowsFromAShareIsEachReplicasOwn) {
  const auto shares = uneven_shares(n_);
  const auto assign_rows = [](const VariablePtr& v) {
    return [v](Value x) {
      return v->assign(ops::constant(static_cast<double>(x.shape()[0]), DType::kFloat32));
    };
  };
  for (const Aggregation aggregation :
       {Aggregation::kSum, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    const auto v = on_write(number(0), aggregation);
    const double expected = number(combined(aggregation, rows_of)).item();
    const auto step = strategy_->function(assign_rows(v));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(results(strategy_->run(step, shares)), n_times(expected));
    EXPECT_EQ(copies(v), n_times(expected));
  }
  const auto none = on_write(number(7), Aggregation::kNone);
  if (n_ > 1) {
    const auto message = error_of(Code::kInvalidArgument, [&] { run(assign_rows(none), shares); });
    EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "kMean")) << message;
    EXPECT_EQ(copies(none), n_times(7));
  }
  EXPECT_EQ(results(run(assign_rows(none), Tensor::zeros(DType::kFloat32, {4}))), n_times(4));
}

TEST_P(VariablesTest, RowsThatFollowFromAShareAreEachReplicasOwn) {
  const auto step = [&](const VariablePtr& v) {
    run(
        [&](Value x) {
          const auto rows = static_cast<int32_t>(x.shape()[0]);
          v->scatter(ScatterOp::kAdd, ops::constant(Tensor::from<int32_t>({rows - 2}, {1})),
                     ops::constant(Tensor::from<float>({2}, {1})));
        },
        uneven_shares(n_));
  };
  const Tensor zeros = Tensor::zeros(DType::kFloat32, {2});
  const auto first = on_write(zeros, Aggregation::kOnlyFirstReplica),
             sum = on_write(zeros, Aggregation::kSum), none = on_write(zeros, Aggregation::kNone);
  step(first);
  EXPECT_EQ(copies(first), n_times({0, 2}));
  if (n_ == 1) return;
  step(sum);
  EXPECT_EQ(copies(sum), n_times({2.0 * (n_ - 1), 2}));
  EXPECT_TRUE(contains(error_of(Code::kInvalidArgument, [&] { step(none); }), "\"v\""));
}

TEST_P(VariablesTest, WhatDoesNotFollowFromTheShareStaysTheSame) {
  const auto count = on_write(number(0), Aggregation::kNone),
             total = on_write(number(0), Aggregation::kNone),
             mean = on_write(number(5), Aggregation::kMean);
  const auto step = strategy_->function([&](Value x, Value same) {
    const ReplicaContext& replica = *get_replica_context();
    const auto all_rows = static_cast<double>(replica.global_extent(x));
    count->assign_add(ops::constant(1, DType::kFloat32));
    total->assign(replica.all_reduce(ReduceOp::kSum, ops::reduce_sum(x)) / all_rows + same);
    total->assign(total->read() + count->read());
    return mean->assign(ops::constant(0, DType::kFloat32));
  });
  double sum = 0, rows = 0;
  for (int r = 0; r < n_; ++r) {
    sum += rows_of(r) * (r + 1);
    rows += rows_of(r);
  }
  for (int i = 1; i <= 2; ++i) {
    strategy_->run(step, uneven_shares(n_), 10.0f);
    EXPECT_EQ(copies(count), n_times(i));
    EXPECT_NEAR(total->value().item(), sum / rows + 10 + i, 1e-5);
    EXPECT_EQ(copies(total), n_times(total->value().item()));
    EXPECT_EQ(copies(mean), n_times(0));
  }
}

TEST_P(VariablesTest, AWriteThatSomeSharesLeaveOutIsRefused) {
  if (n_ == 1) return;
  for (const Aggregation aggregation : kAggregations)
    for (const bool scatters : {false, true}) {
      const auto v = on_write(Tensor::from<float>({7}, {1}), aggregation);
      const auto step = strategy_->function([&](Value x) {
        if (x.shape()[0] == 3) {
          const Value same = get_replica_context()->all_reduce(ReduceOp::kSum, v->read());
          if (scatters)
            v->scatter(ScatterOp::kAdd, ops::constant(Tensor::from<int32_t>({0}, {1})), same);
          else
            v->assign(same);
        } else {
          get_replica_context()->all_reduce(ReduceOp::kSum, v->read());
        }
        return x;
      });
      for (int i = 0; i < 2; ++i) {
        const auto message =
            error_of(Code::kInvalidArgument, [&] { strategy_->run(step, uneven_shares(n_)); });
        for (const char* part : {"replicas must", "float32[3]", "float32[2]"})
          EXPECT_TRUE(contains(message, part)) << message;
        if (aggregation == Aggregation::kNone && GetParam().kind == Kind::kMirrored) {
          EXPECT_TRUE(contains(message, "to \"v\"")) << message;
        }
      }
      EXPECT_EQ(copies(v), n_times(7));
      strategy_->run(step, Tensor::zeros(DType::kFloat32, {2}));
    }
}

TEST_P(VariablesTest, IntegersHaveNoMean) {
  const auto v = on_write(number(1, DType::kInt64), Aggregation::kMean);
  const auto assign = [&] {
    run([&](Value x) { return v->assign(x); }, each([](int r) { return r; }, DType::kInt64));
  };
  if (n_ == 1) return assign();
  EXPECT_TRUE(contains(error_of(Code::kInvalidArgument, assign), "mean of int64"));
  error_of(Code::kInvalidArgument, [&] { on_read(number(1, DType::kInt32), Aggregation::kMean); });
}

TEST_P(VariablesTest, AnotherSpecIsRefusedByName) {
  const auto v = on_write(Tensor::zeros(DType::kFloat32, {2}), Aggregation::kMean);
  for (const Tensor& wrong :
       {number(1), Tensor::zeros(DType::kFloat32, {3}), Tensor::zeros(DType::kFloat64, {2})}) {
    for (const std::string& message :
         {error_of(Code::kInvalidArgument,
                   [&] { run([&](Value x) { return v->assign(x); }, wrong); }),
          error_of(Code::kInvalidArgument,
                   [&] { run([&](Value x) { return v->assign_add(x); }, wrong); }),
          error_of(Code::kInvalidArgument, [&] { v->assign(wrong); }),
          error_of(Code::kInvalidArgument, [&] { v->assign_sub(wrong); })})
      EXPECT_TRUE(contains(message, str("variable \"v\" is float32[2], got ", wrong.spec())))
          << message;
  }
}

TEST_P(VariablesTest, AllReduceOfAVariableCountsEveryReplica) {
  const auto v = on_write(number(2), Aggregation::kNone);
  const auto sums = run(
      [&](Value id) { return get_replica_context()->all_reduce(ReduceOp::kSum, v->read()) + id; },
      ids());
  for (int r = 0; r < n_; ++r) EXPECT_EQ(sums[static_cast<size_t>(r)].item(), 2 * n_ + r);
}

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
  if (GetParam().kind != Kind::kCentral) {
    EXPECT_EQ(written->devices(), strategy_->devices());
    return;
  }
  EXPECT_EQ(written->devices(), std::vector{Device{}});
  for (int r = 0; r < n_; ++r) {
    EXPECT_EQ(written->storage(r).raw(), written->storage(0).raw());
    EXPECT_EQ(written->is_written_by(r), r == 0);
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
