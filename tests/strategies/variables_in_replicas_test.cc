#include "tests/strategies/variables_testing.h"

// Variables that are synchronised on write, as the replicas of a step read and write them.
namespace cohort {
namespace {

class VariablesInReplicasTest : public VariablesTest {};
INSTANTIATE_TEST_SUITE_P(All, VariablesInReplicasTest, testing::ValuesIn(all_cases()));

TEST_P(VariablesInReplicasTest, WritesOfReplicasAreAggregated) {
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

TEST_P(VariablesInReplicasTest, AWriteTakesEffectWhereItStands) {
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

TEST_P(VariablesInReplicasTest, WithoutAggregationAValueThatIsTheSameIsWritten) {
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

TEST_P(VariablesInReplicasTest, WithoutAggregationReplicasMayNotWriteTheirOwn) {
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

TEST_P(VariablesInReplicasTest, ASumRefusesOneValueForAllReplicas) {
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

TEST_P(VariablesInReplicasTest, ASumTakesAShareOfEachReplicaOrNothing) {
  const auto v = on_write(number(3), Aggregation::kSum);
  const auto share =
      run([&] { return v->assign(ops::constant(5, DType::kFloat32) / static_cast<double>(n_)); });
  for (const double value : results(share)) EXPECT_NEAR(value, 5, 1e-5);
  EXPECT_EQ(results(run([&] { return v->assign(ops::constant(0, DType::kFloat32)); })), n_times(0));
  const auto same = run([&](Value x) { return v->assign_sub(x); }, each([](int) { return -2; }));
  EXPECT_EQ(results(same), n_times(2.0 * n_)) << "equal values of replicas are theirs";
}

TEST_P(VariablesInReplicasTest, OneValueForAllReplicasIsItsOwnMeanWithoutCommunication) {
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
TEST_P(VariablesInReplicasTest, TheGradientOfAGatherIsEachReplicasOwn) {
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

TEST_P(VariablesInReplicasTest, AConstantThatFollowsFromAShareIsEachReplicasOwn) {
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

TEST_P(VariablesInReplicasTest, ATraceOfEqualSharesDoesNotServeOthers) {
  const auto v = on_write(number(0), Aggregation::kMean);
  const auto step = strategy_->function([&](Value x) {
    return v->assign(ops::constant(static_cast<double>(x.shape()[0]), DType::kFloat32));
  });
  for (int i = 0; i < 2; ++i) {
    for (const int64_t rows : {2, 3}) {
      const std::vector<Tensor> equal(static_cast<size_t>(n_),
                                      Tensor::zeros(DType::kFloat32, {rows}));
      strategy_->run(step, PerReplica<Tensor>(equal));
      EXPECT_EQ(copies(v), n_times(static_cast<double>(rows)));
    }
    strategy_->run(step, uneven_shares(n_));
    EXPECT_EQ(copies(v), n_times(number(combined(Aggregation::kMean, rows_of)).item()));
  }
}

// Those replicas wait for the others before they write, who have to come, too.
TEST_P(VariablesInReplicasTest, CopiesOfItsOwnMayBeWrittenBySomeReplicasAlone) {
  const auto seen = on_read(number(0), Aggregation::kSum);
  const auto count = on_write(number(0), Aggregation::kNone);
  const auto see = [&](Value x) {
    if (x.shape()[0] > 2) seen->assign_add(ops::reduce_sum(x));
  };
  const auto summed = strategy_->function([&](Value x) {
    see(x);
    return get_replica_context()->all_reduce(ReduceOp::kSum, seen->read());
  });
  const auto counted = strategy_->function([&](Value x) {
    see(x);
    return count->assign_add(ops::constant(1, DType::kFloat32));
  });
  double expected = 0;
  for (int r = 0; r < n_; ++r)
    if (rows_of(r) > 2) expected += rows_of(r) * (r + 1);
  EXPECT_EQ(results(strategy_->run(summed, uneven_shares(n_))), n_times(expected));
  EXPECT_EQ(results(strategy_->run(counted, uneven_shares(n_))), n_times(1));
  EXPECT_EQ(seen->value().item(), 2 * expected);
}

TEST_P(VariablesInReplicasTest, RowsThatFollowFromAShareAreEachReplicasOwn) {
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

TEST_P(VariablesInReplicasTest, WhatDoesNotFollowFromTheShareStaysTheSame) {
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

TEST_P(VariablesInReplicasTest, AWriteThatSomeSharesLeaveOutIsRefused) {
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
        if (aggregation == Aggregation::kNone && GetParam().kind != Kind::kOneDevice) {
          EXPECT_TRUE(contains(message, "to \"v\"")) << message;
        }
      }
      EXPECT_EQ(copies(v), n_times(7));
      strategy_->run(step, Tensor::zeros(DType::kFloat32, {2}));
    }
}

TEST_P(VariablesInReplicasTest, IntegersHaveNoMean) {
  const auto v = on_write(number(1, DType::kInt64), Aggregation::kMean);
  const auto assign = [&] {
    run([&](Value x) { return v->assign(x); }, each([](int r) { return r; }, DType::kInt64));
  };
  if (n_ == 1) return assign();
  EXPECT_TRUE(contains(error_of(Code::kInvalidArgument, assign), "mean of int64"));
  error_of(Code::kInvalidArgument, [&] { on_read(number(1, DType::kInt32), Aggregation::kMean); });
}

TEST_P(VariablesInReplicasTest, AnotherSpecIsRefusedByName) {
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

TEST_P(VariablesInReplicasTest, AllReduceOfAVariableCountsEveryReplica) {
  const auto v = on_write(number(2), Aggregation::kNone);
  const auto sums = run(
      [&](Value id) { return get_replica_context()->all_reduce(ReduceOp::kSum, v->read()) + id; },
      ids());
  for (int r = 0; r < n_; ++r) EXPECT_EQ(sums[static_cast<size_t>(r)].item(), 2 * n_ + r);
}

}  // namespace
}  // namespace cohort
