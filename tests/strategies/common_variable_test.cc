#include <cstdlib>
#include <memory>
#include <optional>
#include <sys/mman.h>
#include <vector>

#include <gtest/gtest.h>

#include "core/ops/math_ops.h"
#include "core/runtime/function.h"
#include "tests/strategies/multi_worker_testing.h"
#include "tests/testing/few_descriptors.h"

// Variables of which all workers of a host have one copy.
namespace cohort {
namespace {

using testing::ids;
using testing::MultiWorkerTest;
using testing::on_good_workers;
using testing::scalar;

class CommonVariableTest : public MultiWorkerTest {
 protected:
  // What the replicas of this worker read in a step; all workers take part.
  static std::vector<double> read_in_step(Strategy& strategy,
                                          const std::shared_ptr<Variable>& variable) {
    const auto step = strategy.function([variable](const Value&) { return variable->read(); });
    const PerReplica<Tensor> read = strategy.run(step, ids(strategy));
    std::vector<double> values;
    for (size_t r = 0; r < read.size(); ++r) values.push_back(read[r].item());
    return values;
  }

  static void meet(Strategy& strategy) { strategy.workers().exchange("a meeting", {}); }
};

TEST_F(CommonVariableTest, ReplicasOfAllWorkersShareOneCopy) {
  on_good_workers(
      3,
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto variable = scalar("v", 1);
        const int rank = strategy.workers().rank();
        EXPECT_EQ(variable->num_sharing(), 6);
        EXPECT_EQ(variable->first_sharing(), 2 * rank);
        EXPECT_EQ(variable->num_replicas(), 2);
        for (int r = 0; r < 2; ++r) EXPECT_EQ(variable->is_written_by(r), rank == 0 && r == 0);
        meet(strategy);
        Tensor common = variable->storage(0);
        if (rank == 1) common.assign(Tensor::scalar(7.0f));
        meet(strategy);
        EXPECT_EQ(variable->storage(1).item(), 7);
        EXPECT_EQ(variable->value().item(), 7);
      },
      devices(2));
}

TEST_F(CommonVariableTest, BeginsWithTheChiefsValue) {
  on_good_workers(3, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto variable = scalar("v", 10.0f + static_cast<float>(strategy.workers().rank()));
    EXPECT_EQ(variable->value().item(), 10);
    EXPECT_EQ(read_in_step(strategy, variable), std::vector{10.0});
  });
}

TEST_F(CommonVariableTest, OthersSeeWhatAWorkerAssignsFromTheNextStepOn) {
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto variable = scalar("v", 1);
    const bool assigns = strategy.workers().rank() == 1;
    for (const float value : {5.0f, 6.0f, 7.0f}) {
      const double before = variable->value().item();
      meet(strategy);
      if (assigns) variable->assign(Tensor::scalar(value));
      meet(strategy);
      EXPECT_EQ(variable->value().item(), assigns ? value : before);
      EXPECT_EQ(read_in_step(strategy, variable), std::vector<double>{value});
      EXPECT_EQ(variable->value().item(), value);
    }
  });
}

TEST_F(CommonVariableTest, WhereSeveralAssignTheLowestRankCounts) {
  on_good_workers(3, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto of_all = scalar("a", 1), of_some = scalar("b", 1);
    const int rank = strategy.workers().rank();
    of_all->assign(Tensor::scalar(10.0f + static_cast<float>(rank)));
    if (rank > 0) of_some->assign(Tensor::scalar(20.0f + static_cast<float>(rank)));
    EXPECT_EQ(of_all->value().item(), 10 + rank);
    EXPECT_EQ(read_in_step(strategy, of_all), std::vector{10.0});
    EXPECT_EQ(of_some->value().item(), 21);
  });
}

TEST_F(CommonVariableTest, AnAssignmentThatIsRefusedDoesNotCount) {
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto variable = scalar("v", 1);
    if (strategy.is_chief()) {
      EXPECT_THROW(variable->assign(Tensor::full(DType::kFloat32, {2}, 5)), Error);
    } else {
      variable->assign(Tensor::scalar(7.0f));
    }
    EXPECT_EQ(read_in_step(strategy, variable), std::vector{7.0});
  });
}

TEST_F(CommonVariableTest, FunctionsThatNoStrategyRunsWriteAsAssignDoes) {
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto variable = scalar("v", 1);
    const auto add = function([variable](const Value& x) { return variable->assign_add(x); });
    if (strategy.workers().rank() == 1) {
      EXPECT_EQ(add({Tensor::scalar(2.0f)})[0].item(), 3);
      variable->assign_add(Tensor::scalar(4.0f));
      variable->assign_sub(Tensor::scalar(1.0f));
    }
    meet(strategy);
    EXPECT_EQ(variable->value().item(), strategy.workers().rank() == 1 ? 6 : 1);
    EXPECT_EQ(read_in_step(strategy, variable), std::vector{6.0});
    EXPECT_EQ(add({Tensor::scalar(1.0f)})[0].item(), 7);  // on all, of what all see
  });
}

TEST_F(CommonVariableTest, RowsAreScatteredOutside) {
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto variable =
        create_variable({.name = "rows", .spec = {DType::kFloat32, {3, 1}}, .initial_value = [] {
                           return Tensor::full(DType::kFloat32, {3, 1}, 1);
                         }});
    variable->scatter(ScatterOp::kAdd, Tensor::from<int32_t>({2, 2}, {2}),
                      Tensor::full(DType::kFloat32, {2, 1}, 4));
    EXPECT_EQ(variable->value().data<float>()[2], 9);
    const auto total =
        strategy.function([variable](const Value&) { return ops::reduce_sum(variable->read()); });
    EXPECT_EQ(strategy.run(total, ids(strategy))[0].item(), 11);
  });
}

// As all memory of a process is by mlockall(), also that of a model that has been built.
TEST_F(CommonVariableTest, ValuesThatAreLockedInMemoryAreThoseOfTheLastStep) {
  const char locked = 0;
  if (mlock(&locked, 1) != 0) GTEST_SKIP() << "no memory may be locked here";
  munlock(&locked, 1);
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto variable =
        create_variable({.name = "rows", .spec = {DType::kFloat32, {2, 1}}, .initial_value = [] {
                           return Tensor::full(DType::kFloat32, {2, 1}, 1);
                         }});
    EXPECT_EQ(mlock(variable->storage_outside(0).raw(), variable->spec().bytes()), 0);
    const auto twice =
        strategy.function([variable](const Value&) { variable->assign(variable->read() * 2.0); });
    const auto expect_rows = [&](float first, float second) {
      const Tensor value = variable->value();
      EXPECT_EQ(value.data<float>()[0], first);
      EXPECT_EQ(value.data<float>()[1], second);
    };
    strategy.run(twice, ids(strategy));
    expect_rows(2, 2);
    if (strategy.workers().rank() == 1)
      variable->scatter(ScatterOp::kAdd, Tensor::from<int32_t>({1}, {1}),
                        Tensor::full(DType::kFloat32, {1, 1}, 5));
    strategy.run(twice, ids(strategy));
    expect_rows(4, 14);
    strategy.run(twice, ids(strategy));
    expect_rows(8, 28);
  });
}

TEST_F(CommonVariableTest, StepsWriteWhatAllReadAfterwards) {
  on_good_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto variable = scalar("v", 0, Synchronization::kAuto, Aggregation::kSum);
        const auto add =
            strategy.function([variable](const Value& x) { return variable->assign_add(x); });
        for (int n = 1; n <= 3; ++n) {
          const PerReplica<Tensor> seen = strategy.run(add, ids(strategy));
          for (size_t r = 0; r < 2; ++r) EXPECT_EQ(seen[r].item(), 10 * n);
          EXPECT_EQ(variable->value().item(), 10 * n);
        }
      },
      devices(2));
}

TEST_F(CommonVariableTest, OutlivesTheStrategy) {
  std::vector<std::shared_ptr<Variable>> kept(2);
  on_good_workers(2, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    kept[static_cast<size_t>(strategy.workers().rank())] = scalar("v", 3);
  });
  kept[1]->assign(Tensor::scalar(4.0f));
  EXPECT_EQ(kept[0]->value().item(), 3);
  kept[0].reset();
  EXPECT_EQ(kept[1]->value().item(), 4);
}

TEST_F(CommonVariableTest, AVariableThatIsGoneOnOneWorkerIsPublishedByAnother) {
  on_good_workers(3, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    auto gone = scalar("gone", 1);
    const auto variable = scalar("v", 1);
    const int rank = strategy.workers().rank();
    if (rank < 2) gone->assign(Tensor::scalar(10.0f + static_cast<float>(rank)));
    if (rank == 0) gone.reset();
    EXPECT_EQ(read_in_step(strategy, variable), std::vector{1.0});
    if (gone != nullptr) {
      EXPECT_EQ(gone->value().item(), 11);
    }
  });
}

TEST_F(CommonVariableTest, WhereThereIsNoCommonMemoryWorkersHaveCopies) {
  if (std::getenv("UBSAN_OPTIONS") != nullptr)
    GTEST_SKIP() << "a sanitizer that looks whether it may read an object needs descriptors";
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto common = scalar("common", 1);
    std::shared_ptr<Variable> copied;
    meet(strategy);
    {
      std::optional<testing::FewDescriptors> none;
      if (strategy.is_chief()) none.emplace(0);
      copied = scalar("copied", 2);
    }
    meet(strategy);
    EXPECT_TRUE(common->is_shared());
    EXPECT_FALSE(copied->is_shared());
    const auto swap = strategy.function([&](const Value&) {
      const Value before = common->read();
      common->assign(copied->read());
      copied->assign(before);
    });
    strategy.run(swap, ids(strategy));
    EXPECT_EQ(common->value().item(), 2);
    EXPECT_EQ(copied->value().item(), 1);
  });
}

TEST_F(CommonVariableTest, OtherBackendsKeepACopyForEachWorker) {
  MultiWorkerMirroredStrategy::Options options = devices(1);
  options.backend = CommunicationBackend::kTcp;
  on_good_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto variable = scalar("v", 1);
        EXPECT_EQ(variable->num_sharing(), 1);
        EXPECT_FALSE(variable->is_shared());
      },
      options);
}

TEST_F(CommonVariableTest, WhatEachReplicaWritesForItselfHasCopies) {
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    EXPECT_FALSE(scalar("m", 0, Synchronization::kOnRead, Aggregation::kSum)->is_shared());
    EXPECT_FALSE(scalar("n", 0, Synchronization::kNone)->is_shared());
  });
}

}  // namespace
}  // namespace cohort
