// Several rows of a table, combined into one.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/graph/gradients.h"
#include "core/ops/embedding_ops.h"
#include "core/ops/math_ops.h"
#include "tests/testing/evaluate.h"
#include "tests/testing/gradient_check.h"

namespace cohort {
namespace {

using namespace ops;
using testing::check_gradients;
using Values = std::vector<Value>;
using Numbers = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor numbers(const Numbers& values, const Shape& shape) {
  return Tensor::from<double>(values, shape);
}

// Rows 1 2, 3 4, ..., 9 10.
Tensor table() { return numbers({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 2}); }

Numbers run(const testing::GraphBuilder& fn, const std::vector<Tensor>& inputs) {
  Graph graph;
  const GraphScope scope(graph);
  Values values;
  for (const Tensor& input : inputs) values.push_back(graph.add_input("x", input.spec()));
  const Tensor result = testing::evaluate({fn(values)}, inputs)[0];
  return {result.values<double>().begin(), result.values<double>().end()};
}

Value plain(const Values& v, Combiner combiner = Combiner::kMean) {
  return embedding_lookup_sparse(v[0], v[1], v.size() > 2 ? v[2] : Value(), combiner);
}
testing::GraphBuilder plain(Combiner combiner) {
  return [=](const Values& v) { return plain(v, combiner); };
}
testing::GraphBuilder safe(const SafeLookupOptions& options = {}) {
  return [=](const Values& v) {
    return safe_embedding_lookup_sparse(v[0], v[1], v.size() > 2 ? v[2] : Value(), options);
  };
}

const Tensor kIds = Tensor::from<int64_t>({0, 3, -1, 4, -1, -1, -1, -1, 1}, {3, 3});

TEST(SparseLookup, CombinesTheRowsOfEachList) {
  EXPECT_EQ(run(plain(Combiner::kMean), {table(), kIds}), (Numbers{4, 5, 9, 10, 3, 4}));
  EXPECT_EQ(run(plain(Combiner::kSum), {table(), kIds}), (Numbers{8, 10, 9, 10, 3, 4}));
  const double root = std::sqrt(2.0);
  EXPECT_EQ(run(plain(Combiner::kSqrtN), {table(), kIds}),
            (Numbers{8 / root, 10 / root, 9, 10, 3, 4}));
}

TEST(SparseLookup, WeighsThem) {
  const Tensor ids = Tensor::from<int64_t>({0, 3, 3, -1}, {2, 2});
  const std::vector<Tensor> inputs = {table(), ids, numbers({3, 4, -2, kNan}, {2, 2})};
  EXPECT_EQ(run(plain(Combiner::kSum), inputs), (Numbers{31, 38, -14, -16}));
  EXPECT_EQ(run(plain(Combiner::kMean), inputs), (Numbers{31.0 / 7, 38.0 / 7, 7, 8}));
  EXPECT_EQ(run(plain(Combiner::kSqrtN), inputs), (Numbers{31.0 / 5, 38.0 / 5, -7, -8}));
}

TEST(SparseLookup, OfNothingIsZero) {
  const Tensor weights = numbers({1, -1, 0, 0}, {2, 2});
  EXPECT_EQ(
      run(plain(Combiner::kMean), {table(), Tensor::from<int64_t>({0, 1, -1, 2}, {2, 2}), weights}),
      (Numbers{0, 0, 0, 0}));
  const Tensor none = Tensor::from<int64_t>({-1, -1}, {1, 2});
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN}) {
    EXPECT_EQ(run(plain(combiner), {table(), none}), (Numbers{0, 0}));
    EXPECT_EQ(run(safe({.combiner = combiner}), {table(), Tensor::zeros(DType::kInt64, {1, 0})}),
              (Numbers{0, 0}));
  }
}

TEST(SparseLookup, TakesIdsOfAnyRankAndType) {
  const Tensor small = Tensor::from<int32_t>({1, -1, 1, 2}, {2, 1, 2});
  EXPECT_EQ(run(safe(), {table(), small}), (Numbers{3, 4, 4, 5}));
  const Tensor weights = numbers({2, -1, 1, 0}, {2, 2}),
               bytes = Tensor::from<uint8_t>({1, 0, 3, 4}, {2, 2});
  EXPECT_EQ(run(safe(), {table(), bytes, weights}), (Numbers{3, 4, 7, 8}));
  EXPECT_EQ(run(safe(), {numbers({5, 7, 9}, {3}), Tensor::from<int64_t>({0, 2}, {2})}),
            (Numbers{7}));
}

TEST(SafeLookup, LeavesOutWhatCannotBeLookedUp) {
  const Tensor ids = Tensor::from<int64_t>({0, -1, -1, 4, -1, -1, -1, -1, 1}, {3, 3});
  const Tensor weights = numbers({1, 1, 0, -1, 0, 0, 0, 0, 1}, {3, 3});
  EXPECT_EQ(run(safe(), {table(), ids, weights}), (Numbers{1, 2, 0, 0, 3, 4}));
  EXPECT_EQ(run(safe({.combiner = Combiner::kSum}), {table(), ids, weights}),
            (Numbers{1, 2, -9, -10, 3, 4}))
      << "a sum has use for weights of any sign";
  const Tensor odd = Tensor::from<int64_t>({-7, 3, 2, 0}, {1, 4});
  EXPECT_EQ(run(safe(), {table(), odd, numbers({1, 2, kNan, 0}, {1, 4})}), (Numbers{7, 8}));
}

TEST(SafeLookup, HasADefaultForEmptyLists) {
  const Tensor ids = Tensor::from<int64_t>({-1, 3, -1, -5, 4, 0}, {3, 2});
  EXPECT_EQ(run(safe({.default_id = 1}), {table(), ids}), (Numbers{7, 8, 3, 4, 5, 6}));
  const Tensor weights = numbers({1, 2, 3, 4, -1, 0}, {3, 2});
  for (const Combiner combiner : {Combiner::kMean, Combiner::kSqrtN})
    EXPECT_EQ(run(safe({.combiner = combiner, .default_id = 1}), {table(), ids, weights}),
              (Numbers{7, 8, 3, 4, 3, 4}));
}

TEST(SparseLookupGradient, AgreesWithDifferences) {
  const Tensor ids = Tensor::from<int64_t>({0, 3, 3, 4, -1, -1, -1, -1, -1, -1, 3, 1}, {4, 3});
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN}) {
    check_gradients([&](const Values& v) { return plain(v, combiner); }, {{{5, 2}}}, {ids});
    const auto weighted = [&](const Values& v) { return plain({v[0], v[2], v[1]}, combiner); };
    check_gradients(weighted, {{{5, 2}}, {{4, 3}, 0.5, 1.5}}, {ids});
    const auto defaulting = [&](const Values& v) {
      return safe({.combiner = combiner, .default_id = 2})({v[0], v[2], v[1]});
    };
    check_gradients(defaulting, {{{5, 2, 2}}, {{4, 3}, 0.5, 1.5}}, {ids});
    testing::check_second_gradients(
        [&](const Values& v) {
          return plain({square(v[0]), v[2], v[1]}, combiner);
        },
        {{{5, 1}}, {{4, 3}, 0.5, 1.5}}, {ids});
  }
}

TEST(SparseLookupGradient, OfNothingIsZero) {
  const Tensor ids = Tensor::from<int64_t>({0, 3, -1, -1}, {2, 2});
  for (const Combiner combiner : {Combiner::kMean, Combiner::kSqrtN}) {
    const auto gradient_of = [&](int input) {
      return [=](const Values& v) {
        return gradients(reduce_sum(plain(v, combiner)), {v[input]})[0].values;
      };
    };
    const std::vector<Tensor> inputs = {table(), ids, numbers({0, 0, 1, 0}, {2, 2})};
    EXPECT_EQ(run(gradient_of(2), inputs), (Numbers{0, 0, 0, 0}));
    for (const double of_table : run(gradient_of(0), inputs)) EXPECT_EQ(of_table, 0);
  }
}

TEST(SparseLookupGradient, IsSparse) {
  Graph graph;
  const GraphScope scope(graph);
  const auto variable = std::make_shared<testing::TestVariable>("table", table());
  const Value params = graph.add("ReadVariable", {}, {}, variable).output(),
              ids = graph.add_input("ids", {DType::kInt32, {4, 3}});
  const Gradient gradient = gradients(reduce_sum(safe()({params, ids})), {params})[0];
  ASSERT_TRUE(gradient.sparse());
  EXPECT_EQ(gradient.values.shape(), Shape({12, 2}));
}

TEST(SparseLookup, RefusesWhatDoesNotFit) {
  const auto message = [](const testing::GraphBuilder& fn, const std::vector<Tensor>& inputs) {
    try {
      run(fn, inputs);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("no error");
  };
  const auto expect = [&](const std::string& found, const std::string& part) {
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  expect(message(safe(), {table(), table()}),
         "safe_embedding_lookup_sparse: ids must be integers, not float64");
  expect(message(plain(Combiner::kSum), {table(), table()}),
         "embedding_lookup_sparse: ids must be integers, not float64");
  expect(message(safe(), {table(), kIds, numbers({1, 1, 1}, {3})}),
         "weights must be float64[3,3], is float64[3]");
  expect(message(safe(), {table(), kIds, Tensor::zeros(DType::kFloat32, {3, 3})}),
         "weights must be float64[3,3], is float32[3,3]");
  expect(message(safe({.default_id = 5}), {table(), kIds}), "default id 5");
  expect(message(safe({.default_id = -1}), {table(), kIds}), "default id -1");
  expect(message(safe({.default_id = 1}), {table(), Tensor::zeros(DType::kInt64, {2, 0})}),
         "no room");
  expect(message(safe(), {table(), Tensor::from<int64_t>({5}, {1})}), "5");
  expect(message(plain(Combiner::kSum), {table(), Tensor::from<int64_t>({-2}, {1})}), "-2");
}

}  // namespace
}  // namespace cohort
