#include "strategies/multi_worker_mirrored_strategy.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/temporary_folder.h"
#include "core/data/distributed_dataset.h"
#include "core/data/files.h"
#include "core/ops/math_ops.h"
#include "core/train/checkpoint.h"
#include "strategies/cluster/literal_resolver.h"
#include "tests/strategies/multi_worker_testing.h"
#include "tests/strategies/variables_testing.h"
#include "tests/testing/error_of.h"

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
using Options = MultiWorkerMirroredStrategy::Options;

TEST_F(MultiWorkerTest, AWorldOfOneIsMirrored) {
  MultiWorkerMirroredStrategy strategy(devices(3));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 3);
  EXPECT_EQ(strategy.first_replica(), 0);
  EXPECT_TRUE(strategy.is_chief());
  EXPECT_EQ(strategy.workers().size(), 1);
  EXPECT_EQ(strategy.reduce("sum", ids(strategy)).item(), 6);
}

// Of several such processes each would be a success.
TEST_F(MultiWorkerTest, AWorldOfOneThatALauncherHalfDescribesIsToldOnce) {
  setenv("JOB_COMPLETION_INDEX", "0", 1);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(MultiWorkerMirroredStrategy(devices(1)).workers().size(), 1);
  const std::string told = ::testing::internal::GetCapturedStderr();
  unsetenv("JOB_COMPLETION_INDEX");
  const std::string alone = "warning: this process trains alone: this is a pod of an ";
  EXPECT_EQ(told.find(alone), told.rfind(alone));
  EXPECT_THAT(told, AllOf(HasSubstr(alone), HasSubstr("COHORT_KUBERNETES_SERVICE"),
                          HasSubstr("TF_CONFIG='{}'")));
}

TEST_F(MultiWorkerTest, ReplicasOfAWorldOfOneShareTheirVariables) {
  MultiWorkerMirroredStrategy strategy(devices(3));
  const auto scope = strategy.scope();
  const auto variable = scalar("v", 1, Synchronization::kAuto, Aggregation::kSum);
  EXPECT_EQ(variable->num_sharing(), 3);
  const auto add =
      strategy.function([variable](const Value& x) { return variable->assign_add(x); });
  for (const Tensor& seen : strategy.run(add, ids(strategy))) EXPECT_EQ(seen.item(), 7);
  EXPECT_EQ(variable->value().item(), 7);
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
  EXPECT_THAT(error_of(Code::kInvalidArgument,
                       [&] { const MultiWorkerMirroredStrategy strategy(options); }),
              HasSubstr("ParameterServerStrategy"));
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

// What is not distributed is each worker's own, and never left as it is.
TEST_F(MultiWorkerTest, OneValueOfEachWorkerIsReducedOverTheWorkers) {
  for (const int replicas : {1, 2})
    on_good_workers(
        2,
        [](MultiWorkerMirroredStrategy& strategy) {
          const float own = strategy.is_chief() ? 1 : 3;
          const Tensor loss = Tensor::scalar(own);
          EXPECT_EQ(strategy.reduce(ReduceOp::kMean, loss).item(), 2);
          EXPECT_EQ(strategy.reduce("sum", loss).item(), 4);
          EXPECT_EQ(strategy.reduce(ReduceOp::kMean, {loss}).item(), 2) << "braces";
          // Worker r has 2 r + 1 rows of its number: 1, 3, 3, 3.
          const Tensor rows = Tensor::full(DType::kFloat32, {static_cast<int64_t>(own)}, own);
          EXPECT_EQ(strategy.reduce("sum", rows, 0).item(), 10);
          EXPECT_EQ(strategy.reduce("mean", rows, 0).item(), 2.5);
        },
        devices(replicas));
}

TEST_F(MultiWorkerTest, AMistakeOfOneWorkerInAValueOfItsOwnIsAnErrorOnAll) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    strategy.reduce(ReduceOp::kMean, strategy.is_chief() ? Tensor::scalar(1.0F) : Tensor());
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("the tensor has no value"), HasSubstr("worker:1"))));
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

TEST_F(MultiWorkerTest, AMistakeThatIsMadeTwiceIsToldTwice) {
  on_good_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const PerReplica<Tensor> given = strategy.is_chief() ? ids(strategy) : PerReplica<Tensor>(2);
    for (int i = 0; i < 3; ++i) EXPECT_THROW(strategy.reduce("sum", given), Error);
    EXPECT_EQ(strategy.reduce("sum", ids(strategy)).item(), 3);
  });
}

TEST_F(MultiWorkerTest, DifferentCallsAreAnErrorThatNamesBoth) {
  const auto errors = on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    if (strategy.is_chief())
      strategy.reduce("sum", ids(strategy));
    else
      strategy.gather(PerReplica<Tensor>{Tensor::full(DType::kFloat32, {1}, 0)}, 0);
  });
  EXPECT_THAT(
      errors,
      Each(HasSubstr("worker:0 is at a reduce by sum and worker:1 at a gather along axis 0")));
}

TEST_F(MultiWorkerTest, CallsWithOtherArgumentsAreAnErrorOnAllAndNoWrongNumber) {
  using Work = std::function<void(Strategy&, bool is_odd)>;
  const auto rows = [] { return PerReplica<Tensor>{Tensor::full(DType::kFloat64, {2, 2}, 1)}; };
  const std::pair<Work, std::string> calls[] = {
      {[](Strategy& s, bool is_odd) { s.reduce(is_odd ? "mean" : "sum", ids(s)); },
       "worker:0 is at a reduce by sum and worker:1 at a reduce by mean"},
      {[](Strategy& s, bool is_odd) { s.reduce(is_odd ? ReduceOp::kMax : ReduceOp::kSum, ids(s)); },
       "not by max"},
      {[&](Strategy& s, bool is_odd) {
         s.reduce(ReduceOp::kSum, rows(), is_odd ? std::nullopt : std::optional<int64_t>(1));
       },
       "worker:0 is at a reduce by sum along axis 1 of float64 and worker:1 at a reduce by sum"},
      {[](Strategy& s, bool is_odd) {
         const Shape shape{2, is_odd ? 3 : 2};
         s.reduce(ReduceOp::kSum, PerReplica<Tensor>{Tensor::zeros(DType::kFloat64, shape)}, 0);
       },
       "the sums along axis 0: replica 0 has float64[2] but replica 1 has float64[3]"},
      {[&](Strategy& s, bool is_odd) { s.gather(rows(), is_odd ? 0 : 1); },
       "worker:0 is at a gather along axis 1 and worker:1 at a gather along axis 0"},
      {[](Strategy& s, bool is_odd) {
         s.distribute_dataset(data::range(16).batch(is_odd ? 4 : 8).take(2));
       },
       "worker:0 is at the distribution of 2 batches, batch(8) of 16 elements, divided by file or "
       "element and worker:1 at the distribution of 2 batches, batch(4) of 16 elements"},
      {[](Strategy& s, bool is_odd) {
         s.distribute_dataset(data::range(is_odd ? 15 : 14).batch(8));
       },
       "of 2 batches, batch(8) of 14 elements, divided by file or element and worker:1 at the "
       "distribution of 2 batches, batch(8) of 15 elements"},
      {[](Strategy& s, bool is_odd) {
         const auto read = [](const std::string&) { return data::range(1); };
         const auto in_order = [&](std::vector<std::string> names) {
           if (is_odd) std::reverse(names.begin(), names.end());
           return data::from_files(names, read).batch(2);
         };
         s.distribute_dataset(in_order({"a", "b"}), {.auto_shard = AutoShardPolicy::kOff});
         s.distribute_dataset(in_order({"a", "b"}));
       },
       "worker:0 is at the distribution of uncounted batches, batch(2) of uncounted elements, 2 "
       "files (checksum of their names, in order: "},
      {[](Strategy& s, bool is_odd) {
         s.distribute_dataset(data::range(7).batch(2), {.prefetch = is_odd ? -1 : 1});
       },
       "InputOptions: prefetch is -1"},
      {[](Strategy& s, bool is_odd) {
         const auto v = scalar("v", 1);
         const TemporaryFolder folder("save");
         save_variables(folder.path() + "/v", is_odd ? Variables{v, v} : Variables{v}, {},
                        s.workers());
       },
       "two are named \"v\""}};
  for (const auto& [call, said] : calls)
    on_good_workers(2, [&, call = call, said = said](MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      const Error error = testing::error_of([&] { call(strategy, !strategy.is_chief()); });
      EXPECT_THAT(error.what(), HasSubstr(said));
      EXPECT_EQ(strategy.reduce("sum", ids(strategy)).item(), 3) << "the next call is in step";
    });
}

TEST_F(MultiWorkerTest, CallsWhoseTopicsDifferBeyondWhatIsToldAreAnErrorOnAll) {
  on_good_workers(3, [](MultiWorkerMirroredStrategy& strategy) {
    Workers& workers = strategy.workers();
    const std::string topic = str(std::string(40'000, 't'), workers.rank() / 2);
    const Error error = testing::error_of([&] { workers.exchange(topic, ""); });
    EXPECT_EQ(error.code(), Code::kFailedPrecondition);
    EXPECT_THAT(error.message(),
                HasSubstr("and worker:2 at one that differs after these 32768 bytes"));
    EXPECT_EQ(strategy.reduce("sum", ids(strategy)).item(), 6) << "the next call is in step";
  });
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
                HasSubstr(
                    "a reduce by sum: worker:0 has waited for 3 s in AllGather for worker:1"));
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

TEST_F(MultiWorkerTest, ATimeoutMayBeTheLongestThereIs) {
  Options options = devices(1);
  options.worker_timeout = std::chrono::seconds::max();
  on_good_workers(
      2,
      [](MultiWorkerMirroredStrategy& strategy) {
        EXPECT_EQ(strategy.reduce("sum", ids(strategy)).item(), 3);
      },
      options);
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

TEST_F(MultiWorkerTest, TheChiefOfWhoMadeVariablesSavesAndLoadsThemAlsoOutsideTheScope) {
  const TemporaryFolder folder("save");
  on_good_workers(2, [&](MultiWorkerMirroredStrategy& strategy) {
    std::shared_ptr<Variable> variable;
    {
      const auto scope = strategy.scope();
      variable = scalar("v", 5);
    }
    const std::string path = str(folder.path(), "/", strategy.workers().rank());
    save_variables(path, {variable}, {{"note", "first"}});
    EXPECT_EQ(std::filesystem::exists(path), strategy.is_chief());
    variable->assign(Tensor::scalar(6.0f));
    EXPECT_EQ(load_variables(path, {variable}).metadata.at("note"), "first");
    EXPECT_EQ(variable->value().item(), 5);
    Snapshot({variable}).save(path + "-again");
    EXPECT_EQ(std::filesystem::exists(path + "-again"), strategy.is_chief());
    const auto scope = strategy.scope();
    EXPECT_EQ(load_metadata(path).at("note"), "first");
  });
}

// Then its workers can still fail together.
TEST_F(MultiWorkerTest, AVariableMayOutliveItsStrategy) {
  std::vector<std::shared_ptr<Variable>> variables(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (const auto& link : make_in_process_links(2))
    threads.emplace_back([&variables, &errors, link] {
      const auto rank = static_cast<size_t>(link->rank());
      Workers* workers = nullptr;
      {
        Options options = devices(2);
        options.link = link;
        MultiWorkerMirroredStrategy strategy(options);
        const auto scope = strategy.scope();
        variables[rank] = scalar("v", 1, Synchronization::kOnRead, Aggregation::kSum);
        workers = &strategy.workers();
      }
      errors[rank] =
          testing::error_of([&] { workers->fail(Error(Code::kAborted, "no use")); }).what();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(errors, Each("ABORTED: no use (peer worker:0)"));
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

}  // namespace
}  // namespace cohort
