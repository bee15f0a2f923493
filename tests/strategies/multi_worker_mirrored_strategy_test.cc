#include "strategies/multi_worker_mirrored_strategy.h"

#include <chrono>
#include <cstring>
#include <new>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/data/dataset.h"
#include "core/data/distributed_dataset.h"
#include "core/distribute/packing.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "strategies/cluster/literal_resolver.h"
#include "tests/strategies/on_workers.h"
#include "tests/strategies/variables_testing.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::on_good_workers;
using testing::on_workers;
using Options = MultiWorkerMirroredStrategy::Options;

constexpr int kDevices = 4;

class MultiWorkerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(kDevices, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }

  static Options devices(int count) {
    Options options;
    for (int i = 0; i < count; ++i) options.devices.push_back(str("cpu:", i));
    return options;
  }
};

std::shared_ptr<Variable> scalar(const std::string& name, float value,
                                 Synchronization synchronization = Synchronization::kAuto,
                                 Aggregation aggregation = Aggregation::kNone) {
  return create_variable({.name = name,
                          .spec = {DType::kFloat32, {}},
                          .initial_value = [=] { return Tensor::scalar(value); },
                          .synchronization = synchronization,
                          .aggregation = aggregation});
}

// A number for each replica: its id in sync, from 1.
PerReplica<Tensor> ids(Strategy& strategy) {
  return strategy.distribute_values_from_function([](const ValueContext& context) {
    return Tensor::scalar(static_cast<float>(context.replica_id_in_sync_group + 1));
  });
}

TEST_F(MultiWorkerTest, AWorldOfOneIsMirrored) {
  MultiWorkerMirroredStrategy strategy(devices(3));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 3);
  EXPECT_EQ(strategy.first_replica(), 0);
  EXPECT_TRUE(strategy.is_chief());
  EXPECT_EQ(strategy.workers().size(), 1);
  EXPECT_EQ(strategy.reduce("sum", ids(strategy)).item(), 6);
}

TEST_F(MultiWorkerTest, ReplicasAreNumberedOverAllWorkers) {
  on_good_workers(
      3,
      [](MultiWorkerMirroredStrategy& strategy) {
        EXPECT_EQ(strategy.num_replicas_in_sync(), 6);
        EXPECT_EQ(strategy.first_replica(), 2 * strategy.workers().rank());
        EXPECT_EQ(strategy.is_chief(), strategy.first_replica() == 0);
        const InputContext context = strategy.input_context();
        EXPECT_EQ(context.num_input_pipelines, 3);
        EXPECT_EQ(context.input_pipeline_id, strategy.workers().rank());
        const auto step = strategy.function(
            [](const Value&) { return get_replica_context()->replica_id_in_sync_group(); });
        const auto found = strategy.run(step, ids(strategy));
        EXPECT_EQ(found[1].item(), strategy.first_replica() + 1);
      },
      devices(2));
}

TEST_F(MultiWorkerTest, WorkersWithDifferentNumbersOfDevicesAreNamed) {
  const auto links = make_in_process_links(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (const auto& link : links)
    threads.emplace_back([&errors, link] {
      Options options = devices(link->rank() + 1);
      options.link = link;
      try {
        MultiWorkerMirroredStrategy strategy(options);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kInvalidArgument);
        errors[static_cast<size_t>(link->rank())] = error.message();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(errors, Each("every worker needs the same number of devices, but worker:0 has 1 and "
                           "worker:1 has 2"));
}

TEST(MultiWorkerMirroredStrategyTest, AParameterServerIsToldWhereItBelongs) {
  const ClusterSpec cluster({{"worker", {"a:1", "b:1"}}, {"ps", {"c:1"}}});
  Options options;
  options.resolver = std::make_shared<LiteralResolver>(
      cluster, LiteralResolverOptions{.task_type = "ps", .task_id = 0});
  try {
    const MultiWorkerMirroredStrategy strategy(options);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("ParameterServerStrategy"));
  }
}

// --- Values between steps

TEST_F(MultiWorkerTest, ReduceAndGatherGoOverAllWorkers) {
  for (const int workers : {1, 2, 4})
    on_good_workers(workers, [&](MultiWorkerMirroredStrategy& strategy) {
      const int n = workers;
      EXPECT_EQ(strategy.reduce("sum", ids(strategy)).item(), n * (n + 1) / 2);
      EXPECT_EQ(strategy.reduce("mean", ids(strategy)).item(), (n + 1) / 2.0);
      // Worker r has r rows of r: their true number counts.
      const int64_t r = strategy.workers().rank();
      const PerReplica<Tensor> rows = {Tensor::full(DType::kInt32, {r, 2}, static_cast<double>(r))};
      double sum = 0, count = 0;
      for (int i = 0; i < n; ++i) {
        sum += i * i;
        count += i;
      }
      EXPECT_EQ(strategy.reduce("sum", rows, 0).data<int32_t>()[1], sum);
      if (n > 1) {
        EXPECT_EQ(strategy.reduce("mean", rows, 0).data<double>()[0], sum / count);
      }
      const Tensor all = strategy.gather(rows, 0);
      EXPECT_EQ(all.shape(), Shape({static_cast<int64_t>(count), 2}));
      if (n == 4) {
        EXPECT_EQ(all.data<int32_t>()[all.num_elements() - 1], 3);
      }
    });
}

TEST_F(MultiWorkerTest, AMistakeOfOneWorkerIsAnErrorOnAll) {
  const auto errors = on_workers(3, [](MultiWorkerMirroredStrategy& strategy) {
    PerReplica<Tensor> value = ids(strategy);
    if (strategy.workers().rank() == 1) value = PerReplica<Tensor>(4);
    strategy.reduce("sum", value);
  });
  EXPECT_THAT(errors,
              Each("INVALID_ARGUMENT: MultiWorkerMirroredStrategy has 1 replicas, got values "
                   "of 4 (peer worker:1)"));
}

TEST_F(MultiWorkerTest, AfterAMistakeTheNextCallWorks) {
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    for (int i = 0; i < 3; ++i) {
      const bool wrong = strategy.workers().rank() == i % 2;
      EXPECT_THROW(strategy.reduce("sum", wrong ? PerReplica<Tensor>(2) : ids(strategy)), Error);
      EXPECT_EQ(strategy.reduce("sum", ids(strategy)).item(), 3);
    }
  });
}

TEST_F(MultiWorkerTest, DifferentCallsAreAnErrorThatNamesBoth) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    if (strategy.is_chief())
      strategy.reduce("sum", ids(strategy));
    else
      strategy.gather(PerReplica<Tensor>{Tensor::full(DType::kFloat32, {1}, 0)}, 0);
  });
  EXPECT_THAT(errors, Each(HasSubstr("worker:0 is at a reduce and worker:1 at a gather")));
}

TEST_F(MultiWorkerTest, ACallThatOneWorkerDoesNotMakeTimesOut) {
  Options options = devices(1);
  options.worker_timeout = std::chrono::seconds(3);  // in which all have to start
  std::mutex mutex;
  std::condition_variable changed;
  bool timed_out = false;
  const auto errors = on_workers(
      2,
      [&](MultiWorkerMirroredStrategy& strategy) {
        std::unique_lock lock(mutex);
        if (strategy.is_chief()) {
          lock.unlock();
          try {
            strategy.reduce("sum", ids(strategy));
            ADD_FAILURE() << "a worker did not make the call";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Code::kDeadlineExceeded);
            EXPECT_THAT(
                error.message(),
                HasSubstr("a reduce: worker:0 has waited for 3 s in AllGather for worker:1"));
            EXPECT_EQ(error.peer(), "worker:1");
          }
          lock.lock();
          timed_out = true;
          changed.notify_all();
        } else {
          EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return timed_out; }));
        }
      },
      options);
  EXPECT_THAT(errors, Each(""));
}

// --- Variables

TEST_F(MultiWorkerTest, AllCopiesStartFromTheChiefsValue) {
  on_good_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto v = scalar("v", 5.0f + static_cast<float>(strategy.workers().rank()));
        for (const int copy : {0, 1}) EXPECT_EQ(v->storage(copy).item(), 5);
        EXPECT_EQ(v->value().item(), 5);
      },
      devices(2));
}

TEST_F(MultiWorkerTest, VariablesCreatedInAnotherOrderAreNamed) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    scalar(strategy.is_chief() ? "first" : "second", 0);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("\"first\""),
                                 HasSubstr("\"second\""))));
}

TEST_F(MultiWorkerTest, VariablesSynchronisedOnReadMergeOverAllWorkers) {
  on_good_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto sum = scalar("sum", 0, Synchronization::kOnRead, Aggregation::kSum),
                   mean = scalar("mean", 0, Synchronization::kOnRead, Aggregation::kMean),
                   first =
                       scalar("first", 0, Synchronization::kOnRead, Aggregation::kOnlyFirstReplica);
        const auto step = strategy.function([&](const Value& x) {
          sum->assign_add(x);
          mean->assign(x);
          first->assign(x);
          return x;
        });
        for (int i = 0; i < 2; ++i) strategy.run(step, ids(strategy));
        EXPECT_EQ(sum->value().item(), 2 * (1 + 2 + 3 + 4));
        EXPECT_EQ(mean->value().item(), 2.5);
        EXPECT_EQ(first->value().item(), 1) << "of replica 0 of all";
        sum->assign(Tensor::scalar(8.0f));
        EXPECT_EQ(sum->storage(1).item(), 2);
        EXPECT_EQ(sum->value().item(), 8);
      },
      devices(2));
}

TEST_F(MultiWorkerTest, AFunctionThatNoStrategyRunsCannotMergeOverAllWorkers) {
  on_good_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        for (const auto aggregation :
             {Aggregation::kSum, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
          const auto v = scalar("v", 3, Synchronization::kOnRead, aggregation);
          const auto refused = [&](const std::function<Value()>& body) {
            const Function f([&](const std::vector<Value>&) { return std::vector{body()}; });
            EXPECT_THAT(error_of(Code::kFailedPrecondition, [&] { f(std::vector<Tensor>()); }),
                        AllOf(HasSubstr("variable \"v\""), HasSubstr("value()"),
                              HasSubstr("assign(const Tensor&)")));
          };
          refused([&] { return v->read(); });
          refused([&] { return v->assign(ops::constant(7, DType::kFloat32)); });
        }
        const auto mean = scalar("mean", 3, Synchronization::kOnRead, Aggregation::kMean);
        mean->assign_add(Tensor::scalar(2.0f));
        mean->assign_sub(Tensor::scalar(1.0f));
        EXPECT_EQ(mean->value().item(), 4);
        // What every worker has whole can be read there.
        const auto whole = scalar("whole", 3);
        const Function f([&](const std::vector<Value>&) { return std::vector{whole->read()}; });
        EXPECT_EQ(f(std::vector<Tensor>())[0].item(), 3);
      },
      devices(2));
}

// --- Steps

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
    const Value loss = ops::reduce_sum(error * error) / static_cast<double>(batch.global_rows());
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

// --- Packing

TEST(Packing, ReadsWhatItWroteAndNothingElse) {
  Packer packer;
  packer.add(int64_t{-3});
  packer.add(std::string_view("text"));
  packer.add(Signature{{DType::kInt32, {2, 0}}, {DType::kBool, {}}});
  packer.add(Tensor::from<float>({1, 2, 3}, {3}));
  packer.add(Error(Code::kDataLoss, "garbled", "worker:1"));
  packer.add(Error(static_cast<Code>(246), "of no code"));
  Unpacker unpacker(packer.bytes());
  EXPECT_EQ(unpacker.number(), -3);
  EXPECT_EQ(unpacker.text(), "text");
  EXPECT_EQ(unpacker.signature(), (Signature{{DType::kInt32, {2, 0}}, {DType::kBool, {}}}));
  EXPECT_EQ(unpacker.tensor().data<float>()[2], 3);
  EXPECT_STREQ(unpacker.error().what(), "DATA_LOSS: garbled (peer worker:1)");
  EXPECT_EQ(unpacker.error().code(), Code::kUnknown);
  EXPECT_TRUE(unpacker.at_end());
}

TEST(Packing, ReadsBoolsThatAreZeroOrOne) {
  Tensor bools(DType::kBool, {2});
  std::memset(bools.raw(), 2, bools.bytes());
  Packer packer;
  packer.add(bools);
  const Tensor read = Unpacker(packer.bytes()).tensor();
  EXPECT_EQ(std::string_view(static_cast<const char*>(read.raw()), 2), "\1\1");
}

TEST(Packing, RefusesEveryCutAndEveryChangedByteOrReadsAValue) {
  Packer packer;
  packer.add(Signature{{DType::kInt32, {2, 3}}});
  packer.add(Tensor::from<float>({1, 2, 3}, {3}));
  const std::string whole = packer.bytes();
  const auto read = [](std::string_view bytes) {
    Unpacker unpacker(bytes);
    unpacker.signature();
    unpacker.tensor();
  };
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(read(std::string_view(whole).substr(0, size)), Error) << size;
  for (size_t i = 0; i < whole.size(); ++i)
    for (const char change : {'\x01', '\x80', '\xff'}) {
      std::string garbled = whole;
      garbled[i] = static_cast<char>(garbled[i] ^ change);
      try {
        read(garbled);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kDataLoss) << error.what();
      }
    }
}

}  // namespace
}  // namespace cohort
