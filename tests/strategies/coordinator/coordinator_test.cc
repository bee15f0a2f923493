// Coordinators and workers of this process, over loopback.
#include <atomic>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <set>
#include <thread>

#include "core/distribute/strategy.h"
#include "core/ops/random_ops.h"
#include "strategies/coordinator/end_of_data.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

double total(const std::vector<Tensor>& values) {
  double sum = 0;
  for (const Tensor& value : values) sum += value.item();
  return sum;
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
    const Tensor expected = Tensor::full(DType::kFloat32, {sizes[i]}, 3);
    ASSERT_EQ(value.spec(), expected.spec());
    // At once: a thread sanitizer searches gRPC, in vain, for what orders each number that is read.
    EXPECT_TRUE(sizes[i] == 0 || std::memcmp(value.raw(), expected.raw(), expected.bytes()) == 0);
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

// Of 2 each, on every worker.
std::shared_ptr<Variable> twos(ClusterCoordinator& coordinator, int64_t numbers) {
  return coordinator.create_per_worker_variable(
      {.name = "twos", .spec = {DType::kFloat32, {numbers}}, .initial_value = [numbers] {
         return Tensor::full(DType::kFloat32, {numbers}, 2);
       }});
}

TEST_F(SmallMessages, WhatAWorkerKeepsComesInAsManyAsItTakes) {
  std::vector<std::shared_ptr<Variable>> kept;
  for (int i = 0; i < 7; ++i) kept.push_back(twos(coordinator_, 1 << 17));
  const Function first = function(
      [kept](Value x) {
        for (const auto& one : kept) x = x + ops::reduce_sum(one->read());
        return x;
      },
      "first");
  EXPECT_EQ(coordinator_.schedule(first, 1.0f).get(kPatience).item(), 7.0 * (2 << 17) + 1);
  EXPECT_EQ(coordinator_.statistics().worker_failures, 0u);
}

TEST_F(SmallMessages, AVariableThatIsTooLargeIsNamed) {
  const auto large = twos(coordinator_, 1 << 19);
  const auto use = [&] {
    coordinator_.schedule(doubled(), 2.0f);
    coordinator_.join(kPatience);
  };
  EXPECT_ERROR(use(), Code::kResourceExhausted, "variable \"twos\": it is sent as ");
  EXPECT_NO_THROW(use());
  EXPECT_EQ(coordinator_.statistics().worker_failures, 0u);
}

TEST_F(SmallMessages, AFunctionThatIsTooLargeIsAnErrorOfItsCallsAlone) {
  const Tensor table = Tensor::full(DType::kFloat32, {1 << 19}, 5);
  const Function large =
      function([&](Value x) { return ops::reduce_sum(ops::constant(table)) + x; }, "large");
  coordinator_.schedule(large, 1.0f);
  EXPECT_ERROR(coordinator_.join(kPatience), Code::kResourceExhausted,
               "\"large\" on worker:0: with its constants it is sent as ");
  EXPECT_EQ(coordinator_.schedule(doubled(), 2.0f).get(kPatience).item(), 4);
  EXPECT_EQ(coordinator_.statistics().worker_failures, 0u);
}

// A worker, and a coordinator that takes messages of 1 MiB.
class SmallAnswers : public ::testing::Test {
 protected:
  // So many numbers.
  static Function many(int64_t numbers) {
    return function([=](Value x) { return ops::broadcast_to(x, Shape{numbers}); }, "many");
  }

  TestCluster cluster_{1};
  const std::unique_ptr<ClusterCoordinator> coordinator_ =
      cluster_.coordinator({.max_bytes = 1 << 20});
};

TEST_F(SmallAnswers, LargeResultsComeAFewAtATime) {
  const Function large = many(150'000);
  std::vector<RemoteValue> values;
  for (int i = 0; i < 80; ++i)
    values.push_back(coordinator_->schedule(large, static_cast<float>(i)));
  coordinator_->join(kPatience);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i].get().data<float>()[0], static_cast<float>(i));
  EXPECT_EQ(coordinator_->statistics().worker_failures, 0u);
}

TEST_F(SmallAnswers, AResultThatIsTooLargeIsAnErrorOfItsFunctionAlone) {
  coordinator_->schedule(many(1 << 19), 1.0f);
  EXPECT_ERROR(coordinator_->join(kPatience), Code::kResourceExhausted,
               "it returns tensors of 2097152 bytes, and chief:0 takes 1048576 at most");
  EXPECT_EQ(coordinator_->schedule(doubled(), 2.0f).get(kPatience).item(), 4);
  EXPECT_EQ(coordinator_->statistics().worker_failures, 0u);
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
  EXPECT_ERROR(counted->value(), Code::kFailedPrecondition,
               "variable \"counter\" is on the workers");
}

TEST(ClusterCoordinator, PerWorkerVariablesOfOneNameAreDifferentOnes) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto first = counter(*coordinator), second = counter(*coordinator);
  const Function both = function(
      [&](Value x) { return first->assign_add(x) + 100.0 * second->assign_add(2.0 * x); }, "both");
  coordinator->schedule(both, 1.0f);
  EXPECT_EQ(coordinator->schedule(both, 1.0f).get(kPatience).item(), 2 + 400);
  EXPECT_EQ(total(coordinator->fetch_per_worker(first)), 2);
  EXPECT_EQ(total(coordinator->fetch_per_worker(second)), 4);
}

TEST(ClusterCoordinator, PerWorkerValuesAreThoseOfTheExecutingWorker) {
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator();
  const auto offsets = coordinator->create_per_worker_resource(doubled(), 21.0f);
  const Function sum = function([](Value x, Value y) { return x + y; }, "sum");
  EXPECT_EQ(coordinator->schedule(sum, offsets, 1.0f).get(kPatience).item(), 43);
  for (const Tensor& value : coordinator->fetch_per_worker(offsets)) EXPECT_EQ(value.item(), 42);
}

// It would do so once, however often its function runs.
TEST(ClusterCoordinator, ABodyGivesTheWorkersNothingToDo) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const Function inner = doubled();
  coordinator->schedule(inner, 1.0f);
  coordinator->join(kPatience);
  const Function schedules = function(
      [&](Value x) {
        coordinator->schedule(inner, 1.0f);
        return x + x;
      },
      "schedules");
  EXPECT_ERROR(coordinator->schedule(schedules, 1.0f), Code::kFailedPrecondition,
               "schedule of \"doubled\" acts once, while the function that calls it is traced");
  const Function keeps = function(
      [&](Value x) {
        coordinator->create_per_worker_resource(inner, 1.0f);
        return x + x;
      },
      "keeps");
  EXPECT_ERROR(coordinator->schedule(keeps, 1.0f), Code::kFailedPrecondition,
               "create_per_worker_resource of \"doubled\" acts once");
  coordinator->join(kPatience);
  EXPECT_EQ(coordinator->statistics().executed, 1u);
}

// A fetch may come while the worker is being told of what there is.
TEST(ClusterCoordinator, WhatHasBeenMadeCanBeFetchedAtOnce) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  coordinator->wait_for_workers();
  std::atomic<bool> done = false;
  std::thread scheduler([&] {
    const Function f = doubled();
    while (!done) {
      coordinator->schedule(f, 1.0f).get(kPatience);
      coordinator->join(kPatience);
    }
  });
  EXPECT_NO_THROW({
    for (int i = 0; i < 1000; ++i) coordinator->fetch_per_worker(counter(*coordinator), kPatience);
  });
  done = true;
  scheduler.join();
}

TEST(ClusterCoordinator, RefusesATensorWithoutMemoryWhicheverArgumentItIs) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto offsets = coordinator->create_per_worker_resource(doubled(), 21.0f);
  const Function sum = function([](Value x, Value y) { return x + y; }, "sum");
  EXPECT_ERROR(coordinator->schedule(sum, offsets, Tensor()), Code::kInvalidArgument, "no memory");
  EXPECT_ERROR(coordinator->schedule(sum, Tensor(), offsets), Code::kInvalidArgument, "no memory");
  EXPECT_ERROR(coordinator->create_per_worker_resource(doubled(), Tensor()), Code::kInvalidArgument,
               "no memory");
  EXPECT_EQ(coordinator->schedule(sum, offsets, 1.0f).get(kPatience).item(), 43);
}

TEST(ClusterCoordinator, APerWorkerValueThatCannotBeMadeIsNamed) {
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto value = coordinator->create_per_worker_resource(failing(), 0.0f);
  EXPECT_ERROR(coordinator->fetch_per_worker(value, kPatience), Code::kOutOfRange,
               "worker:0: the per-worker value of \"failing\": ");
  coordinator->schedule(doubled(), value);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kOutOfRange,
               "\"doubled\" on worker:0: the per-worker value of \"failing\": ");
}

TEST(ClusterCoordinator, AWorkerIsNotToldOfWhatWasLetGoOfBeforeItCame) {
  TestCluster cluster(1);
  cluster.stop(0);
  const auto coordinator = cluster.coordinator();
  const auto numbers = coordinator->create_per_worker_dataset("range10");
  // More than the commands that may wait at a worker.
  for (int i = 0; i < 70'000; ++i) numbers.iterate();
  cluster.start(0);
  EXPECT_EQ(coordinator->schedule(doubled(), 2.0f).get(kPatience).item(), 4);
  EXPECT_EQ(coordinator->statistics().worker_failures, 0u);
}

TEST(ClusterCoordinator, BatchesOfADatasetAreDividedOverTheWorkers) {
  register_dataset("range10", [](const InputContext& context) {
    return data::range(10).shard(context.num_input_pipelines, context.input_pipeline_id).batch(10);
  });
  TestCluster cluster(5);
  const auto coordinator = cluster.coordinator();
  const auto numbers = coordinator->create_per_worker_dataset("range10").iterate();
  const auto sum = summing();
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

TEST(ClusterCoordinator, EachPassHasAnOrderOfItsOwnAlsoOnAWorkerThatStartsAgain) {
  register_dataset("shuffled",
                   [](const InputContext&) { return data::range(20).shuffle(20).batch(20); });
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto all = default_strategy().function(
      [](const BatchValues& batch) { return ops::cast(batch["value"], DType::kFloat32); }, "all");
  const auto order = [&](const PerWorkerIterator& pass) {
    return values_of(coordinator->schedule(all, pass).get(kPatience));
  };
  const auto dataset = coordinator->create_per_worker_dataset("shuffled");
  const auto first = dataset.iterate(), second = dataset.iterate();
  const auto third = coordinator->create_per_worker_dataset("shuffled").iterate();
  const std::set<std::vector<float>> orders = {order(first), order(second), order(third)};
  EXPECT_EQ(orders.size(), 3u);
  cluster.stop(0);
  cluster.start(0);
  EXPECT_EQ((std::set<std::vector<float>>{order(first), order(second), order(third)}), orders);
}

TEST(ClusterCoordinator, AllPassesAreOverTheOneDatasetThatAWorkerHasMade) {
  static std::atomic<int> made = 0, calls = 0;
  register_dataset("made once", [](const InputContext&) {
    ++made;
    const auto count = [](const data::Element& e) { return ++calls, e; };
    return data::range(3).map(count).cache().batch(3);
  });
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto sum = summing();
  for (int pass = 0; pass < 3; ++pass) {
    const auto batches = coordinator->create_per_worker_dataset("made once").iterate();
    EXPECT_EQ(coordinator->schedule(sum, batches).get(kPatience).item(), 3);
    coordinator->schedule(sum, batches);
    EXPECT_ERROR(coordinator->join(kPatience), Code::kOutOfRange, "at its end");
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(calls, 3);
}

TEST(ClusterCoordinator, TheEndOfTheDataIsToldFromOtherErrorsOfItsCode) {
  register_dataset("one batch", [](const InputContext&) { return data::range(3).batch(3); });
  TestCluster cluster(1);
  const auto coordinator = cluster.coordinator();
  const auto batches = coordinator->create_per_worker_dataset("one batch").iterate();
  const auto of_two_rows = default_strategy().function(
      [](const BatchValues& batch) {
        return ops::gather(ops::constant(floats({1, 2})), ops::cast(batch["value"], DType::kInt64));
      },
      "of two rows");
  coordinator->schedule(of_two_rows, batches);
  const Error row = error_of([&] { coordinator->join(kPatience); });
  EXPECT_EQ(row.code(), Code::kOutOfRange) << row.what();
  EXPECT_FALSE(is_end_of_data(row)) << row.what();

  const auto sum = summing();
  const RemoteValue value = coordinator->schedule(sum, batches);
  const Error of_value = error_of([&] { value.fetch(kPatience); });
  EXPECT_TRUE(is_end_of_data(of_value)) << of_value.what();
  const Error end = error_of([&] { coordinator->join(kPatience); });
  EXPECT_TRUE(is_end_of_data(end)) << end.what();
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
  const auto sum = summing();
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
  const auto sum = summing();
  const RemoteValue value = coordinator->schedule(sum, broken);
  EXPECT_ERROR(value.fetch(kPatience), Code::kAborted, "no such folder");
  EXPECT_ERROR(coordinator->join(kPatience), Code::kAborted, "no such folder");
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
  const auto sum = summing();
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
  const auto odd = default_strategy().function([](const BatchValues&) -> Value { throw 7; }, "odd");
  coordinator->schedule(odd, batches);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kAborted, "no std::exception");
}

TEST(ClusterCoordinator, NeedsNoMoreThanAShortQueue) {
  register_dataset("counting",
                   [](const InputContext&) { return data::range(3).repeat().batch(1); });
  TestCluster cluster(2);
  const auto coordinator = cluster.coordinator({.max_queued = 2});
  const auto counted = counter(*coordinator);
  const auto batches = coordinator->create_per_worker_dataset("counting").iterate();
  const auto sum = summing();
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

TEST(ClusterCoordinator, NeitherItNorAWorkerTakesMessagesOfNoBytes) {
  TestCluster cluster(1);
  EXPECT_ERROR(cluster.coordinator({.max_bytes = 0}), Code::kInvalidArgument,
               "max_bytes is 1 at least, got 0");
  EXPECT_ERROR(WorkerServer(cluster.address(0), {.max_bytes = 0}, no_environment),
               Code::kInvalidArgument, "max_bytes is 1 at least, got 0");
}

}  // namespace
}  // namespace cohort::testing
