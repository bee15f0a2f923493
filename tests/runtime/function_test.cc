#include "core/runtime/function.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "core/base/random.h"
#include "core/device/device.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/custom_gradient.h"
#include "core/ops/math_ops.h"
#include "core/ops/random_ops.h"

namespace cohort {
namespace {

using Values = std::vector<Value>;

Tensor vector_of(int64_t size, float value) { return Tensor::full(DType::kFloat32, {size}, value); }
Signature floats(int64_t size) { return {{DType::kFloat32, {size}}}; }

// A group of replicas whose only inputs have these sizes.
ReplicaGroup group_of(const std::vector<int64_t>& sizes, uint64_t strategy = 1) {
  ReplicaGroup group{strategy, static_cast<int>(sizes.size()), {}, {}};
  for (const int64_t size : sizes) group.signatures.push_back(floats(size));
  return group;
}

int64_t total_rows(const Value& x) {
  int64_t total = 0;
  for (const Shape& shape : shapes_on_replicas(x)) total += shape[0];
  return total;
}

std::vector<int64_t> extents_of(const Value& x) {
  std::vector<int64_t> extents;
  for (const Shape& shape : shapes_on_replicas(x)) extents.push_back(shape[0]);
  return extents;
}

// The error of a call, which must throw one.
Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(Code::kUnknown, "");
}

bool contains(const Error& error, const std::string& part) {
  return error.message().find(part) != std::string::npos;
}

TEST(FunctionTest, IsTracedOnceForEachSignature) {
  int calls = 0;
  const Function f = function([&](Value x) {
    ++calls;
    return x + 1.0;
  });
  const std::vector<Function> copies(2, f);
  for (const Function& copy : copies)
    for (const int64_t size : {2, 5}) EXPECT_EQ(copy({vector_of(size, 1)})[0].shape()[0], size);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(f.trace_count(), 2);
}

TEST(FunctionTest, EachTraceHasItsOwnGradientsOfOnesOwn) {
  const Function f = function([](Value x) {
    const Value y = ops::with_gradient(
        x, [](const Value& v) { return v * v; },
        [](const Value& dy, const Value&, const Value&) { return dy * 3.0; });
    return Values{y, gradients(ops::reduce_sum(y), {x})[0].values};
  });
  for (const int64_t size : {2, 5}) {
    const auto results = f({vector_of(size, 2)});
    EXPECT_EQ(to_string(results[0]), to_string(vector_of(size, 4)));
    EXPECT_EQ(to_string(results[1]), to_string(vector_of(size, 3)));
  }
}

TEST(FunctionTest, KeepsWhatItsBodyHasKept) {
  Value kept;
  const Function f = function([&](Value x) {
    const Value y = x * 2.0;
    if (!kept.defined()) kept = y;
    return y;
  });
  f.trace(floats(3), {.strategy = 1, .num_replicas = 2});
  EXPECT_EQ(kept.shape(), Shape({3}));
  const Function g =
      function([&](Value x) { return gradients(ops::reduce_sum(x), {kept})[0].values; });
  EXPECT_TRUE(contains(error_of([&] { g({vector_of(3, 1)}); }), "different functions"));
}

TEST(FunctionTest, IsTracedAnewForAnotherStrategyOrNumberOfReplicas) {
  int calls = 0;
  const Function f = function([&](Value x) {
    ++calls;
    return x * static_cast<double>(traced_group().num_replicas);
  });
  for (int round = 0; round < 2; ++round) {
    f.trace(floats(3));
    f.trace(floats(3), {.strategy = 7, .num_replicas = 2});
    f.trace(floats(3), {.strategy = 8, .num_replicas = 2});
    f.trace(floats(3), {.strategy = 8, .num_replicas = 2, .signatures = {}, .same_input = {true}});
  }
  EXPECT_EQ(calls, 4);
}

TEST(FunctionTest, OneTraceServesAllGroupsWhileNobodyAsksForTheirShapes) {
  int calls = 0;
  const Function f = function([&](Value x) {
    ++calls;
    return ops::all_reduce({ops::reduce_sum(x)})[0];
  });
  f.trace(floats(3), group_of({3, 2, 2}));
  EXPECT_EQ(calls, 2) << "one for each size";
  f.trace(floats(2), group_of({2, 2, 3}));
  f.trace(floats(3), {.strategy = 1, .num_replicas = 3});
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(f.trace_count(), 2);
}

TEST(FunctionTest, AGroupIsTracedInItsOrderForWhicheverReplica) {
  for (const bool asks : {false, true})
    for (const int64_t own : {3, 2, 0}) {
      std::vector<int64_t> traced;
      const Function f = function([&](Value x) {
        traced.push_back(x.shape()[0]);
        return asks ? ops::constant(Tensor::scalar(total_rows(x))) : ops::reduce_sum(x);
      });
      f.trace(floats(own), group_of({3, 2, 0}));
      ASSERT_GE(traced.size(), 3u);
      EXPECT_EQ(traced.front(), 3) << "for the replica with " << own << " rows";
      const std::vector<int64_t> last(traced.end() - 3, traced.end());
      EXPECT_EQ(last, (std::vector<int64_t>{3, 2, 0}));
    }
}

TEST(FunctionTest, ShapesOnReplicasAreThoseOfTheGroup) {
  const Function f = function([](Value x) { return ops::constant(Tensor::scalar(total_rows(x))); });
  const auto rows = [&](int64_t size, const ReplicaGroup& group) {
    return f.run(std::vector{vector_of(size, 0)}, {}, {}, group)[0].item();
  };
  EXPECT_EQ(rows(3, group_of({3, 2, 0})), 5);
  EXPECT_EQ(rows(0, group_of({3, 2, 0})), 5);
  EXPECT_EQ(rows(3, group_of({3, 3, 2})), 8);
  EXPECT_EQ(rows(3, {.strategy = 1, .num_replicas = 4}), 12);
  EXPECT_EQ(f({vector_of(3, 0)})[0].item(), 3);
}

TEST(FunctionTest, ShapesMayFollowFromEarlierOnesToAnyDepth) {
  // Each part has a row for every four that all replicas had together before, and its own.
  const std::vector<int64_t> sizes = {4, 2, 1};
  for (const int depth : {1, 2, 5, 30}) {
    const Function f = function([&](Value x) {
      Value part = x;
      for (int i = 0; i < depth; ++i) {
        const Value all = ops::all_gather(part, extents_of(part));
        part = ops::concat({ops::slice(all, {0}, {all.shape()[0] / 4}), x}, 0);
      }
      return part;
    });
    std::vector<int64_t> rows = sizes;
    for (int i = 0; i < depth; ++i) {
      const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
      for (size_t r = 0; r < rows.size(); ++r) rows[r] = total / 4 + sizes[r];
    }
    for (size_t r = 0; r < rows.size(); ++r)
      EXPECT_EQ(f.trace(floats(sizes[r]), group_of(sizes)).outputs[0].shape()[0], rows[r])
          << "replica " << r << " at depth " << depth;
  }
}

TEST(FunctionTest, WhatFailsOnlyForGuessedShapesDoesNotFail) {
  const Function f = function([](Value x) {
    const Value all = ops::all_gather(x, extents_of(x));
    return ops::reshape(all, {5});  // true of the group, not of one size everywhere
  });
  EXPECT_EQ(f.trace(floats(3), group_of({3, 2})).outputs[0].shape(), (Shape{5}));
  const Error error = error_of([&] { f.trace(floats(3), group_of({3, 1})); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
}

TEST(FunctionTest, ABodyThatAsksForOtherShapesEachTimeIsRefused) {
  int64_t calls = 0;
  const Function f = function([&](Value x) {
    ++calls;
    const Value part = ops::concat({x, ops::constant(vector_of(calls, 0))}, 0);
    return ops::constant(Tensor::scalar(total_rows(part)));
  });
  const Error error = error_of([&] { f.trace(floats(3), group_of({3, 2})); });
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(contains(error, "each time")) << error.what();
}

TEST(FunctionTest, ReplicasMustAskAlike) {
  const Function f = function([](Value x) {
    return ops::constant(Tensor::scalar(x.shape()[0] == 2 ? total_rows(x) : int64_t{0}));
  });
  for (const int64_t first : {2, 3}) {
    const Error error = error_of([&] { f.trace(floats(first), group_of({2, 3})); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_TRUE(contains(error, "float32[2]") && contains(error, "float32[3]")) << error.what();
  }
}

TEST(FunctionTest, ReplicasMustCommunicateAlike) {
  using Body = std::function<Value(const Value&)>;
  // What replicas of 2 rows do, and others; part of the complaint.
  const std::tuple<Body, Body, std::string> cases[] = {
      {[](const Value& x) { return ops::all_reduce({ops::reduce_sum(x)})[0]; },
       [](const Value& x) { return ops::reduce_sum(x); }, "nothing"},
      {[](const Value& x) { return ops::all_reduce({x})[0]; },
       [](const Value& x) { return ops::all_reduce({x})[0]; }, "AllReduce by sum of float32[2]"},
      {[](const Value& x) { return ops::all_reduce({ops::reduce_sum(x)}, ReduceOp::kMax)[0]; },
       [](const Value& x) { return ops::all_reduce({ops::reduce_sum(x)})[0]; }, "by max"},
      {[](const Value& x) { return ops::broadcast(ops::reduce_sum(x), 0); },
       [](const Value& x) { return ops::broadcast(ops::reduce_sum(x), 1); }, "from 1"},
      {[](const Value& x) {
         return ops::all_gather(x, {2, 3});
       },
       [](const Value& x) {
         return ops::all_gather(x, {3, 3});
       },
       "2, 3"},
      {[](const Value& x) {
         ops::barrier();
         return x;
       },
       [](const Value& x) { return ops::all_reduce({ops::reduce_sum(x)})[0]; }, "Barrier"}};
  for (const auto& [body_for_two, body_for_others, complaint] : cases) {
    const auto &two = body_for_two, &other = body_for_others;
    const Function f =
        function([&](Value x) { return x.shape()[0] == 2 ? two(x) : other(x); }, "uneven");
    for (const int64_t first : {2, 3}) {
      const Error error = error_of([&] { f.trace(floats(first), group_of({2, 3})); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      for (const std::string& part :
           {std::string("\"uneven\""), std::string("number 1"), complaint})
        EXPECT_TRUE(contains(error, part)) << part << " in: " << error.what();
    }
    EXPECT_NO_THROW(f.trace(floats(2), {.strategy = 1, .num_replicas = 2}));
  }
}

TEST(FunctionTest, CannotCallItself) {
  std::function<void()> again;
  const Function f = function([&](Value x) {
    again();
    return x;
  });
  again = [&] { f({vector_of(1, 1)}); };
  for (int round = 0; round < 2; ++round) {
    const Error error = error_of(again);
    EXPECT_EQ(error.code(), Code::kFailedPrecondition);
    EXPECT_TRUE(contains(error, "its own body")) << error.what();
  }
  again = [] {};
  EXPECT_EQ(f({vector_of(1, 4)})[0].item(), 4) << "usable after the refusal";
}

TEST(FunctionTest, MayCallAnotherWhileItIsTraced) {
  const Function twice = function([](Value x) { return x * 2.0; });
  const Function f =
      function([&](Value x) { return x + ops::constant(twice({vector_of(2, 3)})[0]); });
  EXPECT_EQ(f({vector_of(2, 1)})[0].data<float>()[1], 7);
}

TEST(FunctionTest, WhatTheBodyThrowsArrivesAsItWasThrown) {
  bool broken = true;
  const Function f = function([&](Value x) {
    if (broken) throw std::length_error("mine");
    return x;
  });
  EXPECT_THROW(f({vector_of(1, 1)}), std::length_error);
  EXPECT_THROW(f.trace(floats(2), group_of({2, 3})), std::length_error);
  EXPECT_EQ(f.trace_count(), 0);
  EXPECT_FALSE(has_current_graph());
  broken = false;
  EXPECT_EQ(f({vector_of(1, 1)})[0].item(), 1);
}

TEST(FunctionTest, ATensorWithoutAValueIsRefusedBeforeItIsTraced) {
  const Function f = function([](Value x, Value y) { return x + y; }, "sum");
  const Error error = error_of([&] { f({vector_of(1, 1), Tensor()}); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(error, "function \"sum\": input 1 has no value")) << error.what();
  EXPECT_EQ(f.trace_count(), 0);
}

Value doubled(const Value& x) { return x * 2.0; }
Values split_sign(Value x) noexcept { return {ops::relu(x), ops::relu(-x)}; }

TEST(FunctionTest, IsMadeOfAnythingWithOneListOfParameters) {
  const auto first = [](const Function& f, const std::vector<Tensor>& inputs) {
    return f(inputs)[0].values<float>()[0];
  };
  const Tensor one = vector_of(1, 1), three = vector_of(1, 3);
  EXPECT_EQ(first(function(doubled), {three}), 6);
  EXPECT_EQ(first(function(ops::square), {three}), 9);
  EXPECT_EQ(function(split_sign)({three}).size(), 2u);
  int traced = 0;
  const Function counting =
      function([traced](Value x, Value y) mutable { return ++traced, x - y; });
  EXPECT_EQ(first(counting, {three, one}), 2);
  EXPECT_EQ(first(function([](Value x) noexcept { return x * 5.0; }), {three}), 15);
  EXPECT_THROW(function(doubled)({one, one}), Error);
}

TEST(FunctionTest, TellsOnceThatItIsTracedAgainAndAgain) {
  const Function f = function([](Value x) { return x * 2.0; }, "growing");
  ::testing::internal::CaptureStderr();
  for (int64_t size = 1; size < 32; ++size) f({vector_of(size, 1)});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  for (int64_t size = 32; size < 70; ++size) f({vector_of(size, 1)});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(
      said,
      "warning: function \"growing\" has been traced 32 times, last for inputs (float32[32]); "
      "each combination of dtypes and shapes takes time and memory: pad inputs to a few "
      "shapes\n");
}

TEST(FunctionTest, AnEmptyBodyIsRefusedWhereItIsGiven) {
  const auto refuses = [](const std::function<void()>& make) {
    const Error error = error_of(make);
    return error.code() == Code::kInvalidArgument &&
           contains(error, "function \"half\": its body is empty");
  };
  EXPECT_TRUE(refuses([] { function(std::function<Value(Value)>(), "half"); }));
  EXPECT_TRUE(refuses([] { Function(Function::Body(), "half"); }));
  EXPECT_TRUE(refuses([] { function(static_cast<Value (*)(Value)>(nullptr), "half"); }));
}

TEST(FunctionTest, ResultsMustBeValuesOfTheTrace) {
  const Function none = function([](Value) { return Value(); });
  EXPECT_TRUE(contains(error_of([&] { none({vector_of(1, 1)}); }), "result 0"));
  Graph other;
  const Value foreign = other.add_input("x", {DType::kFloat32, {}});
  const Function f = function([&](Value x) { return Values{x, foreign}; });
  EXPECT_TRUE(contains(error_of([&] { f({vector_of(1, 1)}); }), "result 1"));
}

TEST(FunctionTest, RunsOnWhereItWasCompiledWhenItsDeviceIsTakenAway) {
  set_logical_cpus(2, 1);
  const Function f = function([](Value x) { return x + 1.0; });
  const PlanOptions second{.device = {DeviceType::kCpu, 1}};
  const std::vector<Tensor> known = {vector_of(1, 2)}, other = {vector_of(2, 2)};
  f.run(known, second, {});
  set_logical_cpus(1, 1);
  EXPECT_EQ(f.run(known, second, {})[0].item(), 3);
  const Error error = error_of([&] { f.run(other, second, {}); });
  EXPECT_EQ(error.code(), Code::kNotFound);
  EXPECT_TRUE(contains(error, "cpu:1")) << error.what();
  set_logical_cpus(1);
}

TEST(FunctionTest, RandomOpsFollowTheGlobalSeedAndTheNumberOfCalls) {
  const auto draw = [](uint64_t seed) {
    set_global_seed(seed);
    const Function f = function([](Value x) { return ops::dropout(x, 0.5); });
    std::vector<float> drawn;
    for (int call = 0; call < 2; ++call) {
      const Tensor y = f({vector_of(100, 1)})[0];
      drawn.insert(drawn.end(), y.values<float>().begin(), y.values<float>().end());
    }
    return drawn;
  };
  const auto first = draw(1), again = draw(1), other = draw(2);
  set_global_seed(0);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_FALSE(std::equal(first.begin(), first.begin() + 100, first.begin() + 100));
}

TEST(FunctionTest, SeveralThreadsMayCallIt) {
  std::atomic<int> calls = 0;
  const Function f = function([&](Value x) {
    ++calls;
    return ops::reduce_sum(x * x);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const int64_t size = 1 + (t + i) % 3;
        EXPECT_EQ(f({vector_of(size, 2)})[0].item(), 4 * size);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(calls, 3);
}

TEST(FunctionTest, AKnownSignatureDoesNotWaitForOneThatIsTraced) {
  constexpr std::chrono::seconds kDeadline(20);
  std::promise<void> is_traced, has_run;
  const Function f = function([&](Value x) {
    if (x.shape()[0] == 2) {
      is_traced.set_value();
      EXPECT_EQ(has_run.get_future().wait_for(kDeadline), std::future_status::ready);
    }
    return x + 1.0;
  });
  f({vector_of(1, 1)});
  std::thread other([&] { EXPECT_EQ(f({vector_of(2, 1)})[0].shape()[0], 2); });
  EXPECT_EQ(is_traced.get_future().wait_for(kDeadline), std::future_status::ready);
  EXPECT_EQ(f({vector_of(1, 3)})[0].item(), 4);
  has_run.set_value();
  other.join();
}

TEST(FunctionTest, TellsWhatItsPlansHold) {
  const Function f = function([](Value x) { return ops::reduce_sum(ops::cumsum(x * 2.0, 0)); });
  f.trace(floats(100));
  EXPECT_EQ(f.memory().plans, 0) << "traced, and not compiled";
  f({vector_of(100, 1)});
  const FunctionMemory one = f.memory();
  EXPECT_EQ(one.plans, 1);
  EXPECT_GE(one.bytes, 100 * sizeof(float));
  f({vector_of(100, 2)});
  EXPECT_EQ(f.memory().bytes, one.bytes);
  f({vector_of(200, 1)});
  EXPECT_EQ(f.memory().plans, 2);
  EXPECT_GT(f.memory().bytes, 2 * one.bytes);
}

}  // namespace
}  // namespace cohort
