// Variables that the replicas of a process share, of which each updates a part.

#include <gtest/gtest.h>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "core/runtime/function.h"
#include "core/runtime/profiler.h"
#include "core/runtime/shared_variables.h"
#include "strategies/one_device_strategy.h"
#include "tests/distribute/testing.h"
#include "tests/strategies/training_testing.h"

namespace cohort {
namespace {

// Large enough for a part for each replica, but for the bias and the scale.
constexpr int64_t kIn = 40, kOut = 30;

Program regression() {
  const auto w = weight("w", DType::kFloat32, {kIn, kOut}, 1);
  const auto b = weight("b", DType::kFloat32, {kOut}, 2);
  const auto scale = weight("scale", DType::kFloat32, {1}, 3);
  return {{w, b, scale}, [=](const BatchValues& batch) {
            const Value output = ops::matmul(batch["x"], w->read()) * scale->read() + b->read();
            const Value error = output - batch["y"];
            return ops::reduce_sum(error * error) / static_cast<double>(batch.global_rows() * kOut);
          }};
}

std::vector<data::Batch> batches(int64_t rows) {
  std::vector<data::Batch> made;
  for (int i = 0; i < 4; ++i)
    made.push_back({{"x", numbers(DType::kFloat32, {rows, kIn}, i)},
                    {"y", numbers(DType::kFloat32, {rows, kOut}, 10 + i)}});
  return made;
}

struct Case {
  const char* name;
  MakeOptimizer make;
  bool is_divided = true;
};

std::vector<Case> cases() {
  using namespace optim;
  const auto sgd = [](const GradientOptions& gradients) {
    return [=] { return SGD(0.1, {.momentum = 0.9, .gradients = gradients}); };
  };
  return {
      {"SGD", [] { return SGD(0.1); }},
      {"Nesterov", [] { return SGD(0.1, {.momentum = 0.9, .nesterov = true}); }},
      {"Adam", [] { return Adam(0.1, {.amsgrad = true}); }},
      {"AdamW", [] { return AdamW(0.1); }},
      {"RMSprop", [] { return RMSprop(0.1, {.momentum = 0.5, .centered = true}); }},
      {"Adagrad", [] { return Adagrad(0.1); }},
      {"Lamb", [] { return Lamb(0.1); }, false},
      {"groups",
       [] {
         return AdamW(0.1, {.groups = {{.variables = {"w"}, .learning_rate_multiplier = 0.5}}});
       }},
      {"clipvalue", sgd({.clipvalue = 0.01})},
      {"clipnorm", sgd({.clipnorm = 0.1})},
      {"global_clipnorm", sgd({.global_clipnorm = 0.1})},
      {"accumulation", sgd({.accumulation_steps = 2})},
      {"loss_scale", sgd({.loss_scale = LossScale{}})},
      {"non_finite = kError", sgd({.non_finite = NonFinite::kError})},
      {"non_finite = kSkip", sgd({.non_finite = NonFinite::kSkip})},
      {"non_finite = kZero", sgd({.non_finite = NonFinite::kZero})},
  };
}

class SharedUpdatesTest : public testing::ReplicasTest {};
COHORT_FOR_ALL_REPLICAS(SharedUpdatesTest);

TEST_P(SharedUpdatesTest, TrainAsOnOneDeviceWhateverTheOptimizer) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    const auto expected = train_on(*OneDeviceStrategy(), regression, one.make, batches(9));
    expect_near(train_on(strategy, regression, one.make, batches(9)), expected, 1e-4);
  }
}

// By assignment of more than a number, in order: whether the first replica makes a part of it.
std::vector<bool> divided_assignments(const GraphFunction& traced) {
  const auto fused =
      fuse_updates(fuse_elementwise(copy_outlived_reads(schedule_collectives(traced))));
  const auto divided =
      divide_updates(fused, find_division(fused, replicas_sharing), 0, replicas_sharing);
  std::vector<bool> is_divided;
  for (const auto& node : divided.graph->nodes())
    if (is_write(*node) && replicas_sharing(*node->resource()) > 1 &&
        node->resource()->spec().shape.num_elements() > 1)
      is_divided.push_back(node->attributes().has("part"));
  return is_divided;
}

TEST_P(SharedUpdatesTest, AreDividedWhereTheyGoElementByElement) {
  if (replicas() == 1) GTEST_SKIP() << "one replica shares nothing";
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    const auto scope = strategy.scope();
    const Program program = regression();
    const optim::Optimizer optimizer = one.make();
    ReplicaGroup group;
    const auto step = strategy.function([&](const BatchValues& batch) {
      Value loss = program.loss(batch);
      optimizer.minimize(loss, program.variables);
      group = traced_group();
      return loss;
    });
    const auto parts = split(strategy, batches(2 * replicas())[0]);
    strategy.run(step, parts);
    const Signature signature = {parts[0]["x"].spec(), parts[0]["y"].spec()};
    const auto found =
        divided_assignments(step.state()->function({{"x", "y"}}).trace(signature, group));
    EXPECT_GE(found.size(), 2u);
    EXPECT_EQ(found, std::vector<bool>(found.size(), one.is_divided));
  }
}

TEST_P(SharedUpdatesTest, WhatWasReadBeforeAWriteKeepsItsValueOnAllReplicas) {
  const auto scope = strategy.scope();
  const auto v = weight("v", DType::kFloat32, {1 << 16}, 1);
  const auto step = strategy.function([&] {
    const Value one = ops::constant(Tensor::full(DType::kFloat32, {1 << 16}, 1));
    const Value before = v->read();
    v->assign_add(one);
    return ops::reduce_sum(before + one) - ops::reduce_sum(v->read());  // the same sum twice
  });
  for (int i = 0; i < 20; ++i)
    for (const Tensor& difference : strategy.run(step)) EXPECT_EQ(difference.item(), 0);
}

TEST_P(SharedUpdatesTest, AFunctionOutsideOfReplicasWritesTheWholeVariable) {
  const auto scope = strategy.scope();
  const auto v = weight("v", DType::kFloat32, {256}, 1);
  function([&](const std::vector<Value>& in) {
    ops::barrier();
    strategy.begin_update();
    v->update(in[0] * 2.0);
    strategy.end_update();
    return std::vector<Value>{};
  })({Tensor::full(DType::kFloat32, {256}, 1)});
  EXPECT_EQ(testing::elements(v->value()), std::vector<double>(256, 2));
}

TEST_P(SharedUpdatesTest, AFunctionOutsideOfReplicasUsesWhatItWrites) {
  const auto scope = strategy.scope();
  const auto v = weight("v", DType::kFloat32, {256}, 1);
  v->assign(Tensor::full(DType::kFloat32, {256}, 1));
  const auto f = function([&](Value x) {
    const Value sum = v->read() + x;
    v->assign(sum);
    return ops::reduce_sum(sum) + ops::reduce_sum(v->read() * 2.0);
  });
  EXPECT_EQ(f({Tensor::full(DType::kFloat32, {256}, 2)})[0].item(), 256 * 3 * 3);
  EXPECT_EQ(testing::elements(v->value()), std::vector<double>(256, 3));
}

TEST_P(SharedUpdatesTest, OfAVariableWithCopiesOfItsOwnAreOfAllCopies) {
  const auto train = [](Strategy& on) {
    return train_on(
        on,
        [] {
          const auto w = create_variable({.name = "w",
                                          .spec = {DType::kFloat32, {kIn, kOut}},
                                          .initial_value =
                                              [] {
                                                return numbers(DType::kFloat32, {kIn, kOut}, 1);
                                              },
                                          .synchronization = Synchronization::kNone});
          return Program{{w}, [=](const BatchValues& batch) {
                           const Value error = ops::matmul(batch["x"], w->read()) - batch["y"];
                           return ops::reduce_sum(error * error) / 1000.0;
                         }};
        },
        [] { return optim::Adam(0.01); }, batches(9));
  };
  expect_near(train(strategy), train(*OneDeviceStrategy()), 1e-4);
}

// Products of so few elements that some replica has no part of them.
TEST_P(SharedUpdatesTest, OfSmallProductsAreThoseOfOneDevice) {
  for (const int64_t width : {10, 13}) {
    const auto square = [=] {
      const auto w = weight("w", DType::kFloat32, {width, width}, 1);
      return Program{{w}, [=](const BatchValues& batch) {
                       return ops::reduce_sum(ops::square(ops::matmul(batch["x"], w->read())));
                     }};
    };
    const data::Batch batch{{"x", numbers(DType::kFloat32, {replicas(), width}, 2)}};
    const auto adam = [] { return optim::Adam(0.01); };
    expect_near(train_on(strategy, square, adam, {batch, batch}),
                train_on(*OneDeviceStrategy(), square, adam, {batch, batch}), 1e-4);
  }
}

TEST_P(SharedUpdatesTest, AnUpdateMayNotBeUsedOnReplicasThatLeaveItToTheFirst) {
  const auto scope = strategy.scope();
  const auto v = weight("v", DType::kFloat32, {256}, 1);
  const auto step = strategy.function([&] {
    strategy.begin_update();
    const Value moved = v->read() * 0.5;
    v->update(moved);
    strategy.end_update();
    return ops::reduce_sum(moved);
  });
  if (replicas() == 1) {
    strategy.run(step);
    return;
  }
  testing::expect_error(Code::kInvalidArgument, {"variable \"v\"", "begin_update"},
                        [&] { strategy.run(step); });
}

TEST_P(SharedUpdatesTest, AWholeValueIsThereForWhoReadsItBehindAWrite) {
  const auto scope = strategy.scope();
  const auto w = weight("w", DType::kFloat64, {kIn, kOut}, 1);
  const Tensor before = w->value();
  double expected = 0;
  for (int64_t i = 0; i < before.num_elements(); ++i) expected += 2 * before.data<double>()[i] + 1;
  const auto step = strategy.function([&] {
    w->assign(w->read() * 2.0 + 1.0);
    return ops::reduce_sum(w->read());
  });
  for (const Tensor& sum : strategy.run(step)) EXPECT_NEAR(sum.item(), expected, 1e-9);
}

// Few rows, so that of the gradients of the weights factors are gathered; batches that do not
// divide evenly come in between, for which they are not.
TEST_P(SharedUpdatesTest, OfProductsWithFewRowsAreThoseOfOneDevice) {
  std::vector<data::Batch> mixed;
  for (const int64_t rows : {4 * replicas(), 4 * replicas() + 1, 4 * replicas()})
    for (const data::Batch& batch : batches(rows)) mixed.push_back(batch);
  const auto dense = [] {
    const auto w = weight("w", DType::kFloat32, {kIn, 96}, 1);
    const auto v = weight("v", DType::kFloat32, {96, kOut}, 2);
    return Program{{w, v}, [=](const BatchValues& batch) {
                     const Value hidden = ops::relu(ops::matmul(batch["x"], w->read()));
                     const Value error = ops::matmul(hidden, v->read()) - batch["y"];
                     return ops::reduce_sum(error * error) / 1000.0;
                   }};
  };
  const auto adam = [] { return optim::Adam(0.01); };
  const auto expected = train_on(*OneDeviceStrategy(), dense, adam, mixed);
  const Profiler profiler;
  expect_near(train_on(strategy, dense, adam, mixed), expected, 1e-4);
  const auto events = profiler.events();
  const bool gathers = std::any_of(events.begin(), events.end(),
                                   [](const auto& event) { return event.kind == "AllGather"; });
  EXPECT_EQ(gathers, replicas() > 1 && replicas() <= 3);
}

// The first replica alone makes the second write, for which it alone needs the whole sum.
TEST_P(SharedUpdatesTest, DivideAlikeWhateverOneReplicaNeedsBesides) {
  const auto scope = strategy.scope();
  const auto w = weight("w", DType::kFloat64, {256}, 1);
  const auto norm = weight("norm", DType::kFloat64, {}, 0);
  const auto step = strategy.function([&] {
    const Value ones = ops::constant(Tensor::full(DType::kFloat64, {256}, 1));
    const Value sum = ops::all_reduce_async({ones}, ReduceOp::kSum)[0];
    strategy.begin_update();
    w->update(sum * 2.0);
    norm->update(ops::reduce_sum(sum * sum));
    strategy.end_update();
  });
  strategy.run(step);
  EXPECT_EQ(testing::elements(w->value()), std::vector<double>(256, 2.0 * replicas()));
  EXPECT_EQ(norm->value().item(), 256.0 * replicas() * replicas());
}

}  // namespace
}  // namespace cohort
