// Steps of several workers: what they compute together, and what a worker that errs does to all.
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/data/dataset.h"
#include "core/data/distributed_dataset.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "tests/strategies/multi_worker_testing.h"
#include "tests/strategies/variables_testing.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::ids;
using testing::MultiWorkerTest;
using testing::on_good_workers;
using testing::on_workers;
using testing::scalar;

// What ends a test whose workers wait for each other in vain.
MultiWorkerMirroredStrategy::Options impatient() {
  return {.devices = {"cpu:0"}, .worker_timeout = std::chrono::seconds(20)};
}

// Workers run the program with values of their own, which may differ.
TEST_F(MultiWorkerTest, AnArgumentThatAWorkerGivesAllItsReplicasIsNotTheSameOnAll) {
  on_good_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto assigned = [&](Aggregation aggregation) {
          const auto v = scalar("v", 0, Synchronization::kAuto, aggregation);
          const auto step = strategy.function([&](const Value& x) { return v->assign(x); });
          strategy.run(step, static_cast<float>(strategy.first_replica() + 1));  // 1 and 3
          EXPECT_EQ(v->storage(1).item(), v->storage(0).item());
          return v->value().item();
        };
        EXPECT_EQ(assigned(Aggregation::kMean), 2);
        EXPECT_EQ(assigned(Aggregation::kOnlyFirstReplica), 1);
        EXPECT_EQ(assigned(Aggregation::kSum), 8);
        EXPECT_THAT(error_of(Code::kInvalidArgument, [&] { assigned(Aggregation::kNone); }),
                    HasSubstr("each replica writes a value of its own"));
      },
      devices(2));
}

// Two steps over eight rows, in numbers that need no rounding: 1, 0.5, 0.6875.
float trained_weight(Strategy& strategy) {
  const auto scope = strategy.scope();
  const auto w = scalar("w", 1);
  const auto optimizer = optim::SGD(0.5);
  const auto step = strategy.function([&](const BatchValues& batch) {
    const Value error = w->read() * batch["x"] - 1.0;
    Value loss = ops::reduce_sum(error * error) / static_cast<double>(batch.global_rows());
    optimizer.minimize(loss, {w});
    return loss;
  });
  const auto rows =
      data::from_tensor_slices({{"x", Tensor::from<float>({0, 1, 2, 0, 1, 2, 0, 1}, {8})}});
  for (const auto& batch : strategy.distribute_dataset(rows.batch(8).repeat(2)))
    strategy.run(step, batch);
  return static_cast<float>(w->value().item());
}

// Where there are more replicas than rows, some have none.
TEST_F(MultiWorkerTest, EveryWorldOfUpToEightWorkersAndFourDevicesTrainsAlike) {
  EXPECT_EQ(trained_weight(default_strategy()), 0.6875f);
  for (int workers = 1; workers <= 8; ++workers)
    for (int count = 1; count <= kDevices; ++count) {
      SCOPED_TRACE(str(workers, " workers of ", count));
      on_good_workers(
          workers,
          [&](MultiWorkerMirroredStrategy& strategy) {
            EXPECT_EQ(strategy.num_replicas_in_sync(), workers * count);
            EXPECT_EQ(trained_weight(strategy), 0.6875f);
          },
          devices(count));
    }
}

TEST_F(MultiWorkerTest, WorkersAtDifferentStepsAreAnErrorThatNamesBoth) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const Function f = function([](Value x) { return x + x; }, "double");
    const PerReplica<std::vector<Tensor>> input = {{Tensor::scalar(1.0f)}};
    strategy.run(f, input, {.step = strategy.is_chief() ? 7 : 8});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("worker:0 is at step 7 of \"double\""),
                                 HasSubstr("worker:1 at step 8 of \"double\""))));
}

TEST_F(MultiWorkerTest, AnErrorOfOneReplicaIsThrownByAllAlike) {
  for (int failing = 0; failing < 4; ++failing) {
    const auto errors = on_workers(
        2,
        [&](MultiWorkerMirroredStrategy& strategy) {
          const auto scope = strategy.scope();
          const auto step = strategy.function([](const Value& id) {
            const Value table = ops::constant(Tensor::full(DType::kFloat32, {4, 1}, 1));
            return get_replica_context()->all_reduce(ReduceOp::kSum, ops::gather(table, id));
          });
          const auto id = [&](int wrong) {
            return strategy.distribute_values_from_function([&](const ValueContext& context) {
              const int64_t row = context.replica_id_in_sync_group == wrong ? 9 : 2;
              return Tensor::from<int64_t>({row}, {1});
            });
          };
          EXPECT_EQ(strategy.run(step, id(-1))[0].item(), 4);
          EXPECT_THROW(strategy.run(step, id(failing)), Error);
          EXPECT_EQ(strategy.run(step, id(-1))[1].item(), 4) << "the next step works";
          strategy.run(step, id(failing));
        },
        devices(2));
    EXPECT_THAT(errors, Each(HasSubstr("OUT_OF_RANGE")));
    EXPECT_EQ(errors[0], errors[1]);
  }
}

// A step that adds what all replicas have to a variable, which worker 1 cannot trace.
auto untraceable(Strategy& strategy, const std::shared_ptr<Variable>& total,
                 const std::function<void()>& mistake) {
  return strategy.function([&strategy, total, mistake](const Value& x) {
    if (strategy.workers().rank() == 1) mistake();
    return total->assign_add(x);
  });
}

TEST_F(MultiWorkerTest, AnErrorOfOneWorkerThatTracesIsThrownByAllAlike) {
  const auto errors = on_workers(3, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto total = scalar("total", 0, Synchronization::kAuto, Aggregation::kSum);
    const auto bad =
        untraceable(strategy, total, [] { fail(Code::kNotFound, "there is no layer \"x\""); });
    const auto good = untraceable(strategy, total, [] {});
    EXPECT_EQ(strategy.run(good, ids(strategy))[0].item(), 6);
    EXPECT_THROW(strategy.run(bad, ids(strategy)), Error);
    EXPECT_EQ(strategy.run(good, ids(strategy))[0].item(), 12) << "the next step works";
    strategy.run(bad, ids(strategy));
  });
  EXPECT_THAT(errors, Each("NOT_FOUND: there is no layer \"x\" (peer worker:1)"));
}

TEST_F(MultiWorkerTest, WrongArgumentsOfOneWorkerAreAnErrorOnAll) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto step = strategy.function(
        [](const Value& x) { return get_replica_context()->all_reduce(ReduceOp::kSum, x); });
    const auto wrong = [&] {
      strategy.run(step, strategy.is_chief() ? ids(strategy) : PerReplica<Tensor>(4));
    };
    EXPECT_THROW(wrong(), Error);
    EXPECT_EQ(strategy.run(step, ids(strategy))[0].item(), 3) << "the next step works";
    wrong();
  });
  EXPECT_THAT(errors, Each("INVALID_ARGUMENT: an argument of run has values for 4 replicas; the "
                           "strategy has 1 (peer worker:1)"));
}

TEST_F(MultiWorkerTest, AnotherNumberOfArgumentsOnOneWorkerIsAnErrorOnAll) {
  const auto errors = on_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto one = strategy.function([](const Value& x) { return x + x; }, "add");
        const auto two =
            strategy.function([](const Value& x, const Value& y) { return x + y; }, "add");
        const auto add = [&] {
          return strategy.is_chief() ? strategy.run(one, 1.0f) : strategy.run(two, 1.0f, 2.0f);
        };
        EXPECT_THROW(add(), Error);
        const auto next = strategy.function([](const Value& x) { return x + x; });
        EXPECT_EQ(strategy.run(next, 3.0f)[0].item(), 6) << "the next step works";
        add();
      },
      devices(2));
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("FAILED_PRECONDITION"),
                                 HasSubstr("worker:0 is at step 1 of \"add\""),
                                 HasSubstr(" with 1 tensors"), HasSubstr("worker:1 with 2"))));
}

TEST_F(MultiWorkerTest, ATensorWithoutAValueOfOneWorkerIsAnErrorOnAll) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto step = strategy.function(
        [](const Value& x) { return get_replica_context()->all_reduce(ReduceOp::kSum, x); });
    const auto given = strategy.is_chief() ? ids(strategy) : PerReplica<Tensor>(1);
    EXPECT_THROW(strategy.reduce("sum", given), Error);
    EXPECT_THROW(strategy.gather(given, 0), Error);
    EXPECT_THROW(strategy.run(step, given), Error);
    EXPECT_EQ(strategy.run(step, ids(strategy))[0].item(), 3) << "the next step works";
    strategy.run(step, given);
  });
  EXPECT_THAT(errors,
              Each("INVALID_ARGUMENT: function \"step\": input 0 of replica 0 has no value; "
                   "it was never assigned (peer worker:1)"));
}

TEST_F(MultiWorkerTest, AnotherExceptionOfOneWorkerThatTracesArrivesThereAsItWasThrown) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto total = scalar("total", 0, Synchronization::kAuto, Aggregation::kSum);
    strategy.run(untraceable(strategy, total, [] { throw std::runtime_error("no more tea"); }),
                 ids(strategy));
  });
  EXPECT_EQ(errors[0], "ABORTED: no more tea (peer worker:1)");
  EXPECT_EQ(errors[1], "no more tea");
}

TEST_F(MultiWorkerTest, MemoryThatOneWorkerDoesNotHaveIsAnErrorOnAll) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto total = scalar("total", 0, Synchronization::kAuto, Aggregation::kSum);
    strategy.run(untraceable(strategy, total, [] { throw std::bad_alloc(); }), ids(strategy));
  });
  EXPECT_THAT(errors, Each("RESOURCE_EXHAUSTED: there is no memory: std::bad_alloc (peer "
                           "worker:1)"));
}

// Whose steps communicate alike, so that nothing else notices.
TEST_F(MultiWorkerTest, AWorkerThatHasTracedAnotherProgramIsNamed) {
  const std::function<Value(const Value&)> programs[] = {
      [](const Value& x) { return x * 0.1; },
      [](const Value& x) { return x * 0.2; },      // another constant
      [](const Value& x) { return ops::relu(x); }  // another op
  };
  for (const size_t stale : {1, 2}) {
    const auto errors = on_workers(3, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto& program = programs[strategy.workers().rank() == 2 ? stale : 0];
      const auto step = strategy.function(
          [&](const Value& x) {
            return get_replica_context()->all_reduce(ReduceOp::kSum, program(x));
          },
          "train");
      strategy.run(step, ids(strategy));
      EXPECT_THROW(strategy.run(step, ids(strategy)), Error);
      strategy.run(step, ids(strategy));
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("FAILED_PRECONDITION: every worker has to run the "
                                             "same program, but worker:0 and worker:2 have traced "
                                             "\"train\" differently"),
                                   HasSubstr("(peer worker:2)"))));
  }
}

// As a rule at the next step, which there may not be.
TEST_F(MultiWorkerTest, AWorkerThatHasTracedAnotherProgramInTheLastStepIsNamedAtTheEnd) {
  ::testing::internal::CaptureStderr();
  on_good_workers(2, [&](MultiWorkerMirroredStrategy& strategy) {
    const float factor = strategy.is_chief() ? 0.1f : 0.2f;
    const auto step = strategy.function(
        [&](const Value& x) {
          return get_replica_context()->all_reduce(ReduceOp::kSum, x * factor);
        },
        "train");
    strategy.run(step, ids(strategy));
  });
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("FAILED_PRECONDITION: MultiWorkerMirroredStrategy: every worker has to run the "
                "same program, but worker:0 and worker:1 have traced \"train\" "));
}

// Else the others would wait for it, as long as worker_timeout is.
TEST_F(MultiWorkerTest, AWorkerWhoseStepCommunicatesLessIsNamedBeforeItRuns) {
  for (const int wanted : {0, 2}) {
    const auto errors = on_workers(2, [&](MultiWorkerMirroredStrategy& strategy) {
      const int calls = strategy.is_chief() ? 1 : wanted;
      const auto step = strategy.function(
          [&](Value x) {
            for (int i = 0; i < calls; ++i)
              x = get_replica_context()->all_reduce(ReduceOp::kSum, x);
            return x;
          },
          "train");
      EXPECT_THROW(strategy.run(step, ids(strategy)), Error);
      EXPECT_THROW(strategy.run(step, ids(strategy)), Error);
      strategy.run(step, ids(strategy));
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("FAILED_PRECONDITION: every worker has to run the "
                                             "same program, but worker:0 and worker:1 have traced "
                                             "\"train\" differently"))));
  }
  const auto errors = on_workers(2, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto step = strategy.function(
        [&](const Value& x) {
          return strategy.is_chief() ? get_replica_context()->all_reduce(ReduceOp::kSum, x) : x;
        },
        "train");
    strategy.run(step, ids(strategy));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("in \"train\" as number 1 worker:0 does AllReduce"),
                                 HasSubstr("and worker:1 nothing (peer worker:1)"))));
}

// As of two models, whose steps have one name. What is new to one worker alone, too, is compared.
TEST_F(MultiWorkerTest, AWorkerWhoseSecondFunctionOfANameCommunicatesLessIsNamedBeforeItRuns) {
  for (const bool is_new_to_all : {true, false}) {
    SCOPED_TRACE(is_new_to_all);
    const auto errors = on_workers(
        2,
        [&](MultiWorkerMirroredStrategy& strategy) {
          const auto sum = [](const Value& x) {
            return get_replica_context()->all_reduce(ReduceOp::kSum, x);
          };
          const auto first = strategy.function(sum);
          for (int i = 0; i < 2; ++i) EXPECT_EQ(strategy.run(first, ids(strategy))[0].item(), 3);
          const auto more = strategy.function(sum);
          const auto less = strategy.function([](const Value& x) { return x; });
          const auto& second = !strategy.is_chief() ? less : is_new_to_all ? more : first;
          second.continue_at(2);
          strategy.run(second, ids(strategy));
        },
        impatient());
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("FAILED_PRECONDITION"),
                                   HasSubstr("in \"step\" as number 1 worker:0 does AllReduce"),
                                   HasSubstr("and worker:1 nothing (peer worker:1)"))));
  }
}

TEST_F(MultiWorkerTest, AFunctionThatAWorkerCouldNotTraceIsComparedWhenItCan) {
  const auto errors = on_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        bool lucky = strategy.is_chief();
        const auto step = strategy.function([&](const Value& x) {
          if (!lucky) fail(Code::kAborted, "not this time");
          return strategy.is_chief() ? get_replica_context()->all_reduce(ReduceOp::kSum, x) : x;
        });
        EXPECT_THROW(strategy.run(step, ids(strategy)), Error);
        lucky = true;
        strategy.run(step, ids(strategy));
      },
      impatient());
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("in \"step\" as number 1 worker:0 does AllReduce"),
                                 HasSubstr("and worker:1 nothing (peer worker:1)"))));
}

PerReplica<Tensor> ones(int64_t rows) { return {Tensor::full(DType::kFloat32, {rows}, 1)}; }

TEST_F(MultiWorkerTest, AWorkerThatHasTracedAnotherProgramForOtherRowsIsNamed) {
  for (const double stale : {0.1, 0.2}) {
    const auto errors = on_workers(3, [&](MultiWorkerMirroredStrategy& strategy) {
      const int rank = strategy.workers().rank();
      const double rate = rank == 2 ? stale : 0.1;
      const auto step = strategy.function(
          [&](const Value& x) {
            return get_replica_context()->all_reduce(ReduceOp::kSum, ops::reduce_sum(x) * rate);
          },
          "train");
      for (int i = 0; i < 2; ++i) strategy.run(step, ones(rank == 1 ? 4 : 5));
    });
    if (stale == 0.1)
      EXPECT_THAT(errors, Each(""));
    else
      EXPECT_THAT(errors, Each(AllOf(HasSubstr("FAILED_PRECONDITION: every worker has to run the "
                                               "same program, but worker:0 and worker:2 have "
                                               "traced \"train\" differently"),
                                     HasSubstr("(peer worker:2)"))));
  }
}

// What a step computes from its row count, and a variable that its first trace makes.
TEST_F(MultiWorkerTest, TheSameProgramMayComputeWithTheRowsOfEachWorker) {
  on_good_workers(3, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    std::shared_ptr<Variable> total;
    const auto step = strategy.function([&](const Value& x) {
      if (total == nullptr) total = scalar("total", 0, Synchronization::kAuto, Aggregation::kSum);
      const auto rows = static_cast<double>(x.shape()[0]);
      return total->assign_add(ops::reduce_sum(x) * rows + rows);
    });
    const std::vector<std::vector<int64_t>> batches = {{2, 1, 0}, {2, 2, 2}, {1, 2, 2}, {3, 3, 1}};
    float expected = 0;
    for (const auto& sizes : batches)
      for (int i = 0; i < 2; ++i) {
        for (const int64_t size : sizes) expected += static_cast<float>(size * size + size);
        const int64_t own = sizes[static_cast<size_t>(strategy.workers().rank())];
        EXPECT_EQ(strategy.run(step, ones(own))[0].item(), expected);
      }
  });
}

// Each has rows of its own, and after a failure one traces what the others have already.
TEST_F(MultiWorkerTest, WorkersThatTraceTheSameProgramAtOtherTimesGoOn) {
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    bool lucky = strategy.is_chief();
    const auto step = strategy.function([&](const Value& x) {
      if (!lucky) fail(Code::kAborted, "not this time");
      return get_replica_context()->all_reduce(ReduceOp::kSum, ops::reduce_sum(x));
    });
    const auto rows = [](int64_t count) {
      return PerReplica<Tensor>{Tensor::full(DType::kFloat32, {count}, 1)};
    };
    EXPECT_THROW(strategy.run(step, rows(2)), Error);
    lucky = true;
    for (int i = 0; i < 2; ++i) EXPECT_EQ(strategy.run(step, rows(2))[0].item(), 4);
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(strategy.run(step, rows(strategy.is_chief() ? 3 : 4))[0].item(), 7);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(strategy.run(step, rows(4))[0].item(), 8);
  });
}

TEST_F(MultiWorkerTest, TheEndOfOneWorkerEndsAllThatWait) {
  const auto errors = on_workers(3, [](MultiWorkerMirroredStrategy& strategy) {
    if (strategy.workers().rank() == 2) throw std::runtime_error("no more coffee");
    strategy.reduce("sum", ids(strategy));
  });
  EXPECT_EQ(errors[2], "no more coffee");
  for (const int survivor : {0, 1})
    EXPECT_THAT(errors[static_cast<size_t>(survivor)],
                AllOf(HasSubstr("worker:2 has ended because of an error of its own"),
                      HasSubstr("(peer worker:2)")));
}

TEST_F(MultiWorkerTest, TheEndOfOneWorkerEndsAStepThatWaits) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto step = strategy.function(
        [](const Value& x) { return get_replica_context()->all_reduce(ReduceOp::kSum, x); });
    for (int i = 0; i < 5; ++i) {
      if (i == 3 && !strategy.is_chief()) throw std::runtime_error("gone");
      strategy.run(step, ids(strategy));
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("peer worker:1"));
}

}  // namespace
}  // namespace cohort
