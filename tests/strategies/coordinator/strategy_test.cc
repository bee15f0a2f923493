// The coordinator of a ParameterServerStrategy, which uses the strategy's variables.
#include "core/distribute/strategy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/file.h"
#include "core/data/distributed_dataset.h"
#include "core/nn/layers.h"
#include "core/nn/losses.h"
#include "core/optim/optimizers.h"
#include "core/train/checkpoint.h"
#include "core/train/event_file.h"
#include "core/train/model.h"
#include "strategies/mirrored_strategy.h"
#include "tests/strategies/coordinator/job.h"
#include "tests/testing/event_fields.h"

namespace cohort::testing {
namespace {

// A weight of three zeros, and steps whose gradient is the same for each of them.
class Slope {
 public:
  Slope(Strategy& strategy, double learning_rate) : sgd_(optim::SGD(learning_rate)) {
    const auto scope = strategy.scope();
    weight_ = create_variable({.name = "w", .spec = {DType::kFloat32, {3}}, .initial_value = [] {
                                 return Tensor::zeros(DType::kFloat32, {3});
                               }});
    step_.emplace(strategy.function([this](const Value& x) {
      Value loss = ops::reduce_sum(weight_->read() * ops::broadcast_to(x, Shape{3}));
      sgd_.minimize(loss, {weight_});
      return loss;
    }));
  }
  void run(ClusterCoordinator& coordinator, int steps, float gradient) {
    for (int i = 0; i < steps; ++i) coordinator.schedule(*step_, gradient);
    coordinator.join(kPatience);
  }
  std::vector<float> weight() const { return values_of(weight_->value()); }
  double iterations() const { return sgd_.iterations()->value().item(); }

 private:
  const optim::Optimizer sgd_;
  std::shared_ptr<Variable> weight_;
  std::optional<StepFunction<Value, const Value&>> step_;
};

TEST(CoordinatorOfAStrategy, OptimizersMoveTheStrategysVariables) {
  Job job(2);
  const auto strategy = job.strategy();
  Slope slope(*strategy, 0.5);
  slope.run(*job.coordinator(*strategy), 40, -1);
  EXPECT_EQ(slope.weight(), (std::vector<float>{20, 20, 20}));
  EXPECT_EQ(slope.iterations(), 40);
}

TEST(CoordinatorOfAStrategy, WorkersCompressGradientsAsItSays) {
  Job job(1);
  const auto strategy =
      job.strategy({.compression = {.kind = Compression::kTwoBit, .threshold = 0.25}});
  Slope slope(*strategy, 1.0);
  slope.run(*job.coordinator(*strategy), 8, -1);
  EXPECT_EQ(slope.weight(), (std::vector<float>{2, 2, 2}))
      << "no element moves by more than the threshold";
}

// Two optimizers of one name, as for a GAN, each with a weight of one name.
TEST(CoordinatorOfAStrategy, VariablesOfOneNameAreDifferentOnes) {
  Job job(2);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto weight = [](float value) {
    return create_variable({.name = "w", .spec = {DType::kFloat32, {}}, .initial_value = [=] {
                              return Tensor::scalar(value);
                            }});
  };
  const auto first = weight(0), second = weight(100);
  const auto slow = optim::SGD(0.5), fast = optim::SGD(2.0);
  const auto both = strategy->function([&] {
    Value loss = 0.0 - (first->read() + second->read());
    slow.minimize(loss, {first});
    fast.minimize(loss, {second});
    return loss;
  });
  // Each of these has the name for itself.
  const auto read_first = strategy->function([&] { return first->read(); });
  const auto read_second = strategy->function([&] { return second->read(); });
  const auto coordinator = job.coordinator(*strategy);
  for (const int steps : {10, 20}) {
    for (int i = 0; i < 10; ++i) coordinator->schedule(both);
    coordinator->join(kPatience);
    for (int i = 0; i < 5; ++i) {  // on either worker
      EXPECT_EQ(coordinator->schedule(read_first).get(kPatience).item(), 0.5 * steps);
      EXPECT_EQ(coordinator->schedule(read_second).get(kPatience).item(), 100 + 2.0 * steps);
    }
    EXPECT_EQ(first->value().item(), 0.5 * steps);
    EXPECT_EQ(second->value().item(), 100 + 2.0 * steps);
    for (const auto* optimizer : {&slow, &fast})
      EXPECT_EQ(optimizer->iterations()->value().item(), steps);
  }
}

TEST(CoordinatorOfAStrategy, AVariableOfNoScopeIsNamedWhereAFunctionThatUsesItIsScheduled) {
  Job job(1);
  const auto strategy = job.strategy();
  const auto other = zero("other");
  const auto scope = strategy->scope();
  const auto weight = zero();
  const auto both =
      strategy->function([&] { return weight->read() + other->read(); }, "both_of_them");
  const auto coordinator = job.coordinator(*strategy);
  for (int i = 0; i < 2; ++i)
    EXPECT_ERROR(coordinator->schedule(both), Code::kInvalidArgument,
                 "\"both_of_them\" cannot be scheduled: it uses variable \"other\", which is "
                 "neither on parameter servers, as those made in the scope of a "
                 "ParameterServerStrategy are, nor one of create_per_worker_variable");
  const auto one =
      strategy->function([&] { return weight->assign_add(ops::constant(1, DType::kFloat32)); });
  EXPECT_EQ(coordinator->schedule(one).get(kPatience).item(), 1);
  coordinator->join(kPatience);
}

// From then on its value is in other shards.
TEST(CoordinatorOfAStrategy, FunctionsOfBeforeReadWhatAnOptimizerMoves) {
  Job job(2);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto weight = zero();
  const auto sgd = optim::SGD(0.5);
  const auto read = strategy->function([&] { return weight->read(); });
  const auto step = strategy->function([&] {
    Value loss = 0.0 - weight->read();
    sgd.minimize(loss, {weight});
    return loss;
  });
  const auto coordinator = job.coordinator(*strategy);
  const auto expect_read = [&](double value) {
    for (int i = 0; i < 5; ++i)  // on either worker
      EXPECT_EQ(coordinator->schedule(read).get(kPatience).item(), value);
  };
  expect_read(0);
  for (int i = 0; i < 10; ++i) coordinator->schedule(step);
  coordinator->join(kPatience);
  expect_read(5);
}

// They share layers, which make their weights when they are called first.
TEST(CoordinatorOfAStrategy, BodiesAreCalledOneAtATime) {
  Job job(2);
  std::mutex mutex;
  std::map<std::string, int> made;
  const auto strategy = job.strategy({.load = [&](const std::string& name, const TensorSpec& spec) {
    const std::lock_guard lock(mutex);
    ++made[name];
    const auto bytes = static_cast<int64_t>(spec.bytes());
    return ShardLoad{.bytes = bytes, .traffic = bytes};
  }});
  const auto scope = strategy->scope();
  const auto coordinator = job.coordinator(*strategy);
  for (int round = 0; round < 10; ++round) {
    made.clear();  // each round's have the same names
    const auto network = nn::Sequential({nn::Dense(4), nn::Dense(1)});
    const auto sgd = optim::SGD(0.1);
    std::atomic<int> asked = 0, inside = 0;
    const auto apply = [&](const Value& x) {
      EXPECT_EQ(inside++, 0) << "another body is being called";
      while (asked < 2) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();  // where the other could begin
      Value y = ops::reduce_sum(network(x));
      --inside;
      return y;
    };
    const auto train = strategy->function([&](const Value& x) {
      Value loss = apply(x);
      sgd.minimize(loss, network.trainable_variables());
      return loss;
    });
    const auto judge = strategy->function([&](const Value& x) { return apply(x); });
    const Tensor x = Tensor::full(DType::kFloat32, {2, 3}, 1);
    auto judged = std::async(std::launch::async, [&] {
      ++asked;
      return coordinator->schedule(judge, x);
    });
    ++asked;
    coordinator->schedule(train, x);
    judged.get();
    coordinator->join(kPatience);
    EXPECT_EQ(network.variables().size(), 4u);
    for (const auto& variable : network.variables())
      EXPECT_EQ(made[variable->name()], 1) << variable->name();
    EXPECT_EQ(sgd.iterations()->value().item(), 1);
  }
}

TEST(CoordinatorOfAStrategy, TablesMayBeLargerThanAnyMemory) {
  constexpr int64_t kRows = int64_t{1} << 40;
  Job job(1);
  const auto strategy = job.strategy({.rows_on_first_use = [](const std::string&, auto&) {
    return std::optional(RowInitializer{.kind = RowInitializer::Kind::kConstant, .a = 2});
  }});
  const auto scope = strategy->scope();
  const auto table = create_variable({.name = "table", .spec = {DType::kFloat32, {kRows, 4}}});
  const auto step = strategy->function([&](const Value& row) {
    return ops::reduce_sum(ops::gather(table->read(), ops::cast(row, DType::kInt64)));
  });
  const auto coordinator = job.coordinator(*strategy);
  EXPECT_EQ(coordinator->schedule(step, Tensor::scalar(kRows - 1)).get(kPatience).item(), 8);
}

TEST(CoordinatorOfAStrategy, ASecondOneIsTheSame) {
  Job job(1);
  const auto strategy = job.strategy();
  const Function f = doubled();
  {
    const auto first = job.coordinator(*strategy);
    {
      const auto second = job.coordinator(*strategy);
      second->schedule(f, 1.0f);
      first->join(kPatience);
      EXPECT_EQ(second->statistics().executed, 1u);
      second->schedule(failing(), 0.0f);
      EXPECT_ERROR(first->join(kPatience), Code::kOutOfRange, "\"failing\"");
      EXPECT_TRUE(second->done()) << "the error has been told";
    }
    EXPECT_EQ(first->schedule(f, 2.0f).get(kPatience).item(), 4);
  }
  const auto later = job.coordinator(*strategy);
  EXPECT_EQ(later->statistics().executed, 0u) << "a new one, once nobody had one";
  EXPECT_EQ(later->schedule(f, 3.0f).get(kPatience).item(), 6);
}

TEST(CoordinatorOfAStrategy, WorkersMultiplyInThePrecisionOfTheStep) {
  constexpr float kBeyondFloat16 = 1 + 0x1p-12f;
  Job job(1);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  const auto weight =
      create_variable({.name = "w", .spec = {DType::kFloat32, {1, 1}}, .initial_value = [] {
                         return Tensor::full(DType::kFloat32, {1, 1}, kBeyondFloat16);
                       }});
  const auto coordinator = job.coordinator(*strategy);
  const auto product = [&](Precision precision) {
    const auto step = strategy->function(
        [&](const Value& x) {
          return ops::matmul(ops::reshape(x, {1, 1}), weight->read());
        },
        "product", precision);
    const double on_worker = coordinator->schedule(step, 1.0f).get(kPatience).item();
    EXPECT_EQ(on_worker, strategy->run(step, 1.0f)[0].item()) << precision_name(precision);
    return on_worker;
  };
  EXPECT_EQ(product(Precision::kFloat32), kBeyondFloat16);
  EXPECT_EQ(product(Precision::kMixedFloat16), 1);
}

TEST(CoordinatorOfAStrategy, IsForTheChiefOfAnAsynchronousParameterServerStrategy) {
  Job job(1);
  MirroredStrategy mirrored;
  EXPECT_ERROR(job.coordinator(mirrored), Code::kInvalidArgument, "got MirroredStrategy");
  EXPECT_ERROR(job.coordinator(*job.strategy({}, "worker")), Code::kInvalidArgument,
               "for the task chief:0, and this is worker:0");
  EXPECT_ERROR(job.coordinator(*job.strategy({.max_staleness = 3})), Code::kInvalidArgument,
               "max_staleness is 3");
  EXPECT_ERROR(job.coordinator(*job.strategy({.max_staleness = 0})), Code::kInvalidArgument,
               "asynchronously");
}

TEST(CoordinatorOfAStrategy, DatasetsAreMadeForReplicasAsTheStrategyCountsThem) {
  static std::mutex mutex;
  static std::vector<InputContext> seen;
  register_dataset("contexts", [](const InputContext& context) {
    const std::lock_guard lock(mutex);
    seen.push_back(context);
    return data::range(3).repeat().batch(1);
  });
  Job job(2);
  const auto strategy = job.strategy();
  const auto coordinator = job.coordinator(*strategy);
  const auto batches = coordinator->create_per_worker_dataset("contexts").iterate();
  coordinator->schedule(summing(), batches);
  coordinator->join(kPatience);
  const std::lock_guard lock(mutex);
  ASSERT_FALSE(seen.empty());
  for (const InputContext& context : seen) {
    EXPECT_EQ(context.num_input_pipelines, 2);
    EXPECT_EQ(context.num_replicas_in_sync, strategy->num_replicas_in_sync());
    EXPECT_TRUE(context.independent);
  }
}

// The workers would not train on theirs.
TEST(CoordinatorOfAStrategy, FitDoesNotTrainOnTheChiefsShareAlone) {
  Job job(2);
  const auto strategy = job.strategy();
  const auto scope = strategy->scope();
  Model model = nn::Sequential({nn::Dense(1)});
  model.compile({.optimizer = optim::SGD(0.1), .loss = losses::MeanSquaredError()});
  auto batches = data::from_tensor_slices({{"x", Tensor::zeros(DType::kFloat32, {6, 2})},
                                           {"label", Tensor::zeros(DType::kFloat32, {6, 1})}})
                     .batch(2);
  const auto divide = [&] { strategy->distribute_dataset(batches); };
  {
    const auto coordinator = job.coordinator(*strategy);
    EXPECT_ERROR(model.fit(batches, {.verbose = Verbose::kSilent}), Code::kFailedPrecondition,
                 "ClusterCoordinator");
    EXPECT_ERROR(divide(), Code::kFailedPrecondition, "run_worker_server()");
    EXPECT_ERROR(
        strategy->distribute_datasets_from_function([&](const InputContext&) { return batches; }),
        Code::kFailedPrecondition, "create_per_worker_dataset()");
    EXPECT_TRUE(model.evaluate(batches).contains("loss")) << "of all rows, here";
  }
  EXPECT_NO_THROW(divide()) << "the workers may run the program now";
}

TEST(CoordinatorOfAStrategy, WorkersMayBeginOneAfterTheOther) {
  constexpr milliseconds kForever = milliseconds::max();
  Job job(3);
  const auto strategy = job.strategy();
  const Function f = doubled();
  const auto counts = [&] {
    std::vector<uint64_t> executed;
    for (size_t i = 0; i < 3; ++i) executed.push_back(job.cluster.worker(i).executed());
    return executed;
  };
  {
    const auto coordinator =
        job.coordinator(*strategy, {.start_delay = kForever, .max_start_delay = kForever});
    coordinator->wait_for_workers();
    for (int i = 0; i < 50; ++i) coordinator->schedule(f, 1.0f);
    coordinator->join(kPatience);
    EXPECT_EQ(counts(), (std::vector<uint64_t>{50, 0, 0}));
  }
  const auto coordinator =
      job.coordinator(*strategy, {.start_delay = kForever, .max_start_delay = milliseconds(50)});
  EXPECT_TRUE(eventually([&] {
    coordinator->schedule(f, 1.0f);
    return counts()[1] > 0 && counts()[2] > 0;
  })) << "the limit counts";
  coordinator->join(kPatience);
  EXPECT_ERROR(job.coordinator(*job.strategy(), {.start_delay = milliseconds(-1)}),
               Code::kInvalidArgument, "start_delay");
}

TEST(CoordinatorOfAStrategy, EachWorkerBeginsADelayAfterTheOneBefore) {
  using Clock = std::chrono::steady_clock;
  constexpr milliseconds kDelay(40);
  const Function f = doubled();
  for (const milliseconds limit : {milliseconds(60), milliseconds(std::chrono::hours(1))}) {
    Job job(3);
    const auto strategy = job.strategy();
    const Clock::time_point begin = Clock::now();
    const auto coordinator =
        job.coordinator(*strategy, {.start_delay = kDelay, .max_start_delay = limit});
    std::vector<Clock::duration> first(3, Clock::duration::max());  // seen at work
    EXPECT_TRUE(eventually([&] {
      coordinator->schedule(f, 1.0f);
      for (size_t i = 0; i < first.size(); ++i)
        if (job.cluster.worker(i).executed() > 0)
          first[i] = std::min<Clock::duration>(first[i], Clock::now() - begin);
      return std::ranges::max(first) < Clock::duration::max();
    }));
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_GE(first[i], std::min(static_cast<int>(i) * kDelay, limit)) << "worker:" << i;
    coordinator->join(kPatience);
  }
}

// One weight, and steps of Adam towards where it is 3.
class Descent {
 public:
  Descent(Job& job, Strategy& strategy) : coordinator_(job.coordinator(strategy)) {
    const auto scope = strategy.scope();
    weight_ = zero();
    adam_.build({weight_});
    step_.emplace(strategy.function([this] {
      Value error = weight_->read() - 3;
      adam_.minimize(error * error, {weight_});
      return error;
    }));
  }
  ClusterCoordinator& coordinator() { return *coordinator_; }
  void schedule(int steps) {
    for (int i = 0; i < steps; ++i) coordinator_->schedule(*step_);
  }
  void run(int steps) {
    schedule(steps);
    coordinator_->join(kPatience);
  }
  Variables variables() const {
    Variables all = adam_.variables();
    all.push_back(weight_);
    return all;
  }
  double weight() const { return weight_->value().item(); }

 private:
  const std::unique_ptr<ClusterCoordinator> coordinator_;
  const optim::Optimizer adam_ = optim::Adam(0.1);
  std::shared_ptr<Variable> weight_;
  std::optional<StepFunction<Value>> step_;
};

// Where the weight is after 20 steps.
double undisturbed() {
  Job job(1);
  const auto strategy = job.strategy();
  Descent descent(job, *strategy);
  descent.run(20);
  return descent.weight();
}

TEST(CoordinatorOfAStrategy, ALaterOneGoesOnWhereTheServersAre) {
  Job job(1);
  double weight = 0;
  for (int i = 0; i < 2; ++i) {
    const auto strategy = job.strategy();
    Descent descent(job, *strategy);
    descent.run(10);
    weight = descent.weight();
  }
  EXPECT_EQ(weight, undisturbed());
}

TEST(CoordinatorOfAStrategy, TensorBoardShowsHowStaleGradientsWere) {
  Job job(2);
  const auto strategy = job.strategy();
  Descent descent(job, *strategy);
  const TemporaryFolder folder("ps");
  EventFile events(folder.path());
  for (int epoch = 0; epoch < 2; ++epoch) {
    descent.run(25);
    const StrategyReport report = descent.coordinator().take_report();
    events.write_histograms(epoch, {{"epoch_staleness", report.histograms.at("staleness")}});
  }
  EXPECT_EQ(event_fields::histogram_counts(read_file(events.path()), "epoch_staleness"),
            std::vector<double>({50, 50}))
      << "each step updates the weight and counts";
}

TEST(CoordinatorOfAStrategy, GoesOnFromACheckpointWhenItsServersAreLost) {
  const TemporaryFolder folder("ps");
  const std::string path = folder.path() + "/state";
  {
    Job job(1);
    const auto strategy = job.strategy({.timeout = std::chrono::seconds(3)});
    Descent descent(job, *strategy);
    descent.run(10);
    save_variables(path, descent.variables());
    job.stop_servers();
    EXPECT_ERROR(descent.run(2), Code::kUnavailable, "parameter server");
  }
  Job job(1);
  const auto strategy = job.strategy();
  Descent descent(job, *strategy);
  load_variables(path, descent.variables());
  descent.run(10);
  EXPECT_EQ(descent.weight(), undisturbed());
}

TEST(CoordinatorOfAStrategy, AWorkerAndTheServersThatAreLostTogetherAreAnError) {
  Job job(2);
  const auto strategy = job.strategy({.timeout = std::chrono::seconds(3)});
  Descent descent(job, *strategy);
  descent.run(5);
  descent.schedule(200);
  job.cluster.stop(0);
  job.stop_servers();
  // By then all 200 may have been quicker.
  EXPECT_ERROR(descent.run(1), Code::kUnavailable, "parameter server");
  EXPECT_EQ(descent.coordinator().schedule(doubled(), 1.0f).get(kPatience).item(), 2);
}

TEST(CoordinatorOfAStrategy, VariablesAreReadWhileWorkersComeAndGo) {
  Job job(1);
  const auto strategy = job.strategy();
  Descent descent(job, *strategy);
  for (int round = 0; round < 3; ++round) {
    descent.schedule(20);
    job.cluster.stop(0);
    EXPECT_LE(descent.weight(), 3.5);
    std::thread starting([&] { job.cluster.start(0); });
    while (!descent.coordinator().done()) descent.weight();
    starting.join();
  }
  EXPECT_NEAR(descent.weight(), 3, 0.5) << "after 60 steps";
}

}  // namespace
}  // namespace cohort::testing
