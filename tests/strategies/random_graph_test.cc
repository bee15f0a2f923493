// Whatever the graph, the optimizer, the sizes of batches and the number of replicas: training
// under a strategy that reduces in each step is training on one device.
#include "tests/strategies/random_graph.h"

#include <algorithm>
#include <random>
#include <set>

#include "cohort.h"
#include "core/graph/op.h"
#include "tests/strategies/on_workers.h"
#include "tests/strategies/training_testing.h"
#include "tests/testing/trials.h"

namespace cohort {
namespace {

constexpr uint64_t kFirstSeed = 1, kSeeds = 40;
constexpr int kMaxReplicas = 7, kMaxWorkers = 3, kMaxReplicasOfWorker = 2;
// Of float64: what another order of additions may change in a few steps. A row that weighs wrongly,
// or is left out, changes far more than the square root of it.
constexpr double kTolerance = 1e-10;

// What a seed draws: the parameters' shapes, and the graph of a batch of two rows.
struct Drawn {
  std::vector<Shape> parameters;
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
};

Drawn draw(uint64_t seed) {
  Drawn drawn;
  const GraphScope scope(*drawn.graph);
  std::vector<std::string> names;
  std::vector<Value> values;
  for (const auto& field : random_graph_batch(2, 0)) {
    names.push_back(field.name);
    values.push_back(drawn.graph->add_input(field.name, field.tensor.spec()));
  }
  draw_loss(seed, BatchValues(names, values), [&](size_t index, const Shape& shape) {
    if (index == drawn.parameters.size()) drawn.parameters.push_back(shape);
    return drawn.graph->add_input(str("parameter", index), {DType::kFloat64, shape});
  });
  return drawn;
}

// The program of a seed, with a few of the parameters frozen.
Program make_program(uint64_t seed, const std::vector<Shape>& shapes) {
  std::vector<VariablePtr> parameters;
  Program program;
  for (const Shape& shape : shapes) {
    const size_t index = parameters.size();
    parameters.push_back(
        weight(str("parameter", index), DType::kFloat64, shape, 1.3 * static_cast<double>(index)));
    if (index % 4 != 1 || index + 1 == shapes.size())
      program.variables.push_back(parameters.back());
  }
  program.loss = [=](const BatchValues& batch) {
    return draw_loss(seed, batch,
                     [&](size_t index, const Shape&) { return parameters[index]->read(); });
  };
  return program;
}

// Not among them is what makes a step of one length of however small a gradient (LAMB, Adam with
// its usual epsilon): of one that is 0 but for rounding too.
optim::Optimizer draw_optimizer(uint64_t seed) {
  std::mt19937_64 random(seed);
  optim::GradientOptions gradients;
  switch (random() % 6) {
    case 0:
      gradients.clipvalue = 0.05;
      break;
    case 1:
      gradients.clipnorm = 0.2;
      break;
    case 2:
      gradients.global_clipnorm = 0.3;
      break;
    case 3:
      gradients.accumulation_steps = 2;
      break;
    case 4:
      gradients.loss_scale = optim::LossScale{.dynamic_growth_steps = 2};
      break;
    default:
      break;  // as they are
  }
  constexpr double kEpsilon = 1e-3;
  switch (random() % 7) {
    case 0:
      return optim::SGD(0.05, {.weight_decay = {.factor = 0.01}, .gradients = gradients});
    case 1:
      return optim::SGD(0.02, {.momentum = 0.9, .nesterov = true, .gradients = gradients});
    case 2:
      return optim::Adam(0.02, {.epsilon = kEpsilon, .amsgrad = true, .gradients = gradients});
    case 3:
      return optim::Adam(0.02, {.epsilon = kEpsilon, .lazy = true, .gradients = gradients});
    case 4:
      return optim::AdamW(0.02, {.epsilon = kEpsilon, .gradients = gradients});
    case 5:
      return optim::RMSprop(0.01, {.momentum = 0.5, .epsilon = kEpsilon, .gradients = gradients});
    default:
      return optim::Adagrad(0.05, {.gradients = gradients});
  }
}

double farthest_apart(const Trained& a, const Trained& b) {
  double farthest = 0;
  for (size_t v = 0; v < a.weights.size(); ++v)
    for (int64_t i = 0; i < a.weights[v].num_elements(); ++i)
      farthest = std::max(
          farthest, std::abs(a.weights[v].data<double>()[i] - b.weights[v].data<double>()[i]));
  return farthest;
}

// Every other one with a bucket for each gradient.
CommunicationOptions communication_of(uint64_t seed) {
  return {.bytes_per_pack = static_cast<int64_t>(seed % 2)};
}

std::unique_ptr<Strategy> make_strategy(bool central, int replicas, uint64_t seed) {
  const CommunicationOptions communication = communication_of(seed);
  if (central)
    return std::make_unique<CentralStorageStrategy>(CentralStorageStrategy::Options{
        .compute_devices = device_names(replicas), .communication = communication});
  return std::make_unique<MirroredStrategy>(
      MirroredStrategy::Options{.devices = device_names(replicas), .communication = communication});
}

class RandomGraphTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(kMaxReplicas, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }
};
auto seeds() {
  const testing::Trials trials = testing::trials(kFirstSeed, kSeeds);
  return ::testing::Range(trials.seed, trials.seed + trials.count);
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphTest, seeds());

TEST_P(RandomGraphTest, TrainsLikeOneDevice) {
  const uint64_t seed = GetParam();
  const Drawn drawn = draw(seed);
  SCOPED_TRACE(str("seed ", seed, ", for two rows:\n", *drawn.graph));
  const auto make = [&] { return make_program(seed, drawn.parameters); };
  const auto optimizer = [&] { return draw_optimizer(seed); };
  std::mt19937_64 random(seed);
  std::vector<data::Batch> batches;
  std::string sizes = "batches of";
  for (const int64_t most : {20, 20, 20, 5}) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    batches.push_back(random_graph_batch(rows, static_cast<int>(batches.size())));
    sizes += str(" ", rows);
  }

  const Trained untrained = train_on(default_strategy(), make, optimizer, {}),
                expected = train_on(default_strategy(), make, optimizer, batches);
  EXPECT_GT(farthest_apart(expected, untrained), 1e-6) << "nothing was learned";
  for (const bool central : {false, true}) {
    const int replicas = 1 + static_cast<int>(random() % kMaxReplicas);
    const auto strategy = make_strategy(central, replicas, seed);
    SCOPED_TRACE(str(strategy->name(), " with ", replicas, " replicas, ", sizes));
    try {
      expect_near(train_on(*strategy, make, optimizer, batches), expected, kTolerance);
    } catch (const Error& error) {  // here, where what was drawn is printed
      ADD_FAILURE() << error.what();
    }
  }

  const int workers = 2 + static_cast<int>(random() % (kMaxWorkers - 1)),
            replicas = 1 + static_cast<int>(random() % kMaxReplicasOfWorker);
  SCOPED_TRACE(str(workers, " workers with ", replicas, " replicas, ", sizes));
  std::vector<Trained> found(static_cast<size_t>(workers));
  testing::on_good_workers(
      workers,
      [&](MultiWorkerMirroredStrategy& strategy) {
        found[static_cast<size_t>(strategy.workers().rank())] =
            train_on(strategy, make, optimizer, batches);
      },
      {.devices = device_names(replicas), .communication = communication_of(seed)});
  if (HasFailure()) return;  // there is nothing to compare
  for (const Trained& trained : found) expect_near(trained, expected, kTolerance);
}

TEST(RandomGraphOpsTest, AreOfEveryFamily) {
  std::set<std::string> ops;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    const Drawn drawn = draw(seed);
    for (const auto& node : drawn.graph->nodes()) ops.insert(node->op().name);
  }
  for (const char* op : {"Attention",
                         "AvgPool2D",
                         "Concat",
                         "Conv2D",
                         "CumSum",
                         "Gather",
                         "LayerNorm",
                         "MatMul",
                         "MaxPool2D",
                         "Maximum",
                         "Pad",
                         "ReduceMax",
                         "ReduceMean",
                         "ReduceMin",
                         "Reshape",
                         "RmsNorm",
                         "Slice",
                         "Softmax",
                         "SparseSoftmaxCrossEntropy",
                         "Transpose",
                         "Select"})
    EXPECT_TRUE(ops.contains(op)) << op;
}

}  // namespace
}  // namespace cohort
