#include "core/distribute/replica_context.h"

#include "core/graph/op.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "tests/distribute/testing.h"

namespace cohort {
namespace {

using testing::elements;
using testing::expect_error;
using testing::floats;
using testing::ints;

using Numbers = std::vector<double>;

const ReplicaContext& replica() { return *get_replica_context(); }

// float64 [rows, columns], counting up from `first`.
Tensor counting(double first, int64_t rows, int64_t columns) {
  Tensor t(DType::kFloat64, {rows, columns});
  for (int64_t i = 0; i < t.num_elements(); ++i) t.data<double>()[i] = first + i;
  return t;
}

class ReplicaContextTest : public testing::ReplicasTest {
 protected:
  // The sum over replicas r of f(r).
  double over_replicas(const std::function<double(int)>& f) const {
    double sum = 0;
    for (int r = 0; r < replicas(); ++r) sum += f(r);
    return sum;
  }
};
COHORT_FOR_ALL_REPLICAS(ReplicaContextTest);

TEST_P(ReplicaContextTest, ReducesSumsAndMeansInOrder) {
  const auto step = strategy.function([](Value x, Value n) {
    auto results = replica().all_reduce(ReduceOp::kSum, std::vector{x, n, x * 10.0});
    results.push_back(replica().all_reduce(ReduceOp::kMean, x));
    return results;
  });
  const auto results = strategy.run(step, each([](int r) {
                                      return floats({1.0f + r, 2.0f + 3 * r});
                                    }),
                                    each([](int r) { return Tensor::scalar(int64_t{r}); }));
  const double a = over_replicas([](int r) { return 1 + r; }),
               b = over_replicas([](int r) { return 2 + 3 * r; });
  for (int r = 0; r < replicas(); ++r) {
    EXPECT_EQ(elements(results[0][r]), (Numbers{a, b}));
    EXPECT_EQ(results[1][r].item(), over_replicas([](int k) { return k; }));
    EXPECT_EQ(elements(results[2][r]), (Numbers{10 * a, 10 * b}));
    EXPECT_NEAR(elements(results[3][r])[1], b / replicas(), 1e-6);
  }
}

TEST_P(ReplicaContextTest, PacksHoldAboutTheBytesAskedFor) {
  const auto count_reductions = [&](int64_t bytes_per_pack) {
    int count = 0;
    const auto step = strategy.function([&](Value x) {
      std::vector<Value> values(5, x);
      values[2] = ops::cast(x, DType::kFloat64);
      auto sums = replica().all_reduce(ReduceOp::kSum, values, {.bytes_per_pack = bytes_per_pack});
      for (const auto& node : current_graph().nodes()) count += node->op().name == "AllReduce";
      return sums;
    });
    const auto results = strategy.run(step, floats({1, 2}));
    for (const auto& result : results)
      EXPECT_EQ(elements(result[0]), (Numbers{1.0 * replicas(), 2.0 * replicas()}));
    return count;
  };
  const bool communicates = replicas() > 1;
  EXPECT_EQ(count_reductions(0), communicates ? 2 : 0) << "one for each dtype";
  EXPECT_EQ(count_reductions(16), communicates ? 3 : 0) << "two float32 in one, and one float64";
  EXPECT_EQ(count_reductions(1), communicates ? 5 : 0);
}

TEST_P(ReplicaContextTest, GradientsPassThroughReductions) {
  const auto step = strategy.function([](Value x, Value weight) {
    const Value sum = replica().all_reduce(ReduceOp::kSum, x),
                mean = replica().all_reduce(ReduceOp::kMean, x);
    const Value sum_gradient = gradients(ops::reduce_sum(sum * weight), {x})[0].values;
    const Value mean_gradient = gradients(ops::reduce_sum(mean * weight), {x})[0].values;
    return std::vector<Value>{sum_gradient, mean_gradient};
  });
  const auto results = strategy.run(step, each([](int r) { return Tensor::scalar(1.0 * r); }),
                                    each([](int r) { return Tensor::scalar(1.0 + 2 * r); }));
  const double expected = over_replicas([](int r) { return 1 + 2 * r; });
  for (int r = 0; r < replicas(); ++r) {
    EXPECT_DOUBLE_EQ(results[0][r].item(), expected);
    EXPECT_DOUBLE_EQ(results[1][r].item(), expected / replicas());
  }
}

TEST_P(ReplicaContextTest, GathersEqualParts) {
  const auto step = strategy.function([](Value x) {
    return std::vector<Value>{replica().all_gather(x, 0), replica().all_gather(x, 1),
                              replica().all_gather(x, -1), replica().all_gather(x, -2)};
  });
  const auto results = strategy.run(step, each([](int r) { return counting(10 * r, 2, 3); }));
  Numbers rows, columns;
  for (int r = 0; r < replicas(); ++r)
    for (int i = 0; i < 6; ++i) rows.push_back(10 * r + i);
  for (int row = 0; row < 2; ++row)
    for (int r = 0; r < replicas(); ++r)
      for (int i = 0; i < 3; ++i) columns.push_back(10 * r + 3 * row + i);
  for (int r = 0; r < replicas(); ++r) {
    EXPECT_EQ(results[0][r].shape(), (Shape{2 * replicas(), 3}));
    EXPECT_EQ(elements(results[0][r]), rows);
    EXPECT_EQ(results[1][r].shape(), (Shape{2, 3 * replicas()}));
    EXPECT_EQ(elements(results[1][r]), columns);
    EXPECT_EQ(elements(results[2][r]), columns);
    EXPECT_EQ(elements(results[3][r]), rows);
  }
}

TEST_P(ReplicaContextTest, GathersUnequalAndEmptyParts) {
  for (const bool by_rows : {true, false}) {
    const auto step = strategy.function([&](Value x) {
      const int64_t axis = by_rows ? 0 : 1;
      const int64_t total = replica().global_extent(x, axis);
      return std::vector<Value>{replica().all_gather(x, axis),
                                ops::constant(Tensor::scalar(total))};
    });
    const auto results =
        strategy.run(step, each([&](int r) {
                       const int64_t extent = (2 * r) % 3;  // 0, 2, 1, ...
                       return by_rows ? counting(100 * r, extent, 1) : counting(100 * r, 1, extent);
                     }));
    Numbers all;
    for (int r = 0; r < replicas(); ++r)
      for (int i = 0; i < (2 * r) % 3; ++i) all.push_back(100 * r + i);
    for (int r = 0; r < replicas(); ++r) {
      EXPECT_EQ(elements(results[0][r]), all);
      EXPECT_EQ(results[1][r].item(), all.size());
    }
  }
}

TEST_P(ReplicaContextTest, FirstRowIsWhereAGatherPutsThePartOfAReplica) {
  const auto step = strategy.function([](Value x) {
    const Value own = replica().first_row(x) +
                      ops::arange(0, static_cast<double>(x.shape()[0]));  // the rows' numbers
    return std::vector<Value>{replica().first_row(x), ops::gather(replica().all_gather(x, 0), own)};
  });
  for (const bool equal : {true, false}) {
    const auto rows = [&](int r) { return equal ? int64_t{2} : (2 * r + 1) % 3; };  // 1, 0, 2, ...
    const auto results =
        strategy.run(step, each([&](int r) { return counting(100 * r, rows(r), 1); }));
    int64_t before = 0;
    for (int r = 0; r < replicas(); before += rows(r++)) {
      EXPECT_EQ(results[0][r].spec(), (TensorSpec{DType::kInt64, {}}));
      EXPECT_EQ(results[0][r].item(), static_cast<double>(before));
      EXPECT_EQ(elements(results[1][r]), elements(counting(100 * r, rows(r), 1)));
    }
  }
}

TEST_P(ReplicaContextTest, GathersPartsWhoseSizeFollowsFromAnEarlierGather) {
  // Each part has as many rows as all replicas had together before, and its own once more.
  const auto step = strategy.function([](Value x) {
    Value part = x;
    for (int depth = 0; depth < 3; ++depth)
      part = ops::concat({replica().all_gather(part, 0), x}, 0);
    return part;
  });
  const auto results = strategy.run(step, each([](int r) { return counting(r, 1 + r % 2, 1); }));
  std::vector<int64_t> own, rows;
  for (int r = 0; r < replicas(); ++r) own.push_back(1 + r % 2);
  rows = own;
  for (int depth = 0; depth < 3; ++depth) {
    int64_t total = 0;
    for (const int64_t n : rows) total += n;
    for (int r = 0; r < replicas(); ++r) rows[r] = total + own[r];
  }
  for (int r = 0; r < replicas(); ++r) EXPECT_EQ(results[r].shape()[0], rows[r]);
}

TEST_P(ReplicaContextTest, GradientsPassThroughGathers) {
  // loss_r = sum_i w_i (r + 1) g_i over the gathered g, so d(sum of losses)/dx_k = w_k * sum(r +
  // 1).
  const auto step = strategy.function([](Value x, Value scale) {
    const Value all = replica().all_gather(x, 0);
    const Value weights = ops::constant(counting(0, all.shape()[0], 1));
    return gradients(ops::reduce_sum(all * weights) * scale, {x})[0].values;
  });
  const auto results = strategy.run(step, each([](int r) { return counting(r, r % 3, 1); }),
                                    each([](int r) { return Tensor::scalar(1.0 + r); }));
  const double scale = over_replicas([](int r) { return 1 + r; });
  int row = 0;
  for (int r = 0; r < replicas(); ++r)
    for (const double gradient : elements(results[r])) EXPECT_DOUBLE_EQ(gradient, scale * row++);
}

class CollectiveGradientTest : public ReplicaContextTest {
 protected:
  // A collective of x, whose result has the shape of `weights`.
  using Collective = std::function<Value(const Value& x, const Value& weights)>;

  // Expects that gradients() of the loss of each replica, sum(weights * y^2) of
  // y = collective(sin(x)), is by its x what central differences of the sum of all losses are.
  void expect_differences(const PerReplica<Tensor>& x, const PerReplica<Tensor>& weights,
                          const Collective& collective) {
    const auto step = strategy.function([&](Value own, Value factors) {
      const Value y = collective(ops::sin(own), factors);
      const Value loss = ops::reduce_sum(ops::square(y) * factors);
      return std::vector<Value>{loss, gradients(loss, {own})[0].values};
    });
    const auto sum_of_losses = [&](int moved, int64_t element, double by) {
      PerReplica<Tensor> point = x;
      point[moved] = point[moved].clone();
      point[moved].data<double>()[element] += by;
      const auto results = strategy.run(step, point, weights);
      return over_replicas([&](int r) { return results[0][r].item(); });
    };
    constexpr double kStep = 1e-4;
    const auto results = strategy.run(step, x, weights);
    for (int r = 0; r < replicas(); ++r)
      for (int64_t i = 0; i < x[r].num_elements(); ++i)
        EXPECT_NEAR(results[1][r].data<double>()[i],
                    (sum_of_losses(r, i, kStep) - sum_of_losses(r, i, -kStep)) / (2 * kStep), 1e-4)
            << "element " << i << " of replica " << r;
  }

  // Of each replica, none of the third one's; and of all together.
  static int64_t rows_of(int replica) { return (replica + 1) % 3; }
  std::vector<int64_t> extents() const {
    std::vector<int64_t> rows;
    for (int r = 0; r < replicas(); ++r) rows.push_back(rows_of(r));
    return rows;
  }
  int64_t all_rows() const {
    return static_cast<int64_t>(over_replicas([](int r) { return rows_of(r); }));
  }
};
COHORT_FOR_ALL_REPLICAS(CollectiveGradientTest);

TEST_P(CollectiveGradientTest, OfAllReduceIsThatOfTheSumOfLosses) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean})
    expect_differences(each([](int r) { return counting(r, 2, 1); }),
                       each([](int r) { return counting(1 + r, 2, 1); }),
                       [op](const Value& x, const Value&) { return ops::all_reduce({x}, op)[0]; });
}

TEST_P(CollectiveGradientTest, OfAllGatherIsThatOfTheSumOfLosses) {
  expect_differences(
      each([](int r) { return counting(r, rows_of(r), 2); }),
      each([&](int r) { return counting(1 + r, all_rows(), 2); }),
      [this](const Value& x, const Value&) { return ops::all_gather(x, extents()); });
}

TEST_P(CollectiveGradientTest, OfReduceScatterIsThatOfTheSumOfLosses) {
  expect_differences(each([&](int r) { return counting(r, all_rows(), 1); }),
                     each([](int r) { return counting(1 + r, rows_of(r), 1); }),
                     [this](const Value& x, const Value& weights) {
                       return ops::reduce_scatter(x, extents(), weights.shape()[0]);
                     });
}

constexpr int64_t kRows = 10;

// What slices amount to as a table of `rows` rows; each row may come only once.
Numbers table_of(const Tensor& indices, const Tensor& values, int64_t rows) {
  Numbers table(static_cast<size_t>(rows), 0);
  const auto index = elements(indices), value = elements(values);
  for (size_t i = 0; i < index.size(); ++i) {
    if (index[i] < 0) {
      EXPECT_EQ(value[i], 0);
      continue;
    }
    EXPECT_EQ(table[static_cast<size_t>(index[i])], 0) << "row " << index[i] << " comes twice";
    table[static_cast<size_t>(index[i])] = value[i];
  }
  return table;
}

TEST_P(ReplicaContextTest, SparseValuesStaySparseWithEachRowOnce) {
  const auto step = strategy.function([](Value indices, Value values) {
    const Gradient slices{values, indices, kRows};
    const Gradient sum = replica().all_reduce(ReduceOp::kSum, slices),
                   mean = replica().all_reduce(ReduceOp::kMean, slices);
    EXPECT_TRUE(sum.sparse());
    EXPECT_EQ(sum.rows, kRows);
    return std::vector<Value>{sum.indices, sum.values, mean.indices, mean.values};
  });
  // Replica r names r + 1 rows from r on, and the first of them twice.
  Numbers expected(kRows, 0);
  const auto indices_of = [](int r) {
    std::vector<int64_t> rows = {r};
    for (int i = 0; i <= r; ++i) rows.push_back((r + i) % kRows);
    return rows;
  };
  for (int r = 0; r < replicas(); ++r)
    for (const int64_t row : indices_of(r)) expected[row] += 1 + r;
  const auto results = strategy.run(
      step, each([&](int r) { return ints(indices_of(r)); }),
      each([&](int r) { return floats(std::vector<float>(indices_of(r).size(), 1.0f + r)); }));
  Numbers mean = expected;
  for (double& x : mean) x = static_cast<float>(x) / static_cast<float>(replicas());
  for (int r = 0; r < replicas(); ++r) {
    EXPECT_EQ(table_of(results[0][r], results[1][r], kRows), expected);
    EXPECT_EQ(table_of(results[2][r], results[3][r], kRows), mean) << "as of dense values";
  }
}

TEST_P(ReplicaContextTest, DenseAndSparseTogetherKeepTheirPlaces) {
  const auto step = strategy.function([](Value x, Value indices) {
    const auto reduced = replica().all_reduce(
        ReduceOp::kSum,
        std::vector<Gradient>{
            {.values = x}, {}, {.values = x, .indices = indices, .rows = 5}, {.values = x * 2.0}});
    EXPECT_FALSE(reduced[1]);
    EXPECT_TRUE(reduced[2].sparse());
    return std::vector<Value>{reduced[0].values, reduced[2].indices, reduced[2].values,
                              reduced[3].values};
  });
  const auto results = strategy.run(step, floats({1, 2}), ints({4, 0}));
  const double n = replicas();
  for (int r = 0; r < replicas(); ++r) {
    EXPECT_EQ(elements(results[0][r]), (Numbers{n, 2 * n}));
    EXPECT_EQ(table_of(results[1][r], results[2][r], 5), (Numbers{2 * n, 0, 0, 0, n}));
    EXPECT_EQ(elements(results[3][r]), (Numbers{2 * n, 4 * n}));
  }
}

TEST_P(ReplicaContextTest, MistakesAreRefusedWhateverTheNumberOfReplicas) {
  const auto expect_refused = [&](const std::vector<std::string>& parts,
                                  const std::function<Value(const Value&)>& body) {
    const auto step = strategy.function([&](Value x) { return body(x); });
    expect_error(Code::kInvalidArgument, parts, [&] { strategy.run(step, floats({1, 2})); });
  };
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct})
    expect_refused({"sum or mean", std::string(reduce_op_name(op))},
                   [&](const Value& x) { return replica().all_reduce(op, x); });
  expect_refused({"mean", "int64"}, [](const Value& x) {
    return replica().all_reduce(ReduceOp::kMean, ops::cast(x, DType::kInt64));
  });
  expect_refused({"scalar", "reshape"},
                 [](const Value& x) { return replica().all_gather(ops::reduce_sum(x), 0); });
  expect_refused({"scalar", "reshape"},
                 [](const Value& x) { return replica().first_row(ops::reduce_sum(x)); });
  expect_refused({"axis 1", "-1 to 0"}, [](const Value& x) { return replica().all_gather(x, 1); });
  expect_refused({"axis -3"}, [](const Value& x) { return replica().all_gather(x, -3); });
  expect_refused({"bytes_per_pack", "-1"}, [](const Value& x) {
    return replica().all_reduce(ReduceOp::kSum, x, {.bytes_per_pack = -1});
  });
  expect_refused({"timeout_seconds", "constructor"}, [](const Value& x) {
    return replica().all_reduce(ReduceOp::kSum, x, {.timeout_seconds = 3});
  });
}

// What a replica calls, given a value of the function that is being traced.
const std::pair<const char*, std::function<Value(const Value&)>> kCalls[] = {
    {"ReplicaContext::all_reduce",
     [](const Value& x) { return replica().all_reduce(ReduceOp::kSum, x); }},
    {"ReplicaContext::all_gather", [](const Value& x) { return replica().all_gather(x, 0); }},
    {"ReplicaContext::global_extent",
     [](const Value& x) { return x * static_cast<double>(replica().global_extent(x)); }},
    {"ReplicaContext::first_row", [](const Value& x) { return replica().first_row(x); }},
    {"ReplicaContext::replica_id_in_sync_group",
     [](const Value&) { return replica().replica_id_in_sync_group(); }},
    {"reduce_gradients",
     [](const Value& x) {
       return current_strategy().reduce_gradients({Gradient{.values = x}})[0].values;
     }},
    {"reduce_gradients", [](const Value& x) {
       const Value indices = ops::constant(ints({1, 0}));
       return current_strategy().reduce_gradients({Gradient{x, indices, 4}})[0].dense();
     }}};

TEST_P(ReplicaContextTest, NoReplicaRunsAnotherFunctionThatIsTracedMeanwhile) {
  for (const auto& [method, call] : kCalls) {
    const auto nested = function([&call = call](Value x) { return call(x); });
    const auto step = strategy.function([&](Value x) {
      nested({floats({1, 2})});
      return x;
    });
    const auto run = [&] { strategy.run(step, 1.0f); };
    if (replicas() == 1)
      run();
    else
      expect_error(Code::kFailedPrecondition,
                   {method, "needs the replicas of " + strategy.name(), "body of the step"}, run);
    EXPECT_EQ(strategy.run(strategy.function(call), floats({1, 2})).size(),
              static_cast<size_t>(replicas()))
        << "in a step of its own";
  }
}

TEST_P(ReplicaContextTest, NoReplicaRunsAFunctionThatIsCalledInAScope) {
  const auto scope = strategy.scope();
  for (const auto& [method, call] : kCalls) {
    if (method != std::string("reduce_gradients")) continue;  // there is no replica to ask
    const auto alone = [&call = call] {
      function([&](Value x) { return call(x); })({floats({1, 2})});
    };
    if (replicas() == 1)
      alone();
    else
      expect_error(Code::kFailedPrecondition, {method, "not one that they run"}, alone);
  }
}

TEST_P(ReplicaContextTest, OnlyTheGatheredAxisMayDiffer) {
  if (replicas() == 1) return;
  const auto step = strategy.function([](Value x) { return replica().all_gather(x, 0); });
  expect_error(Code::kInvalidArgument, {"all_gather", "only the axis"},
               [&] { strategy.run(step, each([](int r) { return counting(0, 2, r + 1); })); });
}

TEST_P(ReplicaContextTest, AGatherThatSomeReplicasLeaveOutIsRefused) {
  if (replicas() == 1) return;
  const auto scope = strategy.scope();
  const auto total = create_variable({.spec = {DType::kFloat32, {}},
                                      .initial_value = [] { return Tensor::scalar(0.0f); },
                                      .aggregation = Aggregation::kSum});
  const auto step = strategy.function([&](Value x, Value count) {
    if (x.shape()[0] > 0) replica().all_gather(x, 0);
    total->assign_add(count);
  });
  const auto run = [&] {
    strategy.run(step, each([](int r) { return counting(0, r == 0 ? 1 : 0, 1); }),
                 each([](int) { return Tensor::scalar(1.0f); }));
  };
  expect_error(Code::kInvalidArgument, {"all_gather", "float64[1,1]", "only the axis"}, run);
}

}  // namespace
}  // namespace cohort
