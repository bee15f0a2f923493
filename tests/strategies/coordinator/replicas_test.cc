// Workers with several devices: each function is executed by a replica on each of them, and what
// comes of it is what one device makes of the same batches.
#include <optional>
#include <set>

#include "core/device/device.h"
#include "core/distribute/replica_context.h"
#include "core/ops/random_ops.h"
#include "core/optim/optimizers.h"
#include "tests/strategies/coordinator/job.h"
#include "tests/strategies/training_testing.h"

namespace cohort::testing {
namespace {

constexpr int kMaxReplicas = 3;

// Batches of 0 to 4, 5 to 9 and so on, the last of which has `last` rows; without end.
data::Dataset batches_of_five(int64_t last) { return data::range(20 + last).batch(5).repeat(); }

class WorkersWithReplicas : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    set_logical_cpus(kMaxReplicas, 1);
    register_dataset("five and one", [](const InputContext&) { return batches_of_five(1); });
    register_dataset("five and three", [](const InputContext&) { return batches_of_five(3); });
    register_dataset("seven", [](const InputContext&) { return data::range(7).batch(7).repeat(); });
  }
  static void TearDownTestSuite() { set_logical_cpus(1); }
};

// A chief, its strategy, and workers with as many devices as it has.
struct Replicated {
  Replicated(int workers, int devices)
      : job(workers, device_names(devices)),
        strategy(job.strategy({.devices = device_names(devices)})),
        scope(strategy->scope()),
        coordinator(job.coordinator(*strategy)) {}

  PerWorkerIterator batches(const std::string& dataset) const {
    return coordinator->create_per_worker_dataset(dataset).iterate();
  }
  double sum_of(const RemoteValue& value) const {
    return strategy->reduce(ReduceOp::kSum, value.fetch_per_replica(kPatience).at(0)).item();
  }
  double mean_of(const RemoteValue& value) const {
    return strategy->reduce(ReduceOp::kMean, value.fetch_per_replica(kPatience).at(0)).item();
  }

  Job job;
  std::unique_ptr<ParameterServerStrategy> strategy;
  Strategy::Scope scope;
  std::unique_ptr<ClusterCoordinator> coordinator;
};

std::shared_ptr<Variable> scalar(const std::string& name, float initial,
                                 Synchronization synchronization = Synchronization::kAuto,
                                 Aggregation aggregation = Aggregation::kNone) {
  return create_variable({.name = name,
                          .spec = {DType::kFloat32, {}},
                          .initial_value = [initial] { return Tensor::scalar(initial); },
                          .synchronization = synchronization,
                          .aggregation = aggregation});
}

Value rows_of(const BatchValues& batch) {
  return ops::constant(static_cast<double>(batch.rows()), DType::kFloat32);
}

// The sum over a replica's rows of what is to be small, by the rows of all.
Value loss_of(const Value& errors, const BatchValues& batch) {
  return ops::reduce_sum(errors) * (1.0 / static_cast<double>(batch.global_rows()));
}

// --- Training

Trained trained_on(int devices, const std::string& dataset, const MakeOptimizer& make) {
  constexpr int kSteps = 24;
  Replicated on(1, devices);
  const VariablePtr slope = scalar("slope", 0.5), offset = scalar("offset", 0);
  const optim::Optimizer optimizer = make();
  const auto step = on.strategy->function([&](const BatchValues& batch) {
    const Value x = ops::cast(batch["value"], DType::kFloat32) * 0.1;
    const Value error = x * slope->read() + offset->read() - ops::square(x);
    Value loss = loss_of(ops::square(error), batch);
    optimizer.minimize(loss, {slope, offset});
    return loss;
  });
  const auto batches = on.batches(dataset);
  Trained trained;
  for (int i = 0; i < kSteps; ++i)
    trained.losses.push_back(on.sum_of(on.coordinator->schedule(step, batches)));
  on.coordinator->join(kPatience);
  EXPECT_EQ(optimizer.iterations()->value().item(), kSteps) << "one push for all replicas";
  for (const VariablePtr& variable : {slope, offset}) trained.weights.push_back(variable->value());
  return trained;
}

TEST_F(WorkersWithReplicas, TrainAsOneDeviceDoes) {
  const std::vector<MakeOptimizer> optimizers{
      [] { return optim::Adam(0.05); },
      [] { return optim::SGD(0.1, {.gradients = {.accumulation_steps = 4}}); }};
  for (size_t i = 0; i < optimizers.size(); ++i)
    for (const std::string dataset : {"five and one", "five and three"}) {
      const Trained alone = trained_on(1, dataset, optimizers[i]);
      for (const int devices : {2, 3}) {
        SCOPED_TRACE(str("optimizer ", i, ", ", dataset, ", ", devices, " devices"));
        expect_near(trained_on(devices, dataset, optimizers[i]), alone, 2e-5);
      }
    }
}

// A step whose gradient is the mean of the rows' numbers, whatever the weight is.
class Sloping {
 public:
  Sloping(Replicated& on, const std::string& dataset)
      : on_(on), batches_(on.batches(dataset)), weight_(scalar("w", 0)) {
    step_.emplace(on.strategy->function([this](const BatchValues& batch) {
      const Value x = ops::cast(batch["value"], DType::kFloat32);
      Value loss = loss_of(x * weight_->read(), batch);
      sgd_.minimize(loss, {weight_});
      return loss;
    }));
  }
  void schedule(int steps) {
    for (int i = 0; i < steps; ++i) on_.coordinator->schedule(*step_, batches_);
  }
  double weight() const { return weight_->value().item(); }

 private:
  Replicated& on_;
  const PerWorkerIterator batches_;
  const optim::Optimizer sgd_ = optim::SGD(1.0);
  const VariablePtr weight_;
  std::optional<StepFunction<Value, const BatchValues&>> step_;
};

TEST_F(WorkersWithReplicas, PushOnceForAllTheirReplicas) {
  for (const int workers : {1, 2})
    for (int devices = 1; devices <= kMaxReplicas; ++devices) {
      SCOPED_TRACE(str(workers, " workers with ", devices, " devices"));
      Replicated on(workers, devices);
      Sloping sloping(on, "seven");
      on.coordinator->wait_for_workers();
      sloping.schedule(60);
      on.coordinator->join(kPatience);
      EXPECT_NEAR(sloping.weight(), -60 * 3, 1e-3);
    }
}

TEST_F(WorkersWithReplicas, MayBeLostAndComeBack) {
  Replicated on(2, 2);
  Sloping sloping(on, "seven");
  on.coordinator->wait_for_workers();
  for (const size_t lost : {0, 1}) {
    sloping.schedule(100);
    on.job.cluster.stop(lost);
    on.job.cluster.start(lost);
  }
  on.coordinator->join(kPatience);
  EXPECT_NEAR(sloping.weight(), -200 * 3, 1e-2) << "each push is applied once";
}

// --- Variables synchronised on read

TEST_F(WorkersWithReplicas, ChangeVariablesThatAreSynchronisedOnReadTogether) {
  constexpr int kSteps = 20;
  for (int devices = 1; devices <= kMaxReplicas; ++devices) {
    SCOPED_TRACE(str(devices, " devices"));
    Replicated on(1, devices);
    const auto kept = [](const std::string& name, Aggregation aggregation) {
      VariablePtr variable = scalar(name, 0, Synchronization::kOnRead, aggregation);
      variable->assign(Tensor::scalar(6.0f));
      return variable;
    };
    const VariablePtr counted = kept("counted", Aggregation::kSum),
                      decayed = kept("decayed", Aggregation::kSum),
                      mean = kept("mean", Aggregation::kMean),
                      written = kept("written", Aggregation::kSum);
    const auto step = on.strategy->function([&](const BatchValues& batch) {
      const Value rows = rows_of(batch);
      counted->assign_add(rows);
      decayed->assign(decayed->read() * 0.5 + rows);
      mean->assign(mean->read() * 0.5 + rows * static_cast<double>(devices));
      return written->assign(rows);
    });
    const auto batches = on.batches("seven");
    double value = 6;
    for (int i = 0; i < kSteps; ++i) {
      on.coordinator->schedule(step, batches);
      value = 0.5 * value + 7;
    }
    on.coordinator->join(kPatience);
    EXPECT_NEAR(counted->value().item(), 6 + 7 * kSteps, 1e-3);
    EXPECT_NEAR(decayed->value().item(), value, 1e-4);
    EXPECT_NEAR(mean->value().item(), value, 1e-4);
    EXPECT_EQ(written->value().item(), 7);
  }
}

TEST_F(WorkersWithReplicas, OfSeveralCountEachRowOnce) {
  Replicated on(2, 2);
  const VariablePtr counted = scalar("counted", 0, Synchronization::kOnRead, Aggregation::kSum);
  const auto step =
      on.strategy->function([&](const BatchValues& batch) { counted->assign_add(rows_of(batch)); });
  const auto batches = on.batches("seven");
  on.coordinator->wait_for_workers();
  for (int i = 0; i < 100; ++i) on.coordinator->schedule(step, batches);
  on.coordinator->join(kPatience);
  EXPECT_EQ(counted->value().item(), 700);
}

TEST_F(WorkersWithReplicas, WriteVariablesAsTheirAggregationSays) {
  for (int devices = 1; devices <= kMaxReplicas; ++devices) {
    SCOPED_TRACE(str(devices, " devices"));
    Replicated on(1, devices);
    const VariablePtr sum = scalar("sum", 1, Synchronization::kAuto, Aggregation::kSum);
    const auto own = on.coordinator->create_per_worker_variable(
        {.name = "own",
         .spec = {DType::kFloat32, {}},
         .initial_value = [] { return Tensor::scalar(1.0f); },
         .aggregation = Aggregation::kSum});
    const auto step = on.strategy->function([&](const BatchValues& batch) {
      return sum->assign_add(rows_of(batch)) + own->assign_add(rows_of(batch));
    });
    const auto batches = on.batches("seven");
    for (int i = 1; i <= 3; ++i)
      EXPECT_EQ(on.mean_of(on.coordinator->schedule(step, batches)), 2 * (1 + 7 * i));
    EXPECT_EQ(sum->value().item(), 22);
    EXPECT_EQ(on.coordinator->fetch_per_worker(own).at(0).item(), 22);
  }
}

// --- Results and arguments

TEST_F(WorkersWithReplicas, ReturnTheResultsOfEach) {
  Replicated on(1, 3);
  const auto step = on.strategy->function([](const Value& x) {
    const Value id = ops::cast(get_replica_context()->replica_id_in_sync_group(), DType::kFloat32);
    return std::vector<Value>{id + x, x};
  });
  const RemoteValue value = on.coordinator->schedule(step, 10.0f);
  const std::vector<PerReplica<Tensor>> results = value.fetch_per_replica(kPatience);
  ASSERT_EQ(results.size(), 2u);
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(results[0][r].item(), 10 + static_cast<double>(r));
    EXPECT_EQ(results[1][r].item(), 10);
  }
  EXPECT_ERROR(value.fetch(kPatience), Code::kFailedPrecondition, "3 replicas");
}

TEST_F(WorkersWithReplicas, DrawRandomNumbersOfTheirOwn) {
  Replicated on(1, 3);
  const auto step = on.strategy->function([] { return ops::random_uniform({}); });
  std::set<double> drawn;
  for (int i = 0; i < 2; ++i) {
    const auto results = on.coordinator->schedule(step).fetch_per_replica(kPatience);
    for (const Tensor& one : results.at(0)) drawn.insert(one.item());
  }
  EXPECT_EQ(drawn.size(), 6u);
}

TEST_F(WorkersWithReplicas, KeepAValueOnEachReplica) {
  Replicated on(2, 2);
  const Function ids = function(
      [](Value x) {
        return x + ops::cast(get_replica_context()->replica_id_in_sync_group(), DType::kFloat32);
      },
      "ids");
  const PerWorkerValues kept = on.coordinator->create_per_worker_resource(ids, 5.0f);
  std::vector<double> values;
  on.coordinator->wait_for_workers();
  for (const Tensor& value : on.coordinator->fetch_per_worker(kept)) values.push_back(value.item());
  EXPECT_EQ(values, (std::vector<double>{5, 6, 5, 6}));
  EXPECT_EQ(on.sum_of(on.coordinator->schedule(doubled(), kept)), 2 * (5 + 6));
}

// --- Errors

TEST_F(WorkersWithReplicas, GoOnAfterAnErrorOfOneReplica) {
  for (int devices = 1; devices <= kMaxReplicas; ++devices) {
    SCOPED_TRACE(str(devices, " devices"));
    Replicated on(1, devices);
    const VariablePtr counted = scalar("counted", 0, Synchronization::kOnRead, Aggregation::kSum);
    // Of the batches, only the last row of 0 to 6 is one too many; all wait for one another.
    const auto step = on.strategy->function([&](const BatchValues& batch) {
      counted->assign_add(rows_of(batch));
      const Value found = ops::gather(ops::constant(floats({1, 1, 1, 1, 1, 1})), batch["value"]);
      return get_replica_context()->all_reduce(ReduceOp::kSum, ops::reduce_sum(found));
    });
    on.coordinator->schedule(step, on.batches("seven"));
    EXPECT_ERROR(on.coordinator->join(kPatience), Code::kOutOfRange, "worker:0");
    EXPECT_TRUE(on.coordinator->done()) << "the error has been told";
    EXPECT_EQ(on.mean_of(on.coordinator->schedule(step, on.batches("five and one"))), 5);
    on.coordinator->join(kPatience);
    EXPECT_EQ(counted->value().item(), 5) << "of what failed nothing was pushed";
  }
}

TEST_F(WorkersWithReplicas, EndWhatTheyAreAtWhenAnotherFunctionFails) {
  Replicated on(2, 2);
  const Function longer = function(
      [](Value x) {
        const Value mean = ops::constant(Tensor::full(DType::kFloat32, {512, 512}, 1.0 / 512));
        Value y = ops::broadcast_to(x, {512, 512});
        for (int i = 0; i < 2000; ++i) y = ops::matmul(y, mean);
        return get_replica_context()->all_reduce(ReduceOp::kSum, ops::reduce_sum(y));
      },
      "longer");
  on.coordinator->wait_for_workers();
  const RemoteValue value = on.coordinator->schedule(longer, 1.0f);
  EXPECT_TRUE(eventually([&] { return functions_known(*on.coordinator) > 0; }));
  on.coordinator->schedule(failing(), 0.0f);
  EXPECT_ERROR(on.coordinator->join(kPatience), Code::kOutOfRange, "\"failing\"");
  EXPECT_ERROR(value.fetch_per_replica(kPatience), Code::kCancelled, "in part");
  EXPECT_EQ(on.mean_of(on.coordinator->schedule(doubled(), 2.0f)), 4);
}

TEST_F(WorkersWithReplicas, NeedAStrategyWithAsMany) {
  Job job(1, device_names(2));
  const auto strategy = job.strategy({.devices = device_names(3)});
  const auto coordinator = job.coordinator(*strategy);
  coordinator->schedule(doubled(), 1.0f);
  EXPECT_ERROR(coordinator->join(kPatience), Code::kFailedPrecondition,
               "worker:0 executes functions on 2 devices");
  TestCluster cluster(1, {}, device_names(2));
  EXPECT_ERROR(cluster.coordinator()->wait_for_workers({}, kPatience), Code::kFailedPrecondition,
               "worker:0 executes functions on 2 devices");
  const auto without = cluster.coordinator();
  without->schedule(doubled(), 1.0f);
  EXPECT_ERROR(without->join(kPatience), Code::kFailedPrecondition, "traced for 1");
  EXPECT_ERROR(TestCluster(1, {}, {"cpu:0", "cpu:0"}), Code::kInvalidArgument, "given twice");
}

TEST_F(WorkersWithReplicas, DivideOnlyWhatHasRows) {
  register_dataset("no rows", [](const InputContext&) { return data::range(9); });
  Replicated on(1, 2);
  const auto step = on.strategy->function([](const BatchValues& batch) { return batch["value"]; });
  on.coordinator->schedule(step, on.batches("no rows"));
  EXPECT_ERROR(on.coordinator->join(kPatience), Code::kInvalidArgument, "2 replicas");
}

}  // namespace
}  // namespace cohort::testing
