#include "strategies/collective/mixing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/random.h"
#include "tests/collective/ranks.h"
#include "tests/strategies/collective/tcp/tcp_group.h"

namespace cohort::collective {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::on_ranks;
using Matrix = std::vector<std::vector<double>>;
using Values = std::vector<double>;  // one of each rank

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};

// Half of the distance from 1 to the next number.
double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return std::ldexp(1, -24);
    case DType::kFloat64:
      return std::ldexp(1, -53);
    case DType::kBFloat16:
      return std::ldexp(1, -8);
    default:
      return std::ldexp(1, -11);
  }
}

double mean_of(const Values& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// How far the rank that is farthest from the mean is from it.
double spread_of(const Values& values) {
  double spread = 0;
  for (const double value : values) spread = std::max(spread, std::abs(value - mean_of(values)));
  return spread;
}

using RowOf = std::function<MixingRow(int rank, int size, int64_t round)>;

RowOf ring(double neighbour_weight = 1.0 / 3) {
  return [=](int rank, int size, int64_t) { return ring_row(rank, size, neighbour_weight); };
}

RowOf random_pairs(uint64_t seed) {
  return [=](int rank, int size, int64_t round) {
    return random_pair_row(rank, size, seed, static_cast<uint64_t>(round));
  };
}

RowOf of_matrix(const Matrix& matrix) {
  return [=](int rank, int size, int64_t) { return matrix_row(matrix, rank, size); };
}

// What the ranks of `group` have after so many rounds.
Values mixed(const testing::Group& group, const Values& values, const RowOf& row_of,
             DType dtype = DType::kFloat32, int64_t rounds = 1) {
  Values results(values.size());
  on_ranks(group, [&](int rank, Communicator& communicator) {
    const auto own = static_cast<size_t>(rank);
    // Several elements and tensors, one of them without any.
    std::vector<Tensor> tensors = {Tensor::full(dtype, {3, 700}, values[own]),
                                   Tensor::zeros(dtype, {0, 2}),
                                   Tensor::full(dtype, {}, values[own])};
    for (int64_t round = 0; round < rounds; ++round)
      mix(communicator, tensors, row_of(rank, communicator.size(), round), round);
    results[own] = tensors[2].item();
    const Tensor all = tensors[0].cast(DType::kFloat64);
    for (const double value : all.values<double>()) ASSERT_EQ(value, results[own]);
  });
  return results;
}

Values mixed(const Values& values, const RowOf& row_of, DType dtype = DType::kFloat32,
             int64_t rounds = 1) {
  return mixed(make_in_process_communicators(static_cast<int>(values.size())), values, row_of,
               dtype, rounds);
}

// The matrix of which these are the rows.
Matrix matrix_of(const RowOf& row_of, int size, int64_t round = 0) {
  Matrix matrix(static_cast<size_t>(size), std::vector<double>(static_cast<size_t>(size)));
  for (int rank = 0; rank < size; ++rank) {
    auto& row = matrix[static_cast<size_t>(rank)];
    const MixingRow weights = row_of(rank, size, round);
    row[static_cast<size_t>(rank)] = weights.own_weight;
    for (const Neighbour& neighbour : weights.neighbours)
      row[static_cast<size_t>(neighbour.rank)] += neighbour.weight;
  }
  return matrix;
}

std::vector<size_t> random_permutation(size_t size, RandomStream& random) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = size; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

// A mean of permutations, as every doubly stochastic matrix is one.
Matrix random_matrix(size_t size, RandomStream& random) {
  constexpr int kPermutations = 3;
  Matrix matrix(size, std::vector<double>(size));
  for (int p = 0; p < kPermutations; ++p) {
    const auto order = random_permutation(size, random);
    for (size_t r = 0; r < size; ++r) matrix[r][order[r]] += 1.0 / kPermutations;
  }
  return matrix;
}

Values random_values(size_t size, DType dtype, RandomStream& random) {
  Values values;
  for (size_t r = 0; r < size; ++r)
    values.push_back(Tensor::scalar(random.uniform()).cast(dtype).item());
  return values;
}

// --- Rows

TEST(MixingRowTest, RingsAndPairsAreDoublyStochastic) {
  for (const int size : {1, 2, 3, 4, 5, 7})
    for (const RowOf& row_of : {ring(), ring(0.5), ring(0.01), random_pairs(1)}) {
      const Matrix matrix = matrix_of(row_of, size);
      for (int rank = 0; rank < size; ++rank) EXPECT_NO_THROW(matrix_row(matrix, rank, size));
    }
}

TEST(MixingRowTest, ARingHasANeighbourOnEachSideAndOfTwoRanksOne) {
  EXPECT_EQ(matrix_of(ring(0.25), 1), (Matrix{{1}}));
  EXPECT_EQ(matrix_of(ring(0.25), 2), (Matrix{{0.75, 0.25}, {0.25, 0.75}}));
  EXPECT_EQ(matrix_of(ring(0.25), 3),
            (Matrix{{0.5, 0.25, 0.25}, {0.25, 0.5, 0.25}, {0.25, 0.25, 0.5}}));
  EXPECT_EQ(matrix_of(ring(0.25), 4)[1], (std::vector<double>{0.25, 0.5, 0.25, 0}));
  EXPECT_EQ(matrix_of(ring(0.25), 4)[3], (std::vector<double>{0.25, 0, 0.25, 0.5}));
}

TEST(MixingRowTest, RandomPairsAreAMatching) {
  for (const int size : {1, 2, 3, 4, 5, 7, 8}) {
    std::set<Matrix> matchings;
    for (int64_t round = 0; round < 50; ++round) {
      const Matrix matrix = matrix_of(random_pairs(9), size, round);
      matchings.insert(matrix);
      int alone = 0;
      for (size_t r = 0; r < matrix.size(); ++r) {
        alone += matrix[r][r] == 1;
        for (size_t s = 0; s < matrix.size(); ++s) EXPECT_EQ(matrix[r][s], matrix[s][r]);
        if (matrix[r][r] != 1) {
          EXPECT_EQ(std::count(matrix[r].begin(), matrix[r].end(), 0.5), 2) << round;
        }
      }
      EXPECT_EQ(alone, size % 2) << "round " << round << " of " << size << " ranks";
    }
    if (size > 2) {
      EXPECT_GE(matchings.size(), 3u) << "rounds have pairs of their own";
    }
  }
}

TEST(MixingRowTest, RandomPairsFollowFromTheirSeed) {
  const auto rounds = [](uint64_t seed) {
    std::vector<Matrix> matrices;
    for (int64_t round = 0; round < 10; ++round)
      matrices.push_back(matrix_of(random_pairs(seed), 8, round));
    return matrices;
  };
  EXPECT_EQ(rounds(9), rounds(9));
  EXPECT_NE(rounds(9), rounds(10));
}

TEST(MixingRowTest, AMatrixThatMayNotBeSaysWhatIsWrong) {
  const auto message = [](const Matrix& matrix) {
    const Error error = error_of([&] { matrix_row(matrix, 0, 2); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  };
  EXPECT_THAT(message({}), HasSubstr("a row for each of the 2 ranks, got 0"));
  EXPECT_THAT(message({{1}}), HasSubstr("a row for each of the 2 ranks, got 1"));
  EXPECT_THAT(message({{0.5, 0.5}, {1}}), HasSubstr("row 1 has 1"));
  EXPECT_THAT(message({{0.5, 0.5}, {0.5, 0.5, 0}}), HasSubstr("row 1 has 3"));
  EXPECT_THAT(message({{1.5, -0.5}, {-0.5, 1.5}}), HasSubstr("weight -0.5"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message({{0.5, 0.5}, {nan, 0.5}}), HasSubstr("weight nan"));
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_THAT(message({{0.5, infinite}, {0.5, 0.5}}), HasSubstr("weight inf"));
  EXPECT_THAT(message({{0.5, 0.5}, {0.5, 0.25}}), HasSubstr("row 1 of the matrix adds up to 0.75"));
  EXPECT_THAT(message({{0.5, 0.5}, {1, 0}}), HasSubstr("column 0 of the matrix adds up to 1.5"));
  EXPECT_THAT(message({{0.4999, 0.5}, {0.5, 0.4999}}), HasSubstr("row 0"));
}

TEST(MixingRowTest, WeightsAndRanksOutOfRangeAreRefused) {
  for (const double weight : {0.0, -0.1, 0.51, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(error_of([&] { ring_row(0, 3, weight); }).code(), Code::kInvalidArgument) << weight;
  const std::pair<int, int> out_of_range[] = {{-1, 3}, {3, 3}, {0, 0}};
  for (const auto& [rank, size] : out_of_range) {
    EXPECT_EQ(error_of([&] { ring_row(rank, size); }).code(), Code::kInvalidArgument);
    EXPECT_EQ(error_of([&] { random_pair_row(rank, size, 0, 0); }).code(), Code::kInvalidArgument);
    EXPECT_EQ(error_of([&] { matrix_row({}, rank, size); }).code(), Code::kInvalidArgument);
  }
}

// --- Mixing

TEST(MixTest, TakesTheMeanOfNeighboursOverThreadsAndOverTcp) {
  const Values values = {0, 3, 6, 9};
  EXPECT_THAT(mixed(values, ring()), ElementsAre(4, 3, 6, 5));
  EXPECT_THAT(mixed(testing::make_tcp_group(4), values, ring()), ElementsAre(4, 3, 6, 5));
}

// A sum of rounded products would be off by more than the one rounding of the result.
TEST(MixTest, FollowsItsMatrixAndKeepsTheMeanInEveryDType) {
  for (const DType dtype : kDTypes)
    for (const size_t size : {1, 2, 3, 4, 5, 7}) {
      SCOPED_TRACE(str(dtype, " on ", size, " ranks"));
      RandomStream random(size);
      const Matrix matrix = random_matrix(size, random);
      const Values values = random_values(size, dtype, random);
      const Values results = mixed(values, of_matrix(matrix), dtype);
      const double tolerance = rounding_of(dtype) + 1e-14;
      for (size_t r = 0; r < size; ++r)
        EXPECT_NEAR(results[r],
                    std::inner_product(values.begin(), values.end(), matrix[r].begin(), 0.0),
                    tolerance);
      EXPECT_NEAR(mean_of(results), mean_of(values), tolerance);
    }
}

TEST(MixTest, RingsAndRandomPairsKeepTheMean) {
  for (const size_t size : {1, 2, 3, 4, 5, 7})
    for (const RowOf& row_of : {ring(), random_pairs(size)}) {
      RandomStream random(size);
      const Values values = random_values(size, DType::kFloat32, random);
      EXPECT_NEAR(mean_of(mixed(values, row_of, DType::kFloat32, 3)), mean_of(values), 1e-6);
    }
}

TEST(MixTest, AgainAndAgainComesToTheMean) {
  for (const size_t size : {2, 3, 5, 7})
    for (const RowOf& row_of : {ring(), random_pairs(3)}) {
      Values values(size);
      std::iota(values.begin(), values.end(), 0.0);
      const Values results = mixed(values, row_of, DType::kFloat64, 150);
      EXPECT_LT(spread_of(results), 1e-6) << size << " ranks";
      EXPECT_NEAR(mean_of(results), mean_of(values), 1e-12);
    }
}

TEST(MixTest, EqualValuesStayWhatTheyAre) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const double tenth = Tensor::scalar(0.1).cast(dtype).item();
    EXPECT_EQ(mixed(Values(5, tenth), ring(), dtype, 20), Values(5, tenth));
  }
}

TEST(MixTest, AValueWithoutWeightIsNotLookedAt) {
  const double infinite = std::numeric_limits<double>::infinity();  // 0 times it is no number
  const Matrix one_to_the_next = {{0, 1, 0}, {0, 0, 1}, {1, 0, 0}};
  EXPECT_THAT(mixed({infinite, 2, 3}, of_matrix(one_to_the_next)), ElementsAre(2, 3, infinite));
}

// The errors of all ranks, over threads and over TCP, each of which mixes what `tensors_of` gives
// it, in a ring.
std::vector<std::string> refusals(
    int size, const std::function<std::vector<Tensor>(int)>& tensors_of,
    const std::function<int64_t(int)>& round_of = [](int) { return int64_t{0}; }) {
  std::vector<std::string> messages;
  std::mutex mutex;
  for (const bool over_tcp : {false, true})
    on_ranks(over_tcp ? testing::make_tcp_group(size) : make_in_process_communicators(size),
             [&](int rank, Communicator& group) {
               auto tensors = tensors_of(rank);
               std::vector<Tensor> before;
               for (const Tensor& tensor : tensors)
                 before.push_back(tensor.defined() ? tensor.clone() : Tensor());
               const Error error =
                   error_of([&] { mix(group, tensors, ring_row(rank, size), round_of(rank)); });
               EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
               EXPECT_EQ(error_of([&] { group.barrier(); }).code(), error.code())
                   << "the group has ended";
               for (size_t i = 0; i < tensors.size(); ++i) {
                 if (tensors[i].defined()) {
                   EXPECT_EQ(to_string(tensors[i]), to_string(before[i]));
                 }
               }
               const std::lock_guard lock(mutex);
               messages.push_back(error.message());
             });
  return messages;
}

TEST(MixTest, WhatNeighboursHaveOtherwiseIsAnErrorOnAllRanksThatNamesBoth) {
  const auto zeros = [](Shape shape) { return Tensor::zeros(DType::kFloat32, shape); };
  EXPECT_THAT(refusals(4,
                       [&](int rank) {
                         return std::vector{zeros({1}), zeros(rank == 2 ? Shape{2, 3} : Shape{6})};
                       }),
              Each(AllOf(HasSubstr("tensor 1"), HasSubstr("float32[2,3] on rank 2"),
                         HasSubstr("float32[6]"))));
  EXPECT_THAT(refusals(4,
                       [&](int rank) {
                         return std::vector{
                             Tensor::zeros(rank == 1 ? DType::kFloat16 : DType::kBFloat16, {2})};
                       }),
              Each(AllOf(HasSubstr("float16[2] on rank 1"), HasSubstr("bfloat16[2] on rank"))));
  EXPECT_THAT(
      refusals(3, [&](int rank) { return std::vector<Tensor>(rank == 0 ? 2 : 1, zeros({1})); }),
      Each(HasSubstr("rank 0 mixes 2 tensors in round 0 and rank")));
  EXPECT_THAT(refusals(
                  3, [&](int) { return std::vector{zeros({1})}; },
                  [](int rank) { return rank == 2 ? 8 : 7; }),
              Each(HasSubstr("and rank 2 mixes 1 tensors in round 8")));
}

TEST(MixTest, IntegersAndWhatIsNoTensorAreRefused) {
  EXPECT_THAT(refusals(3, [](int) { return std::vector{Tensor::zeros(DType::kInt32, {2})}; }),
              Each(HasSubstr("int32[2]; weighted means are of float32, float64")));
  EXPECT_THAT(
      refusals(3,
               [](int rank) { return std::vector{rank == 1 ? Tensor() : Tensor::scalar(1.0f)}; }),
      Each(HasSubstr("rank 1 gave tensor 0 to mix, which is not defined")));
}

TEST(MixTest, RowsThatMayNotBeEndTheGroup) {
  const auto message = [](const RowOf& row_of) {
    std::string common;
    std::mutex mutex;
    on_ranks(3, [&](int rank, Communicator& group) {
      Tensor value = Tensor::scalar(1.0f);
      const Error error = error_of([&] { mix(group, {&value, 1}, row_of(rank, 3, 0)); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      const std::lock_guard lock(mutex);
      common = error.message();
    });
    return common;
  };
  const auto row = [&](MixingRow odd) {
    return message(
        [=](int rank, int size, int64_t) { return rank == 0 ? odd : ring_row(rank, size); });
  };
  EXPECT_THAT(row({0.5, {{0, 0.5}}}), HasSubstr("which is itself"));
  EXPECT_THAT(row({0.5, {{1, 0.25}, {1, 0.25}}}), HasSubstr("more than once"));
  EXPECT_THAT(row({0.5, {{3, 0.5}}}), HasSubstr("there are ranks 0 to 2"));
  EXPECT_THAT(row({0.5, {{-1, 0.5}}}), HasSubstr("rank -1"));
  EXPECT_THAT(row({0.5, {{1, 0.25}, {2, 0.5}}}), HasSubstr("add up to 1.25"));
  EXPECT_THAT(row({1.5, {{1, -0.5}}}), HasSubstr("weight -0.5"));
  // Rows of which each is in order, by which the mean would change.
  EXPECT_THAT(row(ring_row(0, 3, 0.25)), HasSubstr("and its neighbours give to its values"));
}

TEST(MixTest, APeerThatHasGoneIsNamed) {
  auto group = make_in_process_communicators(3);
  group.erase(group.begin() + 1);
  on_ranks(group, [](int rank, Communicator& communicator) {
    Tensor value = Tensor::scalar(1.0f);
    const Error error = error_of([&] { mix(communicator, {&value, 1}, ring_row(rank, 3)); });
    EXPECT_EQ(error.code(), Code::kUnavailable);
    EXPECT_THAT(error.message(), HasSubstr("rank 1"));
    EXPECT_EQ(value.item(), 1);
  });
}

TEST(MixTest, APeerThatDoesNotComeIsNamedWhenTheLimitIsOver) {
  on_ranks(testing::make_tcp_group(3, {.timeout = std::chrono::seconds(2)}),
           [](int rank, Communicator& group) {
             if (rank == 1) return;
             Tensor value = Tensor::scalar(1.0f);
             const Error error = error_of([&] { mix(group, {&value, 1}, ring_row(rank, 3)); });
             EXPECT_EQ(error.code(), Code::kDeadlineExceeded);
             EXPECT_THAT(error.message(), HasSubstr("rank 1"));
             EXPECT_EQ(value.item(), 1);
           });
}

// --- Averages

TEST(AverageTest, GivesAllRanksTheMean) {
  for (const DType dtype : kDTypes)
    on_ranks(4, [&](int rank, Communicator& group) {
      std::vector<Tensor> tensors = {Tensor::full(dtype, {3}, rank),
                                     Tensor::full(DType::kFloat64, {}, 2 * rank),
                                     Tensor::full(dtype, {2, 2}, -rank)};
      average(group, tensors, 5);
      const Values means = {1.5, 3, -1.5};
      for (size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ(tensors[i].dtype(), i == 1 ? DType::kFloat64 : dtype);
        const Tensor all = tensors[i].cast(DType::kFloat64);
        for (const double value : all.values<double>()) EXPECT_EQ(value, means[i]);
      }
    });
}

TEST(AverageTest, WhatRanksHaveOtherwiseIsAnErrorOnAll) {
  const auto message = [](const std::function<std::vector<Tensor>(int)>& tensors_of, int odd = -1) {
    std::string common;
    std::mutex mutex;
    on_ranks(3, [&](int rank, Communicator& group) {
      auto tensors = tensors_of(rank);
      const Error error = error_of([&] { average(group, tensors, rank == odd ? 2 : 1); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_EQ(error_of([&] { group.barrier(); }).code(), error.code());
      const std::lock_guard lock(mutex);
      common = error.message();
    });
    return common;
  };
  const Tensor one = Tensor::scalar(1.0f);
  EXPECT_THAT(message([&](int) { return std::vector{one.clone()}; }, 2),
              HasSubstr("rank 0 mixes 1 tensors in round 1 and rank 2 mixes 1 tensors in round 2"));
  EXPECT_THAT(
      message([&](int rank) { return std::vector<Tensor>(rank == 1 ? 0 : 1, one.clone()); }),
      HasSubstr("rank 0 mixes 1 tensors in round 1 and rank 1 mixes 0 tensors in round 1"));
  EXPECT_THAT(message([&](int rank) {
                return std::vector{Tensor::zeros(DType::kFloat32, rank == 1 ? Shape{2} : Shape{3})};
              }),
              HasSubstr("tensor 0 is float32[3] on rank 0 and float32[2] on rank 1"));
  // Of each dtype all have the same.
  EXPECT_THAT(message([](int rank) {
                std::vector tensors = {Tensor::zeros(DType::kFloat32, {3}),
                                       Tensor::zeros(DType::kFloat64, {3})};
                if (rank == 2) std::swap(tensors[0], tensors[1]);
                return tensors;
              }),
              HasSubstr("tensor 0 is float32[3] on rank 0 and float64[3] on rank 2"));
  EXPECT_THAT(message([&](int) { return std::vector{Tensor::scalar(int64_t{1})}; }),
              HasSubstr("int64"));
}

}  // namespace
}  // namespace cohort::collective
