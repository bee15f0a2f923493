// Coordinators and workers of this process, over loopback.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <new>
#include <optional>
#include <set>
#include <thread>

#include "core/base/program.h"
#include "core/distribute/strategy.h"
#include "core/ops/random_ops.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

double total(const std::vector<Tensor>& values) {
  double sum = 0;
  for (const Tensor& value : values) sum += value.item();
  return sum;
}

std::shared_ptr<Variable> counter(ClusterCoordinator& coordinator) {
  return coordinator.create_per_worker_variable(
      {.name = "counter", .spec = {DType::kFloat32, {}}, .initial_value = [] {
         return Tensor::scalar(0.0f);
       }});
}

Function adding(const std::shared_ptr<Variable>& variable) {
  return function([variable](Value x) { return variable->assign_add(x); }, "adding");
}

TEST(ClusterCoordinator, ExecutesFunctionsAndBringsTheirResults) {
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  coordinator->join();
  EXPECT_TRUE(coordinator->done());
  const Function f = doubled();
  std::vector<RemoteValue> values;
  for (int i = 0; i < 100; ++i) values.push_back(coordinator->schedule(f, static_cast<float>(i)));
  coordinator->join(kPatience);
  EXPECT_TRUE(coordinator->done());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(values[static_cast<size_t>(i)].get().item(), 2.0 * i);
  EXPECT_EQ(f.trace_count(), 1);
  EXPECT_EQ(coordinator->statistics().executed, 100u);
  EXPECT_EQ(cluster.worker(0).executed() + cluster.worker(1).executed(), 100u);
  const std::vector<std::vector<Tensor>> fetched = coordinator->fetch({values[3], values[7]});
  EXPECT_EQ(fetched.at(0).at(0).item(), 6);
  EXPECT_EQ(fetched.at(1).at(0).item(), 14);
}

TEST(ClusterCoordinator, AFunctionMayReturnNothingOrSeveralValues) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const Function several = function(
      [](Value x) {
        return std::vector<Value>{x, x + x};
      },
      "several");
  const auto values = coordinator->schedule(several, 3.0f).fetch(kPatience);
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[1].item(), 6);
  EXPECT_ERROR(coordinator->schedule(several, 3.0f).get(kPatience), Code::kInvalidArgument,
               "has 2");
  const auto counted = counter(*coordinator);
  const Function nothing = function(
      [counted](Value x) {
        counted->assign_add(x);
        return std::vector<Value>{};
      },
      "nothing");
  EXPECT_TRUE(coordinator->schedule(nothing, 1.0f).fetch(kPatience).empty());
  EXPECT_EQ(coordinator->fetch(Tensor::scalar(4)).item(), 4);
}

TEST(ClusterCoordinator, LargeTensorsAndSmallOnesTravelTogether) {
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const Function sum = function([](Value x, Value y) { return x + y; }, "sum");
  const int64_t sizes[] = {0, 1, 255, 256, 257, 300'000, 3'000'001};
  std::vector<RemoteValue> values;
  for (const int64_t size : sizes)
    values.push_back(coordinator->schedule(sum, Tensor::full(DType::kFloat32, {size}, 2),
                                           Tensor::full(DType::kFloat32, {size}, 1)));
  for (size_t i = 0; i < std::size(sizes); ++i) {
    const Tensor value = values[i].get(kPatience);
    ASSERT_EQ(value.shape(), Shape({sizes[i]}));
    EXPECT_TRUE(std::ranges::all_of(value.values<float>(), [](float x) { return x == 3; }));
  }
}

// A worker that takes messages of 1 MiB, and a coordinator.
class SmallMessages : public ::testing::Test {
 protected:
  launcher::ReservedPort port_;
  Lines lines_;
  WorkerServer worker_{Address::parse(port_.address()),
                       {.job_id = "job", .max_bytes = 1 << 20, .notice = lines_.writer()},
                       no_environment};
  ClusterCoordinator coordinator_{ClusterSpec(ClusterSpec::Jobs{{"worker", {port_.address()}}}),
                                  {.job_id = "job", .notice = lines_.writer()},
                                  no_environment};
};

TEST_F(SmallMessages, LargeArgumentsAreGivenAFewAtATime) {
  const Tensor table = Tensor::full(DType::kFloat32, {16 << 10}, 3);
  const Function row = function(
      [](Value all, Value i) { return ops::gather(all, ops::cast(i, DType::kInt64)); }, "row");
  std::vector<RemoteValue> values;
  for (int i = 0; i < 1000; ++i)
    values.push_back(coordinator_.schedule(row, table, static_cast<float>(i)));
  coordinator_.join(kPatience);
  for (const RemoteValue& value : values) EXPECT_EQ(value.get().item(), 3);
  EXPECT_EQ(coordinator_.statistics().worker_failures, 0u);
}

TEST_F(SmallMessages, AnArgumentThatIsTooLargeIsAnErrorOfItsFunctionAlone) {
  const Tensor large = Tensor::zeros(DType::kFloat32, {1 << 19});
  coordinator_.schedule(doubled(), large);
  EXPECT_ERROR(coordinator_.join(kPatience), Code::kResourceExhausted,
               "\"doubled\" is given tensors of 2097152 bytes, and worker:0 takes 1048576");
  EXPECT_EQ(coordinator_.schedule(doubled(), 2.0f).get(kPatience).item(), 4);
  EXPECT_EQ(coordinator_.statistics().worker_failures, 0u);
}

TEST(ClusterCoordinator, LargeConstantsTravelWithTheFunction) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const Tensor table = Tensor::full(DType::kFloat32, {3 << 20}, 5);
  const Function f =
      function([&](Value x) { return ops::reduce_sum(ops::constant(table)) + x; }, "large");
  EXPECT_EQ(coordinator->schedule(f, 1.0f).get(kPatience).item(), 5.0 * (3 << 20) + 1);
}

TEST(ClusterCoordinator, PerWorkerVariablesCountOnEachWorker) {
  TestCluster cluster(3);
  const auto coordinator = cluster.coordinator();
  const auto counted = counter(*coordinator);
  const Function add = adding(counted);
  for (int i = 0; i < 10; ++i) coordinator->schedule(add, 1.0f);
  coordinator->join(kPatience);
  EXPECT_EQ(total(coordinator->fetch_per_worker(counted)), 10);
  EXPECT_ERROR(counted->value(), Code::kFailedPrecondition, "on the workers");
}

TEST(ClusterCoordinator, PerWorkerValuesAreThoseOfTheExecutingWorker) {
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const auto offsets = coordinator->create_per_worker_resource(doubled(), 21.0f);
  const Function sum = function([](Value x, Value y) { return x + y; }, "sum");
  EXPECT_EQ(coordinator->schedule(sum, offsets, 1.0f).get(kPatience).item(), 43);
  for (const Tensor& value : coordinator->fetch_per_worker(offsets)) EXPECT_EQ(value.item(), 42);
}

TEST(ClusterCoordinator, BatchesOfADatasetAreDividedOverTheWorkers) {
  register_dataset("range10", [](const InputContext& context) {
    return data::range(10).shard(context.num_input_pipelines, context.input_pipeline_id).batch(10);
  });
  TestCluster cluster(5);
  const auto coordinator = cluster.coordinator();
  const auto numbers = coordinator->create_per_worker_dataset("range10").iterate();
  const auto sum = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); }, "sum");
  // A worker whose only batch has been taken fails, so each is to take one.
  std::multiset<double> sums;
  for (int round = 0; sums.size() < 5 && round < 1000; ++round) {
    try {
      const RemoteValue value = coordinator->schedule(sum, numbers);
      sums.insert(value.get(kPatience).item());
      coordinator->join(kPatience);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kOutOfRange) << error.what();
      EXPECT_ERROR(coordinator->join(kPatience), Code::kOutOfRange, "\"range10\" is at its end");
    }
  }
  EXPECT_EQ(sums, (std::multiset<double>{5, 7, 9, 11, 13}));
}

TEST(ClusterCoordinator, BatchesOfOtherShapesAreTracedWhenTheyCome) {
  register_dataset("partial", [](const InputContext&) { return data::range(10).batch(4); });
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto numbers = coordinator->create_per_worker_dataset("partial").iterate();
  const auto rows = default_strategy().function(
      [](const BatchValues& batch) {
        return ops::reduce_sum(batch["value"]) + 1000 * batch.rows();
      },
      "rows");
  std::vector<RemoteValue> values;
  for (int i = 0; i < 3; ++i) values.push_back(coordinator->schedule(rows, numbers));
  coordinator->join(kPatience);
  std::vector<double> found;
  for (const RemoteValue& value : values) found.push_back(value.get().item());
  EXPECT_EQ(found, (std::vector<double>{4006, 4022, 2017}));
  EXPECT_EQ(rows.trace_count(), 2);
  coordinator->schedule(rows, numbers);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kOutOfRange, "at its end");
}

TEST(ClusterCoordinator, BatchesMayBeSentToo) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto sum = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["b"] - batch["a"]); }, "sum");
  const data::Batch batch({{"a", floats({1, 2})}, {"b", floats({5, 9})}});
  EXPECT_EQ(coordinator->schedule(sum, batch).get(kPatience).item(), 11);
}

TEST(ClusterCoordinator, AnUnknownDatasetIsAnErrorOnlyOfWhoUsesIt) {
  register_dataset("known", [](const InputContext&) { return data::range(3).batch(1); });
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto unknown = coordinator->create_per_worker_dataset("unknown").iterate();
  const auto sum = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); }, "sum");
  EXPECT_EQ(coordinator->schedule(doubled(), 1.0f).get(kPatience).item(), 2);
  coordinator->join(kPatience);
  const RemoteValue value = coordinator->schedule(sum, unknown);
  EXPECT_ERROR(value.fetch(kPatience), Code::kNotFound, "\"known\"");
  EXPECT_ERROR(coordinator->join(kPatience), Code::kNotFound, "\"unknown\"");
  EXPECT_EQ(coordinator->schedule(doubled(), 2.0f).get(kPatience).item(), 4);
}

TEST(ClusterCoordinator, AFailingDatasetFunctionIsAnErrorOfWhoUsesIt) {
  register_dataset("failing", [](const InputContext&) -> data::Dataset {
    throw std::runtime_error("no such folder");
  });
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const auto broken = coordinator->create_per_worker_dataset("failing").iterate();
  coordinator->join(kPatience);
  const auto sum = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); }, "sum");
  const RemoteValue value = coordinator->schedule(sum, broken);
  EXPECT_ERROR(value.fetch(kPatience), Code::kUnknown, "no such folder");
  EXPECT_ERROR(coordinator->join(kPatience), Code::kUnknown, "no such folder");
}

TEST(ClusterCoordinator, ADatasetWithoutMemoryIsAnErrorOfWhoUsesIt) {
  register_dataset("greedy", [](const InputContext&) {
    return data::generator([]() -> data::NextFunction {
      return []() -> std::optional<data::Element> { throw std::bad_alloc(); };
    });
  });
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto greedy = coordinator->create_per_worker_dataset("greedy").iterate();
  const auto sum = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); }, "sum");
  const RemoteValue value = coordinator->schedule(sum, greedy);
  EXPECT_ERROR(value.fetch(kPatience), Code::kResourceExhausted, "no memory");
  EXPECT_ERROR(coordinator->join(kPatience), Code::kResourceExhausted, "no memory");
  EXPECT_EQ(coordinator->schedule(doubled(), 2.0f).get(kPatience).item(), 4);
  EXPECT_EQ(coordinator->statistics().worker_failures, 0u);
}

TEST(ClusterCoordinator, ABodyThatThrowsDoesSoWhereItIsTraced) {
  register_dataset("plain", [](const InputContext&) { return data::range(3).batch(1); });
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const Function matrix = function([](Value x) { return ops::matmul(x, x); }, "matrix");
  EXPECT_ERROR(coordinator->schedule(matrix, 1.0f), Code::kInvalidArgument, "MatMul");
  EXPECT_TRUE(coordinator->done());
  const auto batches = coordinator->create_per_worker_dataset("plain").iterate();
  const auto sum = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["image"]); }, "sum");
  coordinator->schedule(sum, batches);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kNotFound, "no tensor \"image\"");
}

TEST(ClusterCoordinator, TheFirstErrorIsThrownOnceAndAllElseIsStopped) {
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const Function good = doubled(), bad = failing();
  std::vector<RemoteValue> values;
  for (int i = 0; i < 200; ++i) {
    if (i == 100) values.push_back(coordinator->schedule(bad, 0.0f));
    try {
      values.push_back(coordinator->schedule(good, 1.0f));
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::kOutOfRange);
      break;
    }
  }
  try {
    coordinator->join(kPatience);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOutOfRange);
    EXPECT_NE(std::string(error.what()).find("\"failing\" on worker:"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(coordinator->statistics().in_flight, 0u);
  EXPECT_TRUE(coordinator->done()) << "the error has been told";
  int executed = 0, cancelled = 0, failed = 0;
  for (const RemoteValue& value : values) {
    ASSERT_TRUE(value.is_ready());
    const Error error = error_of([&] { value.fetch(); });
    executed += error.message() == "no error";
    cancelled += error.code() == Code::kCancelled;
    failed += error.code() == Code::kOutOfRange;
  }
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(executed + cancelled + failed, static_cast<int>(values.size()));
  EXPECT_EQ(coordinator->schedule(good, 4.0f).get(kPatience).item(), 8);
  coordinator->join(kPatience);
}

TEST(ClusterCoordinator, AnErrorEndsWhatIsBeingComputed) {
  const Function longer = function(
      [](Value x) {
        const Value mean = ops::constant(Tensor::full(DType::kFloat32, {512, 512}, 1.0 / 512));
        Value y = ops::broadcast_to(x, {512, 512});
        for (int i = 0; i < 2000; ++i) y = ops::matmul(y, mean);
        return ops::reduce_sum(y);
      },
      "longer");
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  const RemoteValue value = coordinator->schedule(longer, 1.0f);
  fail_beside(*coordinator, [&] { return functions_known(*coordinator) > 0; });
  EXPECT_ERROR(value.fetch(), Code::kCancelled, "in part");
  EXPECT_EQ(cluster.worker(0).executed() + cluster.worker(1).executed(), 1u) << "doubled()";
}

TEST(ClusterCoordinator, AnErrorEndsAWaitForData) {
  static std::atomic<bool> reached = false, released = false;
  register_dataset("blocked", [](const InputContext&) {
    return data::generator([]() -> data::NextFunction {
             return []() -> std::optional<data::Element> {
               reached = true;
               eventually([] { return released.load(); });
               return data::Element{{"value", Tensor::scalar(1.0f)}};
             };
           })
        .batch(1);
  });
  const auto sum = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); }, "sum");
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const auto batches = coordinator->create_per_worker_dataset("blocked").iterate();
  coordinator->wait_for_workers();
  const RemoteValue value = coordinator->schedule(sum, batches);
  fail_beside(*coordinator, [] { return reached.load(); });
  EXPECT_ERROR(value.fetch(), Code::kCancelled, "in part");
  released = true;
  EXPECT_EQ(coordinator->schedule(sum, batches).get(kPatience).item(), 1);
}

TEST(ClusterCoordinator, AFetchWaitsForAWorkerThatIsBusyUntilAnInterrupt) {
  static std::atomic<bool> released = false;
  register_dataset("busy", [](const InputContext&) {
    return data::generator([]() -> data::NextFunction {
             return []() -> std::optional<data::Element> {
               eventually([] { return released.load(); });
               return data::Element{{"value", Tensor::scalar(1.0f)}};
             };
           })
        .batch(1);
  });
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto counted = counter(*coordinator);
  const auto batches = coordinator->create_per_worker_dataset("busy").iterate();
  const auto step = default_strategy().function(
      [counted](const BatchValues& batch) {
        return counted->assign_add(ops::reduce_sum(batch["value"]));
      },
      "step");
  const RemoteValue value = coordinator->schedule(step, batches);
  EXPECT_TRUE(eventually([&] { return coordinator->statistics().in_flight == 1; }));
  EXPECT_ERROR(coordinator->fetch_per_worker(counted, milliseconds(1)), Code::kDeadlineExceeded,
               "the oldest, \"step\"");
  raise(SIGTERM);
  EXPECT_ERROR(coordinator->fetch_per_worker(counted), Code::kCancelled, "interrupted");
  init();  // forgets it
  released = true;
  EXPECT_EQ(coordinator->fetch_per_worker(counted).size(), 1u);
  EXPECT_EQ(value.get(kPatience).item(), 1);
}

TEST(ClusterCoordinator, SchedulingInALoopHearsOfTheError) {
  for (const size_t max_queued : {size_t{2}, size_t{256 * 1024}}) {
    TestCluster cluster(1);
    const auto coordinator = cluster.coordinator({.max_queued = max_queued});
    const Function good = doubled();
    const Error error = error_of([&] {
      coordinator->schedule(failing(), 0.0f);
      const auto end = std::chrono::steady_clock::now() + kPatience;
      while (std::chrono::steady_clock::now() < end) coordinator->schedule(good, 1.0f);
    });
    EXPECT_EQ(error.code(), Code::kOutOfRange) << error.what();
    EXPECT_TRUE(coordinator->done());
  }
}

TEST(ClusterCoordinator, SchedulingGivesUpAQueueThatStaysFull) {
  static std::atomic<bool> released;
  released = false;
  register_dataset("endless", [](const InputContext&) {
    return data::generator([]() -> data::NextFunction {
             return []() -> std::optional<data::Element> {
               eventually([] { return released.load(); });
               return data::Element{{"value", Tensor::scalar(1.0f)}};
             };
           })
        .batch(1);
  });
  TestCluster cluster(1);
  const auto coordinator =
      cluster.coordinator({.max_queued = 1, .schedule_timeout = milliseconds(20)});
  const struct Release {
    ~Release() { released = true; }
  } however_this_ends;  // else the coordinator and the cluster would wait when they go
  const auto batches = coordinator->create_per_worker_dataset("endless").iterate();
  const auto sum = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); }, "waiting");
  const RemoteValue first = coordinator->schedule(sum, batches);
  EXPECT_TRUE(eventually([&] { return coordinator->statistics().in_flight == 1; }));
  const Function f = doubled();
  const RemoteValue second = coordinator->schedule(f, 2.0f);
  EXPECT_ERROR(coordinator->schedule(f, 3.0f), Code::kDeadlineExceeded, "nothing has been");
  EXPECT_ERROR(coordinator->schedule(f, 3.0f), Code::kDeadlineExceeded,
               "1 closures are queued and 1 in flight; 1 of 1 workers are there; worker:0");
  EXPECT_ERROR(coordinator->schedule(f, 3.0f), Code::kDeadlineExceeded, "\"waiting\"");
  EXPECT_EQ(coordinator->statistics().queued, 1u);
  EXPECT_EQ(coordinator->statistics().scheduling, 0u);
  released = true;
  coordinator->join(kPatience);
  EXPECT_EQ(first.get().item(), 1);
  EXPECT_EQ(second.get().item(), 4);
  EXPECT_EQ(coordinator->schedule(f, 4.0f).get(kPatience).item(), 8);
  coordinator->join(kPatience);
  EXPECT_EQ(coordinator->statistics().executed, 3u);
  EXPECT_ERROR(cluster.coordinator({.schedule_timeout = milliseconds(-1)}), Code::kInvalidArgument,
               "schedule_timeout is 0 at least");
}

TEST(ClusterCoordinator, AQueueWithoutLimitIsNeverFull) {
  constexpr uint64_t kScheduled = 500;
  TestCluster cluster(1);
  cluster.stop(0);  // else what is scheduled might not wait
  const auto coordinator =
      cluster.coordinator({.max_queued = 0, .schedule_timeout = milliseconds(0)});
  const Function f = doubled();
  for (uint64_t i = 0; i < kScheduled; ++i) coordinator->schedule(f, 1.0f);
  EXPECT_EQ(coordinator->statistics().queued, kScheduled);
  cluster.start(0);
  coordinator->join(kPatience);
  EXPECT_EQ(coordinator->statistics().executed, kScheduled);
}

TEST(ClusterCoordinator, NeedsNoMoreThanAShortQueue) {
  register_dataset("counting",
                   [](const InputContext&) { return data::range(3).repeat().batch(1); });
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator({.max_queued = 2});
  const auto counted = counter(*coordinator);
  const auto batches = coordinator->create_per_worker_dataset("counting").iterate();
  const auto sum = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); }, "sum");
  const Function f = doubled(), add = adding(counted);
  for (int round = 0; round < 3; ++round) {
    std::vector<RemoteValue> values;
    for (int i = 0; i < 50; ++i) {
      values.push_back(coordinator->schedule(f, static_cast<float>(i)));
      coordinator->schedule(add, 1.0f);
      coordinator->schedule(sum, batches);
    }
    coordinator->join(kPatience);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(values[static_cast<size_t>(i)].get().item(), 2.0 * i);
    EXPECT_EQ(total(coordinator->fetch_per_worker(counted)), 50 * (round + 1));
    coordinator->schedule(failing(), 0.0f);
    EXPECT_ERROR(coordinator->join(kPatience), Code::kOutOfRange, "\"failing\"");
  }
}

TEST(ClusterCoordinator, ResultsStayWhenTheirWorkerHasGone) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const RemoteValue value = coordinator->schedule(doubled(), 8.0f);
  coordinator->join(kPatience);
  cluster.stop(0);
  EXPECT_EQ(value.get(kPatience).item(), 16);
}

TEST(ClusterCoordinator, AWorkerThatIsStartedAgainGetsBackWhatItHad) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto counted = counter(*coordinator);
  const auto offset = coordinator->create_per_worker_resource(doubled(), 1.0f);
  const Function f =
      function([counted](Value x, Value y) { return counted->assign_add(x + y); }, "counting");
  EXPECT_EQ(coordinator->schedule(f, offset, 1.0f).get(kPatience).item(), 3);
  cluster.stop(0);
  std::vector<RemoteValue> values;
  for (int i = 0; i < 3; ++i) values.push_back(coordinator->schedule(f, offset, 1.0f));
  EXPECT_TRUE(eventually([&] { return coordinator->statistics().worker_failures == 1; }));
  cluster.start(0);
  coordinator->join(kPatience);
  EXPECT_EQ(values.back().get().item(), 9) << "it starts with its initial value";
  EXPECT_TRUE(cluster.lines.has("is lost"));
  EXPECT_GE(coordinator->statistics().workers, 1);
}

TEST(ClusterCoordinator, WorkersMayComeLater) {
  TestCluster cluster(2);
  cluster.stop(0);
  cluster.stop(1);
  const auto coordinator = cluster.coordinator();
  const RemoteValue value = coordinator->schedule(doubled(), 1.0f);
  EXPECT_ERROR(coordinator->join(milliseconds(50)), Code::kDeadlineExceeded, "1 closures");
  EXPECT_ERROR(coordinator->wait_for_workers(1, milliseconds(10)), Code::kDeadlineExceeded,
               "0 of 1 workers are there; worker:0");
  cluster.start(1);
  EXPECT_EQ(value.get(kPatience).item(), 2);
  coordinator->wait_for_workers(1);
}

TEST(ClusterCoordinator, WithoutAnyWorkerForLongItIsAnError) {
  TestCluster cluster(1);
  cluster.stop(0);
  const auto coordinator = cluster.coordinator({.worker_timeout = milliseconds(100)});
  const RemoteValue value = coordinator->schedule(doubled(), 1.0f);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kUnavailable, "there is no worker; worker:0");
  EXPECT_ERROR(value.fetch(kPatience), Code::kCancelled, "there is no worker");
}

TEST(ClusterCoordinator, SaysWhatDoesNotGoOn) {
  TestCluster cluster(1);
  cluster.stop(0);
  const auto coordinator = cluster.coordinator({.stuck_after = milliseconds(60)});
  const RemoteValue value = coordinator->schedule(doubled(), 1.0f);
  EXPECT_TRUE(eventually([&] {
    return cluster.lines.has(
        "nothing has been executed for 60 ms; 1 queued, 0 in flight; worker:0");
  }));
  cluster.start(0);
  EXPECT_EQ(value.get(kPatience).item(), 2);
}

TEST(ClusterCoordinator, SigtermEndsItsWaits) {
  TestCluster cluster(1);
  cluster.stop(0);
  const auto coordinator = cluster.coordinator();
  const RemoteValue value = coordinator->schedule(doubled(), 1.0f);
  raise(SIGTERM);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kCancelled, "interrupted");
  EXPECT_ERROR(coordinator->schedule(doubled(), 1.0f), Code::kCancelled, "interrupted");
  EXPECT_ERROR(value.fetch(kPatience), Code::kCancelled, "interrupted");
  init();  // forgets it
  cluster.start(0);
  EXPECT_EQ(value.get(kPatience).item(), 2);
}

TEST(ClusterCoordinator, ASlowClosureDoesNotHoldUpThoseBehindIt) {
  std::atomic<bool> release = false;
  register_dataset("slow", [&](const InputContext&) {
    return data::generator([&]() -> data::NextFunction {
             return [&]() -> std::optional<data::Element> {
               eventually([&] { return release.load(); });
               return data::Element{{"value", Tensor::scalar(1.0f)}};
             };
           })
        .batch(1);
  });
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const auto batches = coordinator->create_per_worker_dataset("slow").iterate();
  const auto waits = default_strategy().function(
      [](const BatchValues& batch) { return ops::reduce_sum(batch["value"]); }, "waits");
  const Function f = doubled();
  // Until windows are wide, so that some are behind the slow one.
  for (int i = 0; i < 5000; ++i) coordinator->schedule(f, 1.0f);
  coordinator->join(kPatience);
  const RemoteValue slow = coordinator->schedule(waits, batches);
  std::vector<RemoteValue> values;
  for (int i = 0; i < 1000; ++i) values.push_back(coordinator->schedule(f, 1.0f));
  for (const RemoteValue& value : values) EXPECT_EQ(value.get(kPatience).item(), 2);
  EXPECT_FALSE(slow.is_ready());
  release = true;
  EXPECT_EQ(slow.get(kPatience).item(), 1);
}

TEST(ClusterCoordinator, WhatIsLetGoOfIsFreedOnTheWorkers) {
  register_dataset("freed", [](const InputContext&) { return data::range(3).batch(1); });
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  const auto resources = [&] {
    uint64_t sum = 0;
    for (const WorkerStatus& status : coordinator->worker_statuses()) {
      EXPECT_TRUE(status.present) << status.task;
      sum += status.resources;
    }
    return sum;
  };
  {
    const auto a = coordinator->create_per_worker_dataset("freed").iterate();
    const auto b = coordinator->create_per_worker_dataset("freed").iterate();
    EXPECT_TRUE(eventually([&] { return resources() == 4; }));
  }
  EXPECT_TRUE(eventually([&] { return resources() == 0; }));
}

TEST(ClusterCoordinator, RandomNumbersFollowFromTheClosureNotTheWorker) {
  const auto draw = [](int workers) {
    TestCluster cluster(workers);
    const auto coordinator = cluster.coordinator();
    const Function f = function(
        [](Value x) { return x + ops::random_uniform(Shape{}, 0, 1, DType::kFloat32, 3); }, "draw");
    std::vector<RemoteValue> values;
    for (int i = 0; i < 20; ++i) values.push_back(coordinator->schedule(f, 0.0f));
    std::vector<double> drawn;
    for (const RemoteValue& value : values) drawn.push_back(value.get(kPatience).item());
    return drawn;
  };
  const auto drawn = draw(1);
  EXPECT_EQ(drawn, draw(3));
  EXPECT_EQ(std::set<double>(drawn.begin(), drawn.end()).size(), drawn.size());
}

TEST(ClusterCoordinator, ItsThreadsEndWithIt) {
  TestCluster cluster(2);
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto use = [&] {
    const auto coordinator = cluster.coordinator();
    coordinator->schedule(doubled(), 1.0f);
    coordinator->join(kPatience);
  };
  for (int i = 0; i < 3; ++i) use();  // gRPC keeps some of its own
  const auto before = threads();
  for (int i = 0; i < 10; ++i) use();
  EXPECT_TRUE(eventually([&] { return threads() <= before + 8; }))
      << before << " then " << threads();
}

TEST(ClusterCoordinator, NeedsWorkers) {
  EXPECT_ERROR(ClusterCoordinator(ClusterSpec(ClusterSpec::Jobs{{"ps", {"localhost:1"}}}), {},
                                  no_environment),
               Code::kInvalidArgument, "has none");
}

TEST(ClusterCoordinator, EndsTheWorkersWhenItIsAskedTo) {
  TestCluster cluster(1);
  auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  std::thread worker([&] { cluster.worker(0).wait(); });
  coordinator->shut_down();
  coordinator.reset();  // nothing is left to be sent
  worker.join();
}

TEST(WorkerServer, EndsWhenItHasBeenLeftAlone) {
  const launcher::ReservedPort port;
  Lines lines;
  WorkerServer server(Address::parse(port.address()),
                      {.job_id = "job",
                       .orphaned_after = milliseconds(50),
                       .unclaimed_after = milliseconds(0),
                       .notice = lines.writer()},
                      no_environment);
  std::thread waiting([&] { server.wait(); });
  {
    ClusterCoordinator coordinator(ClusterSpec(ClusterSpec::Jobs{{"worker", {port.address()}}}),
                                   {.job_id = "job", .notice = lines.writer()}, no_environment);
    coordinator.wait_for_workers();
    EXPECT_FALSE(lines.has("ending"));
  }
  waiting.join();
  EXPECT_TRUE(lines.has("no coordinator for 50 ms; ending"));
}

TEST(WorkerServer, EndsWhenNobodyHasEverCome) {
  const launcher::ReservedPort port;
  Lines lines;
  WorkerServer server(Address::parse(port.address()),
                      {.unclaimed_after = milliseconds(20), .notice = lines.writer()},
                      no_environment);
  server.wait();
  EXPECT_TRUE(lines.has("since the start"));
}

TEST(WorkerServer, IsTheTaskThatTheEnvironmentSays) {
  EXPECT_FALSE(run_worker_server({}, no_environment)) << "a program on its own";
  const launcher::ReservedPort port;
  // Whether that task has served, until it found that nobody came.
  const auto serves = [&](const std::string& chief, const std::string& type, int index) {
    const std::string config =
        str(R"({"cluster": {)", chief, R"("ps": ["127.0.0.1:3"], "worker": ["127.0.0.1:2", ")",
            port.address(), R"("]}, "task": {"type": ")", type, R"(", "index": )", index, "}}");
    return run_worker_server(
        {.unclaimed_after = milliseconds(20), .notice = [](const std::string&) {}},
        [&](const std::string& name) -> std::optional<std::string> {
          if (name == "TF_CONFIG") return config;
          return std::nullopt;
        });
  };
  const std::string chief = R"("chief": ["127.0.0.1:1"], )";
  for (const std::string& beside : {std::string(), chief}) {
    EXPECT_TRUE(serves(beside, "worker", 1));
    EXPECT_FALSE(serves(beside, "ps", 0));
    EXPECT_FALSE(serves(beside, "evaluator", 0));
  }
  EXPECT_FALSE(serves(chief, "chief", 0));
  EXPECT_FALSE(serves("", "worker", 0)) << "the chief of a cluster that has no other";
}

}  // namespace
}  // namespace cohort::testing
