#include <limits>
#include <numeric>

#include "tests/distribute/testing.h"

namespace cohort {
namespace {

using testing::elements;
using testing::expect_error;
using testing::floats;
using testing::ints;

using Numbers = std::vector<double>;

// Reductions of values between steps.
class ReductionTest : public testing::ReplicasTest {
 protected:
  // float32 [extents[r]] on replica r, counting up over all replicas.
  PerReplica<Tensor> counting(const std::vector<int64_t>& extents) const {
    std::vector<Tensor> parts;
    float next = 0;
    for (const int64_t extent : extents) {
      std::vector<float> part(static_cast<size_t>(extent));
      std::iota(part.begin(), part.end(), next);
      next += static_cast<float>(extent);
      parts.push_back(floats(part));
    }
    return parts;
  }
};
COHORT_FOR_ALL_REPLICAS(ReductionTest);

TEST_P(ReductionTest, WithoutAnAxisElementsOfTheReplicasCombine) {
  const auto values = counting(std::vector<int64_t>(replicas(), 4));
  Numbers sum(4, 0);
  for (int r = 0; r < replicas(); ++r)
    for (int i = 0; i < 4; ++i) sum[i] += 4 * r + i;
  EXPECT_EQ(elements(strategy.reduce(ReduceOp::kSum, values)), sum);
  for (double& x : sum) x /= replicas();
  EXPECT_EQ(elements(strategy.reduce(ReduceOp::kMean, values)), sum);
}

TEST_P(ReductionTest, AnAxisIsReducedToo) {
  for (int64_t rows : {4 * replicas(), 3 * replicas() + 1, 2, 1}) {
    const auto values = counting(split_rows(rows, replicas()));
    const double sum = static_cast<double>(rows * (rows - 1)) / 2;
    for (const int64_t axis : {0, -1}) {
      EXPECT_EQ(strategy.reduce("sum", values, axis).item(), sum) << rows;
      EXPECT_FLOAT_EQ(strategy.reduce("Mean", values, axis).item(), sum / rows)
          << rows << " rows: every row counts once, and an empty part not at all";
    }
  }
}

TEST_P(ReductionTest, AnyAxisOfAnyRank) {
  // [2, 3 + r, 2] of ones times r + 1.
  const auto values = each([](int r) {
    return Tensor::full(DType::kFloat64, {2, 3 + r, 2}, r + 1);
  });
  double sum = 0, count = 0;
  for (int r = 0; r < replicas(); ++r) {
    sum += (3 + r) * (r + 1);
    count += 3 + r;
  }
  for (const int64_t axis : {1, -2}) {
    const Tensor total = strategy.reduce(ReduceOp::kSum, values, axis);
    EXPECT_EQ(total.shape(), (Shape{2, 2}));
    EXPECT_EQ(elements(total), Numbers(4, sum));
    EXPECT_EQ(elements(strategy.reduce(ReduceOp::kMean, values, axis)), Numbers(4, sum / count));
  }
  if (replicas() > 1)
    expect_error(Code::kInvalidArgument, {"float64[2,3,2]", "float64[2,4,2]", "along the axis"},
                 [&] { strategy.reduce(ReduceOp::kSum, values, 0); });
}

TEST_P(ReductionTest, IntegersAreExactAndTheirMeanIsNot) {
  constexpr int64_t kLarge = (int64_t{1} << 60) + 1;  // no double
  const auto large = each([](int r) { return ints({r == 0 ? kLarge : 1}); });
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, large).data<int64_t>()[0], kLarge + replicas() - 1);
  EXPECT_EQ(*strategy.reduce(ReduceOp::kSum, large, 0).data<int64_t>(), kLarge + replicas() - 1);
  const auto small = each([](int r) { return Tensor::from<int32_t>({r, r + 1}, {2}); });
  const Tensor mean = strategy.reduce(ReduceOp::kMean, small);
  EXPECT_EQ(mean.dtype(), DType::kFloat64);
  EXPECT_EQ(elements(mean), (Numbers{(replicas() - 1) / 2.0, (replicas() + 1) / 2.0}));
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, small, 0).item(), replicas() / 2.0);
}

TEST_P(ReductionTest, SumsKeepTheirDTypeAndWrapAroundBeyondItsRange) {
  const auto bytes = each([](int) { return Tensor::from<uint8_t>({200}, {1}); });
  const auto sum = static_cast<uint8_t>(200 * replicas());
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, bytes).data<uint8_t>()[0], sum);
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, bytes, 0).data<uint8_t>()[0], sum);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, bytes).item(), 200);

  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  const auto longs = each([](int) { return ints({kHighest, kHighest}); });
  const uint64_t total = static_cast<uint64_t>(kHighest) * static_cast<uint64_t>(replicas());
  EXPECT_EQ(*strategy.reduce(ReduceOp::kSum, longs).data<int64_t>(), static_cast<int64_t>(total));
  EXPECT_EQ(*strategy.reduce(ReduceOp::kSum, longs, 0).data<int64_t>(),
            static_cast<int64_t>(2 * total));
}

TEST_P(ReductionTest, DifferingExtentsNeedAnAxis) {
  if (replicas() == 1) return;
  const auto values = counting(split_rows(4 * replicas() - 1, replicas()));
  expect_error(Code::kInvalidArgument, {"float32[4]", "float32[3]", "axis"},
               [&] { strategy.reduce(ReduceOp::kSum, values); });
}

TEST_P(ReductionTest, DifferingTypesAndRanksAreNamedAsSuch) {
  if (replicas() == 1) return;
  const auto reduce_with_first = [&](const Tensor& first) {
    strategy.reduce("sum", each([&](int r) { return r == 0 ? first : Tensor::scalar(1.0f); }));
  };
  expect_error(Code::kInvalidArgument, {"float64[]", "float32[]", "cast them to one dtype"},
               [&] { reduce_with_first(Tensor::scalar(1.0)); });
  expect_error(Code::kInvalidArgument, {"float32[2]", "float32[]", "equally many axes"}, [&] {
    reduce_with_first(floats({1, 2}));
  });
}

TEST_P(ReductionTest, MistakesAreNamed) {
  const auto values = counting(std::vector<int64_t>(replicas(), 2));
  for (const int64_t axis : {1, 5, -2, -3})
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean})
      expect_error(Code::kInvalidArgument, {str("axis ", axis), "-1 to 0"},
                   [&] { strategy.reduce(op, values, axis); });
  expect_error(Code::kInvalidArgument, {"sum or mean", "max"},
               [&] { strategy.reduce("MAX", values); });
  expect_error(Code::kInvalidArgument, {"\"average\"", "sum, mean"},
               [&] { strategy.reduce("average", values, 0); });
  expect_error(Code::kInvalidArgument, {str(replicas()), str(replicas() + 1)},
               [&] { strategy.reduce("sum", PerReplica<Tensor>(replicas() + 1)); });
  expect_error(Code::kInvalidArgument, {"bool"}, [&] {
    strategy.reduce("sum", each([](int) { return Tensor::full(DType::kBool, {1}, 1); }), 0);
  });
  expect_error(Code::kInvalidArgument, {"bool"}, [&] {
    strategy.reduce("mean", each([](int) { return Tensor::full(DType::kBool, {1}, 1); }));
  });
}

TEST_P(ReductionTest, AReplicaWhoseTensorHasNoValueIsNamed) {
  auto values = counting(std::vector<int64_t>(replicas(), 2));
  const auto last = static_cast<size_t>(replicas() - 1);
  values[last] = Tensor();
  const std::vector<std::string> said = {strategy.name(), str("replica ", last, " has no value")};
  expect_error(Code::kInvalidArgument, said, [&] { strategy.reduce("sum", values); });
  expect_error(Code::kInvalidArgument, said, [&] { strategy.reduce("mean", values, 0); });
  expect_error(Code::kInvalidArgument, said, [&] { strategy.gather(values, 0); });
  for (const char* op : {"sum", "mean"})
    expect_error(Code::kInvalidArgument, {strategy.name(), "reduce", "no value"},
                 [&] { strategy.reduce(op, Tensor()); });
}

TEST_P(ReductionTest, AValueThatIsNotDistributed) {
  EXPECT_EQ(elements(strategy.reduce(ReduceOp::kMean, floats({3, 5}))), (Numbers{3, 5}));
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, floats({3, 5}), 0).item(), 4);
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, Tensor::scalar(0.0f)).item(), 0);
  if (replicas() == 1)
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, floats({3, 5}), 0).item(), 8);
  else
    expect_error(Code::kInvalidArgument, {"not distributed", str(replicas()), "mean"}, [&] {
      strategy.reduce(ReduceOp::kSum, floats({3, 5}));
    });
}

TEST_P(ReductionTest, GatherJoinsPartsOfAnyExtent) {
  for (const int64_t axis : {0, 1, 2, -1, -3}) {
    const int at = static_cast<int>(axis < 0 ? axis + 3 : axis);
    int64_t extent = 0;
    std::vector<Tensor> parts;
    for (int r = 0; r < replicas(); ++r) {
      const int64_t own = (r + 1) % 3;
      extent += own;
      parts.push_back(Tensor::full(DType::kInt32, Shape{2, 2, 2}.with_dim(at, own), r));
    }
    const Tensor all = strategy.gather(parts, axis);
    ASSERT_EQ(all.shape(), (Shape{2, 2, 2}.with_dim(at, extent)));
    // Along the axis, replica by replica.
    const int64_t inner = all.shape().count(at + 1, 3);
    std::vector<int> owner;
    for (int r = 0; r < replicas(); ++r) owner.insert(owner.end(), (r + 1) % 3, r);
    for (int64_t i = 0; i < all.num_elements(); ++i)
      EXPECT_EQ(all.data<int32_t>()[i], owner[static_cast<size_t>(i / inner % extent)]);
  }
}

TEST_P(ReductionTest, GatherRefusesOtherDifferencesAndScalars) {
  expect_error(Code::kInvalidArgument, {"scalar"},
               [&] { strategy.gather(each([](int) { return Tensor::scalar(1.0f); }), 0); });
  expect_error(Code::kInvalidArgument, {"axis 3"}, [&] {
    strategy.gather(each([](int) { return Tensor::zeros(DType::kFloat32, {1, 2, 3}); }), 3);
  });
  if (replicas() == 1) return;
  const auto parts = each([](int r) { return Tensor::zeros(DType::kFloat32, {1, 2 + r, 3}); });
  EXPECT_NO_THROW(strategy.gather(parts, 1));
  for (const int64_t axis : {0, 2})
    expect_error(Code::kInvalidArgument, {"float32[1,2,3]", "float32[1,3,3]"},
                 [&] { strategy.gather(parts, axis); });
}

TEST_P(ReductionTest, ValuesAreMadeAndTakenApartByReplica) {
  const auto values = strategy.distribute_values_from_function([&](const ValueContext& context) {
    EXPECT_EQ(context.num_replicas_in_sync, replicas());
    return Tensor::scalar(10.0f - context.replica_id_in_sync_group);
  });
  const auto local = strategy.local_results(values);
  ASSERT_EQ(local.size(), static_cast<size_t>(replicas()));
  for (int r = 0; r < replicas(); ++r) EXPECT_EQ(local[r].item(), 10 - r);
  EXPECT_EQ(strategy.local_results(floats({4, 5})).size(), 1u);
  expect_error(Code::kInvalidArgument, {"distribute_values_from_function", "empty"},
               [&] { strategy.distribute_values_from_function(nullptr); });
}

}  // namespace
}  // namespace cohort
