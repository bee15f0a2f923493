#include <algorithm>
#include <random>

#include "tests/strategies/variables_testing.h"

namespace cohort {
namespace {

class VariableScatterTest : public VariablesTest {
 protected:
  // Of a variable of two rows of two, by either way to scatter; the strategy has ended then.
  void expect_out_of_range(const std::shared_ptr<Variable>& v, int32_t row) {
    const Tensor rows = Tensor::from<int32_t>({0, row}, {2}),
                 by = Tensor::full(DType::kFloat32, {2, 2}, 1);
    const auto outside =
        error_of(Code::kOutOfRange, [&] { v->scatter(ScatterOp::kAdd, rows, by); });
    const auto inside = error_of(Code::kOutOfRange, [&] {
      run([&](Value i, Value u) { v->scatter(ScatterOp::kMul, i, u); }, rows, by);
    });
    for (const std::string& message : {outside, inside})
      EXPECT_TRUE(contains(message, "v/AssignScatter") &&
                  contains(message, str("index ", row, " at position 1")))
          << message;
  }
};
INSTANTIATE_TEST_SUITE_P(All, VariableScatterTest, testing::ValuesIn(all_cases()));

// The change that updates make to rows, one after the other.
void scatter(ScatterOp op, std::vector<double>& rows, const std::vector<double>& indices,
             const std::vector<double>& updates) {
  const size_t columns = indices.empty() ? 0 : updates.size() / indices.size();
  for (size_t i = 0; i < indices.size(); ++i)
    for (size_t j = 0; j < columns; ++j) {
      double& at = rows[static_cast<size_t>(indices[i]) * columns + j];
      const double update = updates[i * columns + j];
      switch (op) {
        case ScatterOp::kAdd:
          at += update;
          break;
        case ScatterOp::kSub:
          at -= update;
          break;
        case ScatterOp::kMul:
          at *= update;
          break;
        case ScatterOp::kDiv:
          at /= update;
          break;
        case ScatterOp::kMin:
          at = std::min(at, update);
          break;
        case ScatterOp::kMax:
          at = std::max(at, update);
          break;
        case ScatterOp::kUpdate:
          at = update;
          break;
      }
    }
}

constexpr ScatterOp kScatterOps[] = {ScatterOp::kAdd,   ScatterOp::kSub, ScatterOp::kMul,
                                     ScatterOp::kDiv,   ScatterOp::kMin, ScatterOp::kMax,
                                     ScatterOp::kUpdate};

bool is_summable(ScatterOp op) {
  return op != ScatterOp::kMin && op != ScatterOp::kMax && op != ScatterOp::kUpdate;
}

TEST_P(VariableScatterTest, ScattersOfReplicasFollowEachOther) {
  constexpr int64_t kRows = 5, kColumns = 3;
  const uint64_t seed = 20240607;
  std::mt19937_64 random(seed);
  for (const ScatterOp op : kScatterOps)
    for (const Aggregation aggregation :
         {Aggregation::kSum, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
      if (n_ > 1 && !is_summable(op) && aggregation != Aggregation::kOnlyFirstReplica) continue;
      for (const bool uneven : {false, true}) {
        SCOPED_TRACE(str("op ", static_cast<int>(op), " aggregation ",
                         static_cast<int>(aggregation), " uneven ", uneven, " seed ", seed));
        Tensor initial(DType::kFloat64, {kRows, kColumns});
        for (int64_t i = 0; i < kRows * kColumns; ++i)
          initial.data<double>()[i] = std::uniform_real_distribution(-2.0, 2.0)(random);
        const auto v = on_write(initial, aggregation);
        auto expected = to_doubles(initial);
        PerReplica<Tensor> indices(static_cast<size_t>(n_)), updates(static_cast<size_t>(n_));
        for (size_t r = 0; r < indices.size(); ++r) {
          const int64_t count = uneven ? (static_cast<int64_t>(r) * 2 + 3) % 4 : 4;
          indices[r] = Tensor(DType::kInt32, {count});
          updates[r] = Tensor(DType::kFloat64, {count, kColumns});
          for (int64_t i = 0; i < count; ++i)
            indices[r].data<int32_t>()[i] = static_cast<int32_t>(random() % kRows);
          for (int64_t i = 0; i < count * kColumns; ++i)
            updates[r].data<double>()[i] = std::uniform_real_distribution(0.5, 2.0)(random);
          if (r > 0 && aggregation == Aggregation::kOnlyFirstReplica) continue;
          auto weighted = to_doubles(updates[r]);
          if (aggregation == Aggregation::kMean)
            for (double& update : weighted) update /= n_;
          scatter(op, expected, to_doubles(indices[r]), weighted);
        }
        const auto seen = run(
            [&](Value at, Value by) {
              v->scatter(op, at, by);
              return v->read();
            },
            indices, updates);
        for (int r = 0; r < n_; ++r) {
          const auto copy = to_doubles(v->storage(r));
          EXPECT_EQ(to_doubles(seen[static_cast<size_t>(r)]), copy);
          for (size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(copy[i], expected[i], 1e-12 * std::max(1.0, std::abs(expected[i])));
        }
      }
    }
}

TEST_P(VariableScatterTest, ScattersWithoutAggregationAreTheSameOnEveryReplica) {
  const auto v = on_write(number(0).reshape({1}), Aggregation::kNone);
  v->assign(Tensor::from<float>({4}, {1}));
  const Tensor row = Tensor::from<int64_t>({0}, {1}), two = Tensor::from<float>({2}, {1});
  double expected = 4;
  for (const ScatterOp op : {ScatterOp::kSub, ScatterOp::kAdd, ScatterOp::kMax, ScatterOp::kMin,
                             ScatterOp::kMul, ScatterOp::kDiv, ScatterOp::kUpdate}) {
    run([&] { v->scatter(op, ops::constant(row), ops::constant(two)); });
    std::vector<double> rows = {expected};
    scatter(op, rows, {0}, {2});
    expected = rows[0];
    EXPECT_EQ(copies(v), n_times(expected));
  }
  if (n_ > 1) {
    const std::string message = error_of(Code::kInvalidArgument, [&] {
      run([&](Value x) { v->scatter(ScatterOp::kAdd, ops::constant(row), ops::reshape(x, {1})); },
          ids());
    });
    EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "kOnlyFirstReplica")) << message;
  }
}

TEST_P(VariableScatterTest, ScattersThatHaveNoSumAreNotThere) {
  const Tensor rows = Tensor::from<float>({0, 2, 0}, {3});
  const auto scatter_id = [&](const VariablePtr& v, ScatterOp op) {
    run(
        [&, op](Value id) {
          v->scatter(op, ops::constant(Tensor::from<int32_t>({1}, {1})),
                     ops::reshape(id, {1}) + 1.0);
        },
        ids());
  };
  for (const ScatterOp op : {ScatterOp::kMin, ScatterOp::kMax, ScatterOp::kUpdate}) {
    for (const Aggregation aggregation : {Aggregation::kSum, Aggregation::kMean}) {
      const auto v = on_write(rows, aggregation);
      if (n_ > 1) {
        const auto message = error_of(Code::kUnimplemented, [&] { scatter_id(v, op); });
        EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "kOnlyFirstReplica"))
            << message;
        EXPECT_EQ(copies(v), n_times({0, 2, 0}));
      }
      // Outside there is nothing to sum.
      v->scatter(op, Tensor::from<int32_t>({2}, {1}), Tensor::from<float>({3}, {1}));
      EXPECT_EQ(copies(v), n_times({0, 2, op == ScatterOp::kMin ? 0.0 : 3.0}));
    }
    const auto first = on_write(rows, Aggregation::kOnlyFirstReplica);
    scatter_id(first, op);
    EXPECT_EQ(copies(first), n_times({0, op == ScatterOp::kMax ? 2.0 : 1.0, 0}));
  }
}

TEST_P(VariableScatterTest, IntegersScatterToo) {
  const auto step = [&](const VariablePtr& v, ScatterOp op) {
    run(
        [&, op](Value id) {
          const Value at = ops::reshape(ops::cast(id, DType::kInt32), {1});
          v->scatter(op, at, at + 2.0);
        },
        ids());
  };
  std::vector<int32_t> initial(kMaxReplicas, 60);
  std::vector<double> divided(kMaxReplicas, 60), added(kMaxReplicas, 60);
  for (int r = 0; r < n_; ++r) {
    divided[static_cast<size_t>(r)] = 60 / (r + 2);  // towards zero
    added[static_cast<size_t>(r)] = 60 + r + 2;
  }
  const Tensor start = Tensor::from(initial, {kMaxReplicas});
  const auto quotient = on_write(start, Aggregation::kSum),
             sum = on_write(start, Aggregation::kSum);
  step(quotient, ScatterOp::kDiv);
  step(sum, ScatterOp::kAdd);
  EXPECT_EQ(copies(quotient), n_times(divided));
  EXPECT_EQ(copies(sum), n_times(added));
  const auto mean = on_write(start, Aggregation::kMean);
  if (n_ > 1) error_of(Code::kInvalidArgument, [&] { step(mean, ScatterOp::kAdd); });
}

TEST_P(VariableScatterTest, ASumRefusesOneScatterForAllReplicas) {
  const auto v = on_write(Tensor::from<float>({1, 1}, {2}), Aggregation::kSum);
  const Tensor row = Tensor::from<int32_t>({1}, {1}), three = Tensor::from<float>({3}, {1});
  if (n_ > 1) {
    const std::string message = error_of(Code::kInvalidArgument, [&] {
      run([&] { v->scatter(ScatterOp::kAdd, ops::constant(row), ops::constant(three)); });
    });
    EXPECT_TRUE(contains(message, "\"v\" sums what replicas write")) << message;
  }
  // Counting the rows that replicas name is a sum.
  run(
      [&](Value id) {
        v->scatter(ScatterOp::kAdd, ops::reshape(ops::cast(id * 0.0, DType::kInt32), {1}),
                   ops::constant(three));
      },
      ids());
  EXPECT_EQ(copies(v), n_times({1.0 + 3 * n_, 1}));
}

TEST_P(VariableScatterTest, OnReadThereIsNoScatter) {
  const Tensor row = Tensor::from<int32_t>({0}, {1}), one = Tensor::from<float>({1}, {1});
  for (const ScatterOp op : kScatterOps)
    for (const Aggregation aggregation : kAggregations) {
      const auto v = on_read(Tensor::from<float>({7}, {1}), aggregation);
      const auto message = error_of(Code::kUnimplemented, [&] {
        run([&](Value at, Value by) { v->scatter(op, at, by); }, row, one);
      });
      EXPECT_TRUE(contains(message, "\"v\"")) << message;
      error_of(Code::kUnimplemented, [&] { v->scatter(op, row, one); });
      EXPECT_EQ(copies(v), n_times(7));
    }
}

TEST_P(VariableScatterTest, ARowBeforeTheFirstOneIsOutOfRange) {
  const auto v = on_write(Tensor::from<float>({1, 2, 3, 4}, {2, 2}), Aggregation::kNone);
  expect_out_of_range(v, -1);
}

TEST_P(VariableScatterTest, AScatterBeyondTheRowsChangesNothing) {
  const auto v = on_write(Tensor::from<float>({1, 2, 3, 4}, {2, 2}), Aggregation::kNone);
  const Tensor rows = Tensor::from<int32_t>({0, 1}, {2}),
               by = Tensor::full(DType::kFloat32, {2, 2}, 1);
  expect_out_of_range(v, 2);
  EXPECT_EQ(copies(v), n_times({1, 2, 3, 4}));
  for (const Tensor& wrong : {Tensor::from<int32_t>({0}, {1}), Tensor::from<float>({0, 1}, {2}),
                              Tensor::from<int32_t>({0, 1}, {2, 1})}) {
    const auto message =
        error_of(Code::kInvalidArgument, [&] { v->scatter(ScatterOp::kAdd, wrong, by); });
    EXPECT_TRUE(contains(message, "variable \"v\" is float32[2,2]")) << message;
  }
  const auto scalar = on_write(number(1), Aggregation::kNone);
  error_of(Code::kInvalidArgument, [&] { scalar->scatter(ScatterOp::kAdd, rows, by); });
}

TEST_P(VariableScatterTest, AScatterOfTheVariablesOwnRowsUsesThoseOfBefore) {
  const auto v = on_write(Tensor::from<float>({1, 10, 100}, {3}), Aggregation::kNone);
  run([&] {
    const Value order = ops::constant(Tensor::from<int32_t>({1, 2, 0}, {3}));
    v->scatter(ScatterOp::kAdd, order, v->read());
  });
  EXPECT_EQ(copies(v), n_times({101, 11, 110}));
}
}  // namespace
}  // namespace cohort
