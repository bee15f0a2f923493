#include "core/distribute/step_function.h"

#include <atomic>
#include <limits>
#include <stdexcept>
#include <thread>

#include "core/base/random.h"
#include "core/data/element.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/random_ops.h"
#include "core/runtime/function.h"
#include "tests/distribute/testing.h"

namespace cohort {
namespace {

using data::Batch;
using testing::elements;
using testing::expect_error;
using testing::first_cpus;
using testing::floats;

class StepFunctionTest : public testing::ReplicasTest {
 protected:
  // A batch of `rows` rows for each replica: x counts up over all of them, y is twice that.
  PerReplica<Batch> batches(const std::vector<int64_t>& rows) const {
    std::vector<Batch> parts;
    float next = 0;
    for (const int64_t n : rows) {
      Tensor x(DType::kFloat32, {n}), y(DType::kFloat32, {n});
      for (int64_t i = 0; i < n; ++i, ++next) {
        x.data<float>()[i] = next;
        y.data<float>()[i] = 2 * next;
      }
      parts.push_back({{"x", x}, {"y", y}});
    }
    return parts;
  }
};
COHORT_FOR_ALL_REPLICAS(StepFunctionTest);

TEST_P(StepFunctionTest, OfAnEmptyBodyIsRefused) {
  expect_error(Code::kInvalidArgument, {"function \"half\"", "empty"},
               [this] { strategy.function(std::function<Value(Value)>(), "half"); });
}

Value twice(Value x) { return x * 2.0; }

TEST_P(StepFunctionTest, IsMadeOfAnythingWithOneListOfParameters) {
  int traced = 0;
  const auto first = [&](const auto& step) { return strategy.run(step, 3.0F)[0].item(); };
  EXPECT_EQ(first(strategy.function(twice)), 6);
  EXPECT_EQ(first(strategy.function(&twice)), 6);
  EXPECT_EQ(first(strategy.function(std::function<Value(const Value&)>(twice))), 6);
  EXPECT_EQ(first(strategy.function([](Value x) noexcept { return x * 3.0; })), 9);
  EXPECT_EQ(first(strategy.function([&traced](Value x) mutable { return ++traced, x * 4.0; })), 12);
  EXPECT_EQ(traced, 1);
}

TEST_P(StepFunctionTest, ABatchIsDividedForAStepThatTakesOne) {
  const auto step = strategy.function([](const BatchValues& batch) {
    return std::vector<Value>{batch["y"] - batch["x"],
                              ops::constant(Tensor::scalar(batch.global_rows()))};
  });
  constexpr int64_t kRows = 5;
  const Batch whole = batches({kRows})[0];
  const auto parts = strategy.split_batch(whole);
  const auto results = strategy.run(step, parts);
  EXPECT_EQ(elements(strategy.gather(results[0], 0)), elements(whole["x"]));
  for (int r = 0; r < replicas(); ++r) {
    EXPECT_EQ(parts[r].rows(), split_rows(kRows, replicas())[r]);
    EXPECT_EQ(results[1][r].item(), kRows);
  }
  expect_error(Code::kInvalidArgument, {"empty"}, [&] { strategy.split_batch(Batch()); });
}

TEST_P(StepFunctionTest, EachReplicaGetsItsOwnIdAndTheSameTensor) {
  const auto step = strategy.function([](Value x) {
    const Value id = get_replica_context()->replica_id_in_sync_group();
    return std::vector<Value>{id, x * 2.0};
  });
  const auto results = strategy.run(step, 3.0f);
  ASSERT_EQ(results.size(), 2u);
  for (int r = 0; r < replicas(); ++r) {
    EXPECT_EQ(results[0][r].item(), r);
    EXPECT_EQ(results[1][r].item(), 6);
  }
  EXPECT_EQ(strategy.reduce("SUM", results[0]).item(), replicas() * (replicas() - 1) / 2);
}

TEST_P(StepFunctionTest, ArgumentsMayBeTensorsNumbersAndOnesOfEachReplica) {
  const auto step = strategy.function([](Value a, Value b, Value c, Value d) {
    return ops::cast(a, DType::kFloat64) + ops::cast(b, DType::kFloat64) +
           ops::cast(c, DType::kFloat64) + ops::cast(d, DType::kFloat64);
  });
  std::vector<int> numbers;
  for (int r = 0; r < replicas(); ++r) numbers.push_back(100 * r);
  const auto sums =
      strategy.run(step, Tensor::scalar(1.0f), each([](int r) { return Tensor::scalar(10.0 * r); }),
                   size_t{1000}, PerReplica<int>(numbers));
  for (int r = 0; r < replicas(); ++r) EXPECT_EQ(sums[r].item(), 1001 + 110 * r);
}

// Vectors keep bools as bits, which no reference is to.
TEST_P(StepFunctionTest, AnArgumentOfEachReplicaMayBeABool) {
  const auto step =
      strategy.function([](Value is_even) { return ops::cast(is_even, DType::kFloat32); });
  std::vector<bool> even;
  for (int r = 0; r < replicas(); ++r) even.push_back(r % 2 == 0);
  const auto seen = strategy.run(step, PerReplica<bool>(even));
  for (int r = 0; r < replicas(); ++r) EXPECT_EQ(seen[r].item(), r % 2 == 0 ? 1 : 0) << r;
}

TEST_P(StepFunctionTest, AReplicaThatIsNotThereHasNoValue) {
  auto values = each([](int r) { return floats({static_cast<float>(r)}); });
  const auto past = static_cast<size_t>(replicas());
  EXPECT_EQ(elements(values[past - 1])[0], replicas() - 1);
  expect_error(Code::kInvalidArgument, {str("no value of replica ", past)},
               [&] { values[past] = floats({0}); });
}

TEST_P(StepFunctionTest, ATensorWithoutAValueIsNamedByInputAndReplica) {
  const auto step = strategy.function([](Value x, Value y) { return x + y; }, "sum");
  auto values = each([](int) { return floats({1}); });
  values[static_cast<size_t>(replicas() - 1)] = Tensor();
  expect_error(Code::kInvalidArgument,
               {"\"sum\"", str("input 1 of replica ", replicas() - 1, " has no value")},
               [&] { strategy.run(step, floats({1}), values); });
  expect_error(Code::kInvalidArgument, {"\"sum\"", "input 0 of replica 0 has no value"},
               [&] { strategy.run(step, Tensor(), floats({1})); });
  EXPECT_EQ(step.trace_count(), 0);
}

TEST_P(StepFunctionTest, NumbersThatDoNotFitInt64AreRefused) {
  const auto step = strategy.function([](Value x) { return x; });
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(strategy.run(step, kLargest)[0].data<int64_t>()[0],
            std::numeric_limits<int64_t>::max());
  expect_error(Code::kInvalidArgument, {"9223372036854775808", "int64"},
               [&] { strategy.run(step, kLargest + 1); });
}

TEST_P(StepFunctionTest, MultipliesInItsPrecision) {
  const auto square = [](Value x) { return ops::matmul(x, x); };
  const Tensor x = Tensor::from<float>({1 + 0x1p-9f}, {1, 1});  // between two bfloat16, a float16
  const double exact = x.item() * x.item();
  for (const auto& [precision, expected] :
       {std::pair(Precision::kFloat32, exact), std::pair(Precision::kMixedBFloat16, 1.0),
        std::pair(Precision::kMixedFloat16, exact)})
    for (const Tensor& found : strategy.run(strategy.function(square, "square", precision), x))
      EXPECT_EQ(found.item(), expected) << precision_name(precision);
}

TEST_P(StepFunctionTest, ABodyMayReturnNothing) {
  const auto total = strategy.create_variable({.spec = {DType::kFloat32, {}},
                                               .initial_value = [] { return Tensor::scalar(0.0f); },
                                               .synchronization = Synchronization::kOnRead,
                                               .aggregation = Aggregation::kSum});
  const auto step = strategy.function([&](Value x) { total->assign_add(x); });
  static_assert(std::is_void_v<decltype(strategy.run(step, 1.0f))>);
  strategy.run(step, 2.0f);
  strategy.run(step, 3.0f);
  EXPECT_EQ(total->value().item(), 5 * replicas());
}

TEST_P(StepFunctionTest, BatchesComeAsValuesByName) {
  const auto step = strategy.function([](const BatchValues& batch, Value factor) {
    EXPECT_EQ(batch.names(), (std::vector<std::string>{"x", "y"}));
    EXPECT_TRUE(batch.contains("y"));
    EXPECT_FALSE(batch.contains("z"));
    return ops::reduce_sum(batch["x"] + batch["y"]) * factor;
  });
  const auto sums = strategy.run(step, batches(std::vector<int64_t>(replicas(), 2)), 10.0f);
  for (int r = 0; r < replicas(); ++r) EXPECT_EQ(sums[r].item(), 30 * (4 * r + 1));
  // A batch that is not divided goes to every replica as it is.
  for (const Tensor& sum :
       strategy.run(step, Batch{{"x", floats({1, 2})}, {"y", floats({3, 4})}}, 1.0f))
    EXPECT_EQ(sum.item(), 10);
}

TEST_P(StepFunctionTest, UnevenAndEmptyPartsKnowTheirOwnAndAllRows) {
  const auto step = strategy.function([](const BatchValues& batch) {
    const Value mean = ops::reduce_sum(batch["x"]) / static_cast<double>(batch.global_rows());
    return std::vector<Value>{mean, ops::constant(Tensor::scalar(batch.rows()))};
  });
  for (int64_t rows : {7, 3, 1, 12}) {
    const auto sizes = split_rows(rows, replicas());
    const auto results = strategy.run(step, batches(sizes));
    EXPECT_NEAR(strategy.reduce(ReduceOp::kSum, results[0]).item(), (rows - 1) / 2.0, 1e-6) << rows;
    for (int r = 0; r < replicas(); ++r) EXPECT_EQ(results[1][r].item(), sizes[r]) << rows;
  }
}

TEST_P(StepFunctionTest, MistakesInArgumentsAreNamed) {
  const auto step = strategy.function([](const BatchValues& batch) { return batch["label"]; });
  const std::vector<int64_t> ones(replicas(), 1);
  expect_error(Code::kNotFound, {"\"label\"", "\"x\", \"y\""},
               [&] { strategy.run(step, batches(ones)); });
  expect_error(Code::kInvalidArgument, {str(replicas() + 1), str(replicas())},
               [&] { strategy.run(step, batches(std::vector<int64_t>(replicas() + 1, 1))); });
  if (replicas() == 1) return;
  std::vector<Batch> differing = batches(ones).values();
  differing.back() = {{"x", floats({1})}, {"why", floats({1})}};
  expect_error(Code::kInvalidArgument, {"\"y\"", "\"why\"", str("replica ", replicas() - 1)},
               [&] { strategy.run(step, PerReplica<Batch>(differing)); });
  differing.back() = {{"x", floats({1})}};
  expect_error(Code::kInvalidArgument, {"\"y\""},
               [&] { strategy.run(step, PerReplica<Batch>(differing)); });
}

TEST_P(StepFunctionTest, IsTracedOnceForEachSignatureNotForEachReplicaOrRun) {
  int calls = 0;
  const auto step = strategy.function([&](const BatchValues& batch) {
    ++calls;
    return batch["x"] + batch["y"];
  });
  for (int i = 0; i < 10; ++i) strategy.run(step, batches(std::vector<int64_t>(replicas(), 3)));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(step.trace_count(), 1);
  // The parts have at most two sizes, one of them known already.
  std::vector<int64_t> uneven(replicas(), 3);
  uneven.back() = 2;
  for (int i = 0; i < 10; ++i) strategy.run(step, batches(uneven));
  EXPECT_EQ(calls, 2);
  for (int i = 0; i < 3; ++i) strategy.run(step, Batch{{"y", floats({1})}, {"x", floats({1})}});
  EXPECT_EQ(calls, 3) << "other names are another signature";
  EXPECT_EQ(step.trace_count(), 3);
}

TEST_P(StepFunctionTest, IsTracedAnewForAnotherStrategy) {
  MirroredStrategy other({.devices = first_cpus(2)});
  int calls = 0;
  const auto step = strategy.function([&](Value x) {
    ++calls;
    return x * static_cast<double>(get_replica_context()->num_replicas_in_sync());
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(strategy.run(step, 1.0f)[0].item(), replicas());
    EXPECT_EQ(other.run(step, 1.0f)[0].item(), 2);
  }
  EXPECT_EQ(calls, 2);
}

TEST_P(StepFunctionTest, WhatTheBodyThrowsArrivesAsItWasThrown) {
  bool broken = true;
  const auto step = strategy.function([&](Value x) {
    if (broken) throw std::out_of_range("of my own");
    return get_replica_context()->all_reduce(ReduceOp::kSum, x);
  });
  for (int i = 0; i < 2; ++i) {
    try {
      strategy.run(step, 1.0f);
      FAIL() << "nothing was thrown";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "of my own");
    }
    EXPECT_FALSE(has_strategy()) << "the scope is left";
    EXPECT_FALSE(has_current_graph());
  }
  broken = false;
  EXPECT_EQ(strategy.run(step, 1.0f)[0].item(), replicas());
}

TEST_P(StepFunctionTest, AnErrorOfAnotherClassArrivesAsOne) {
  struct OwnError : Error {
    using Error::Error;
  };
  const auto step =
      strategy.function([](Value) -> Value { throw OwnError(Code::kAborted, "of my own"); });
  EXPECT_THROW(strategy.run(step, 1.0f), OwnError);
}

TEST_P(StepFunctionTest, ReplicasOfOtherShapesMustCommunicateAlike) {
  if (replicas() == 1) return;
  const auto step = strategy.function([](Value x) {
    const ReplicaContext& replica = *get_replica_context();
    const Value sum = replica.all_reduce(ReduceOp::kSum, ops::reduce_sum(x));
    return x.shape()[0] == 2 ? replica.all_reduce(ReduceOp::kMean, sum) : sum;
  });
  const auto uneven = each([](int r) { return floats(std::vector<float>(r == 0 ? 2 : 1, 1)); });
  for (int i = 0; i < 2; ++i)
    expect_error(Code::kInvalidArgument,
                 {"number 2", "AllReduce by mean", "nothing", "float32[2]", "float32[1]"},
                 [&] { strategy.run(step, uneven); });
  // Both shapes are fine where all replicas have the same.
  EXPECT_EQ(strategy.run(step, floats({1}))[0].item(), replicas());
  EXPECT_EQ(strategy.run(step, floats({1, 1}))[0].item(), 2 * replicas());
  expect_error(Code::kInvalidArgument, {"communicate alike"}, [&] { strategy.run(step, uneven); });
}

TEST_P(StepFunctionTest, AnErrorOfOneReplicaAtRunTimeStopsAllAndTheNextRunWorks) {
  const auto step = strategy.function([](Value table, Value index) {
    return get_replica_context()->all_reduce(ReduceOp::kSum, ops::gather(table, index));
  });
  const Tensor table = floats({1, 10, 100});
  const auto index = [&](int64_t last) {
    return each([&](int r) { return testing::ints({r == replicas() - 1 ? last : 1}); });
  };
  for (int i = 0; i < 3; ++i) {
    expect_error(Code::kOutOfRange, {"9"}, [&] { strategy.run(step, table, index(9)); });
    EXPECT_EQ(strategy.run(step, table, index(2))[0].item(), 10 * (replicas() - 1) + 100);
  }
}

TEST_P(StepFunctionTest, RandomNumbersDifferByReplicaAndRunAndFollowTheSeed) {
  const auto draw = [&] {
    const auto step = strategy.function(
        [](Value x) { return x + ops::random_normal({2}, 0, 1, DType::kFloat64); });
    std::vector<double> drawn;
    for (int run = 0; run < 3; ++run)
      for (const Tensor& value : strategy.run(step, 0.0)) drawn.push_back(elements(value)[0]);
    return drawn;
  };
  set_global_seed(5);
  const auto first = draw(), again = draw();
  EXPECT_EQ(first, again);
  for (size_t i = 0; i < first.size(); ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_NE(first[i], first[k]) << i << " and " << k;
  set_global_seed(6);
  EXPECT_NE(draw(), first);
  set_global_seed(0);
}

TEST_P(StepFunctionTest, AStepThatIsMadeAnewContinuesWithTheRandomNumbersOfTheOneBefore) {
  const Tensor ones = floats(std::vector<float>(32, 1));
  const auto make = [&] { return strategy.function([](Value x) { return ops::dropout(x, 0.5); }); };
  const auto masks = [&](const auto& step, int runs) {
    std::vector<std::vector<double>> all;
    for (int run = 0; run < runs; ++run)
      for (const Tensor& mask : strategy.run(step, ones)) all.push_back(elements(mask));
    return all;
  };
  const auto undisturbed = masks(make(), 5);
  auto all = masks(make(), 2);
  const auto again = make();
  again.continue_at(2);
  for (auto& mask : masks(again, 3)) all.push_back(std::move(mask));
  EXPECT_EQ(all, undisturbed);
  again.continue_at(0);
  EXPECT_EQ(masks(again, 5), undisturbed);
  expect_error(Code::kInvalidArgument, {"\"step\"", "-1"}, [&] { again.continue_at(-1); });
}

TEST_P(StepFunctionTest, AFunctionThatIsRunHasTheGlobalSeedUnlessItIsGivenOne) {
  const Function f =
      function([](Value x) { return x + ops::random_normal({2}, 0, 1, DType::kFloat64); });
  const std::vector<Tensor> zero = {Tensor::scalar(0.0)};
  const PerReplica<std::vector<Tensor>> inputs =
      std::vector<std::vector<Tensor>>(static_cast<size_t>(replicas()), zero);
  const auto draw = [&](const RunOptions& options) {
    return elements(strategy.run(f, inputs, options)[0][0]);
  };
  set_global_seed(5);
  const auto first = draw({}), again = draw({});
  set_global_seed(6);
  const auto other = draw({}), chosen = draw({.seed = 5});
  set_global_seed(0);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_EQ(first, chosen);
}

TEST_P(StepFunctionTest, ReplicasOfAFunctionHaveEquallyManyInputs) {
  const Function f = function([](Value x) { return x + x; }, "double");
  std::vector<std::vector<Tensor>> inputs(static_cast<size_t>(replicas()), {Tensor::scalar(1.0f)});
  inputs.push_back({Tensor::scalar(1.0f), Tensor::scalar(2.0f)});
  inputs.erase(inputs.begin());
  if (replicas() == 1) return;
  expect_error(Code::kInvalidArgument, {"\"double\"", "has 2 inputs, replica 0 has 1"},
               [&] { strategy.run(f, PerReplica<std::vector<Tensor>>(inputs)); });
}

TEST_P(StepFunctionTest, SeveralThreadsStepOneFunction) {
  std::atomic<int> calls = 0;
  const auto step = strategy.function([&](Value x) {
    ++calls;
    return get_replica_context()->all_reduce(ReduceOp::kSum, x);
  });
  std::vector<std::thread> threads;
  for (int t = 1; t <= 3; ++t)
    threads.emplace_back([&, t] {
      const Tensor x = floats(std::vector<float>(static_cast<size_t>(t), static_cast<float>(t)));
      for (int i = 0; i < 20; ++i)
        for (const Tensor& sum : strategy.run(step, x))
          EXPECT_EQ(elements(sum), std::vector<double>(static_cast<size_t>(t), t * replicas()));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(calls, 3);
}

TEST_P(StepFunctionTest, AResultMustBeAValue) {
  const auto step = strategy.function([](Value) { return Value(); });
  expect_error(Code::kInvalidArgument, {"result 0"}, [&] { strategy.run(step, 1.0f); });
}

}  // namespace
}  // namespace cohort
