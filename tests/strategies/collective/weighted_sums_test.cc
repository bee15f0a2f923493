#include "strategies/collective/weighted_sums.h"

#include <limits>
#include <mutex>
#include <set>

#include <gmock/gmock.h>

#include "core/base/random.h"
#include "tests/collective/ranks.h"
#include "tests/strategies/collective/tcp/tcp_group.h"

namespace cohort::collective {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::on_ranks;
using Vector = std::vector<float>;

Tensor tensor(const Vector& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

Vector values_of(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

// --- Premultiplied sums

TEST(PremultipliedSumTest, IsTheSumOfProducts) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16})
    on_ranks(4, [&](int rank, Communicator& group) {
      const Tensor own = Tensor::full(dtype, {3}, rank + 1);
      const Tensor sum = premultiplied_sum(group, own, 2);
      EXPECT_EQ(sum.dtype(), dtype);
      EXPECT_EQ(values_of(sum.cast(DType::kFloat32)), Vector(3, 20));
      EXPECT_EQ(values_of(own.cast(DType::kFloat32)), Vector(3, static_cast<float>(rank + 1)));
    });
}

TEST(PremultipliedSumTest, KeepsWhatWouldNotFitIntoTheSum) {
  on_ranks(4, [](int /*rank*/, Communicator& group) {
    const Tensor large = Tensor::full(DType::kFloat16, {1}, 60'000);
    EXPECT_EQ(premultiplied_sum(group, large, 0.25).item(), 60'000);
  });
}

TEST(PremultipliedSumTest, OtherFactorsAreAnErrorOnAllRanksAndEndNothing) {
  on_ranks(3, [](int rank, Communicator& group) {
    const auto message = [&](double factor) {
      const Error error = error_of([&] { premultiplied_sum(group, tensor({1}), factor); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.message();
    };
    EXPECT_THAT(message(rank == 2 ? 0.5 : 0.25), HasSubstr("rank 0 by 0.25 and rank 2 by 0.5"));
    EXPECT_THAT(message(rank == 1 ? std::numeric_limits<double>::quiet_NaN() : 1),
                HasSubstr("rank 1 multiplies by nan"));
    EXPECT_EQ(error_of([&] { premultiplied_sum(group, Tensor::scalar(1), 2); }).code(),
              Code::kUnimplemented);
    EXPECT_THAT(values_of(premultiplied_sum(group, tensor({1, 2}), 2)), ElementsAre(6, 12));
  });
}

// --- Adasum

// What all ranks get of these vectors, one of each rank, over threads and over TCP.
Vector adasum_of(const std::vector<Vector>& vectors) {
  const auto size = static_cast<int>(vectors.size());
  std::mutex mutex;
  std::set<Vector> results;
  for (const bool over_tcp : {false, true})
    on_ranks(over_tcp ? testing::make_tcp_group(size) : make_in_process_communicators(size),
             [&](int rank, Communicator& group) {
               const Tensor sum = adasum(group, tensor(vectors[static_cast<size_t>(rank)]));
               const std::lock_guard lock(mutex);
               results.insert(values_of(sum));
             });
  EXPECT_EQ(results.size(), 1u);
  return *results.begin();
}

TEST(AdasumTest, AddsWhatIsAtRightAnglesAndAveragesWhatIsParallel) {
  EXPECT_THAT(adasum_of({{1, 0}, {0, 1}}), ElementsAre(1, 1));
  EXPECT_THAT(adasum_of({{2, 2}, {2, 2}}), ElementsAre(2, 2));
  EXPECT_THAT(adasum_of({{1, 0}, {1, 1}}), ElementsAre(1.25, 0.75));
  EXPECT_THAT(adasum_of({{1, 0}, {-1, 0}}), ElementsAre(0, 0));
  EXPECT_THAT(adasum_of({{3, 0}, {1, 0}}), ElementsAre(2, 0));
}

TEST(AdasumTest, AVectorWithoutLengthChangesNothing) {
  EXPECT_THAT(adasum_of({{0, 0}, {3, 4}}), ElementsAre(3, 4));
  EXPECT_THAT(adasum_of({{0, 0}, {0, 0}}), ElementsAre(0, 0));
  EXPECT_THAT(adasum_of({{}, {}}), ElementsAre());
  EXPECT_THAT(adasum_of({{5, 6}}), ElementsAre(5, 6));
}

TEST(AdasumTest, CombinesNeighboursFirst) {
  EXPECT_THAT(adasum_of({{1, 0}, {0, 1}, {1, 0}, {0, 1}}), ElementsAre(1, 1));
  // Averages in pairs, whose results are at right angles.
  EXPECT_THAT(adasum_of({{2, 0}, {2, 0}, {0, 2}, {0, 2}}), ElementsAre(2, 2));
  EXPECT_THAT(adasum_of({{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}),
              ElementsAre(1, 1, 1, 1));
}

// The definition, by recursion.
std::vector<double> expected_of(const std::vector<Vector>& vectors, size_t first, size_t count) {
  if (count == 1) return {vectors[first].begin(), vectors[first].end()};
  const auto a = expected_of(vectors, first, count / 2),
             b = expected_of(vectors, first + count / 2, count / 2);
  const auto dot = [](const std::vector<double>& x, const std::vector<double>& y) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    return sum;
  };
  std::vector<double> result;
  for (size_t i = 0; i < a.size(); ++i)
    result.push_back((1 - dot(a, b) / (2 * dot(a, a))) * a[i] +
                     (1 - dot(a, b) / (2 * dot(b, b))) * b[i]);
  return result;
}

TEST(AdasumTest, FollowsItsDefinitionForEveryPowerOfTwo) {
  for (const size_t ranks : {2, 4, 8}) {
    SCOPED_TRACE(str("seed ", ranks));
    RandomStream random(ranks);
    std::vector<Vector> vectors(ranks, Vector(100));
    for (Vector& vector : vectors)
      for (float& value : vector) value = static_cast<float>(random.below(2001)) / 1000 - 1;
    const auto expected = expected_of(vectors, 0, ranks);
    const Vector found = adasum_of(vectors);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
  }
}

TEST(AdasumTest, TakesEveryFloatingType) {
  on_ranks(4, [](int rank, Communicator& group) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      Tensor own = Tensor::zeros(DType::kFloat32, {4});
      own.data<float>()[rank] = 0.5f;
      const Tensor sum = adasum(group, own.cast(dtype));
      EXPECT_EQ(sum.dtype(), dtype);
      EXPECT_EQ(values_of(sum.cast(DType::kFloat32)), Vector(4, 0.5f));
    }
  });
}

TEST(AdasumTest, TakesNumbersWhoseSquaresAreOutOfRange) {
  using Numbers = std::vector<double>;
  const auto sum_of = [](const Numbers& a, const Numbers& b) {
    std::vector<Numbers> results(2);
    on_ranks(2, [&](int rank, Communicator& group) {
      const Tensor sum = adasum(group, Tensor::from(rank == 0 ? a : b, {2}));
      const auto values = sum.values<double>();
      results[static_cast<size_t>(rank)] = {values.begin(), values.end()};
    });
    EXPECT_EQ(results[0], results[1]);
    return results[0];
  };
  using Limits = std::numeric_limits<double>;
  for (const double x : {1e160, 1e-170, Limits::max(), Limits::denorm_min()}) {
    EXPECT_THAT(sum_of({x, -x}, {x, -x}), ElementsAre(x, -x));
    EXPECT_THAT(sum_of({x, 0}, {0, x}), ElementsAre(x, x));
  }
  EXPECT_THAT(sum_of({1e-170, 0}, {1e160, 1e160}), ElementsAre(DoubleEq(0.5e160), DoubleEq(1e160)));
}

TEST(AdasumTest, WhatDoesNotFitIsAnErrorOnAllRanksAndEndsNothing) {
  on_ranks(3, [](int rank, Communicator& group) {
    const auto message = [&](const Tensor& own, Code code) {
      const Error error = error_of([&] { adasum(group, own); });
      EXPECT_EQ(error.code(), code);
      return error.message();
    };
    EXPECT_THAT(message(Tensor::zeros(DType::kFloat32, rank == 1 ? Shape{2, 3} : Shape{3, 2}),
                        Code::kInvalidArgument),
                HasSubstr("rank 0 gave float32[3,2] and rank 1 gave float32[2,3]"));
    EXPECT_THAT(message(rank == 2 ? Tensor() : tensor({1}), Code::kInvalidArgument),
                HasSubstr("rank 2 gave a tensor that is not defined"));
    EXPECT_THAT(message(Tensor::scalar(1), Code::kUnimplemented), HasSubstr("int32"));
    EXPECT_THAT(message(tensor({1}), Code::kInvalidArgument), HasSubstr("not 3"));
    group.barrier();
  });
}

}  // namespace
}  // namespace cohort::collective
