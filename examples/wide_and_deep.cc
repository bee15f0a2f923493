// A click predictor, wide and deep (Cheng et al. 2016), over features from a vocabulary that is far
// too large for memory: its tables live on parameter servers, which make a row when it is first
// trained. The same program is every task. Workers train on their own, or execute what a chief
// schedules; where there is no task chief:0, that is worker:0, which executes, too:
//
//   cohort-run --workers=2 --ps=2 wide_and_deep
//   cohort-run --workers=2 --ps=2 wide_and_deep --coordinator
//   cohort-run --chief --workers=2 --ps=2 wide_and_deep --coordinator
//   cohort-run --workers=2 --ps=2 --task_restarts=3 wide_and_deep --snapshots=DIR
//   cohort-run --workers=2 --ps=2 --evaluator wide_and_deep --checkpoints=DIR
//
// The clicks are generated: each feature has a hidden weight, some of the more common ones much of
// it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cohort.h"

using namespace cohort;

namespace {

constexpr int64_t kFields = 6;
constexpr int64_t kDense = 4;

uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}

// A number from -1 to 1 that belongs to `x`.
double hidden(uint64_t x) { return static_cast<double>(scramble(x) >> 11) / double{1LL << 52} - 1; }

// Impression `index`: in each field an item by its popularity, hashed into one vocabulary.
data::Element impression(int64_t index, int64_t vocabulary, uint64_t seed) {
  RandomStream random(seed + scramble(static_cast<uint64_t>(index)));
  Tensor ids(DType::kInt64, {kFields}), dense(DType::kFloat32, {kDense});
  double score = 0;
  for (int64_t field = 0; field < kFields; ++field) {
    const double skew = random.uniform();
    const auto item =
        static_cast<uint64_t>(2000 * skew * skew * skew) * kFields + static_cast<uint64_t>(field);
    ids.data<int64_t>()[field] =
        static_cast<int64_t>(scramble(scramble(item)) % static_cast<uint64_t>(vocabulary));
    score += 2 * hidden(item);
  }
  for (int64_t i = 0; i < kDense; ++i) {
    const double value = 2 * random.uniform() - 1;
    dense.data<float>()[i] = static_cast<float>(value);
    score += value * (i % 2 == 0 ? 1 : -1);
  }
  const bool clicked = random.uniform() < 1 / (1 + std::exp(-score));
  return {{"ids", ids}, {"dense", dense}, {"label", Tensor::full(DType::kFloat32, {1}, clicked)}};
}

data::Dataset impressions(int64_t begin, int64_t count, int64_t vocabulary, uint64_t seed) {
  return data::range(count).map([=](const data::Element& element) {
    return impression(begin + static_cast<int64_t>(element.fields()[0].tensor.item()), vocabulary,
                      seed);
  });
}

Model wide_and_deep(int64_t vocabulary, int64_t columns) {
  const auto ids = nn::Input({kFields}, {.dtype = DType::kInt64, .name = "ids"});
  const auto dense = nn::Input({kDense}, {.name = "dense"});
  const auto wide = nn::Flatten()(nn::Embedding(vocabulary, 1, {.name = "wide"})(ids));
  const auto rows = nn::Flatten()(nn::Embedding(vocabulary, columns, {.name = "deep"})(ids));
  auto deep = nn::Concatenate()({rows, dense});
  for (const int64_t units : {64, 32}) deep = nn::Dense(units, {.activation = nn::relu})(deep);
  return nn::Functional({ids, dense}, nn::Dense(1)(nn::Concatenate()({wide, deep})));
}

// How tables of embeddings make a row that is used for the first time; other variables have all.
std::optional<RowInitializer> rows_on_first_use(const std::string& name, uint64_t seed) {
  if (!name.ends_with("/embeddings")) return std::nullopt;
  // Tables of one seed would begin with the same numbers.
  const uint64_t table = name.starts_with("deep/") ? 1 : 0;
  return RowInitializer{.kind = RowInitializer::Kind::kNormal, .b = 0.01, .seed = 2 * seed + table};
}

// Where to leave what; empty: nowhere.
struct Folders {
  std::string checkpoints, logs;
};

// Every worker trains on its share of the impressions.
void fit(ParameterServerStrategy& strategy, Model& model, const data::Dataset& train,
         int64_t epochs, const Folders& folders) {
  std::vector<CallbackPtr> callbacks = {callbacks::TerminateOnNaN()};
  if (!folders.checkpoints.empty())
    callbacks.push_back(
        callbacks::ModelCheckpoint(folders.checkpoints + "/epoch-{epoch}.safetensors"));
  if (!folders.logs.empty()) callbacks.push_back(callbacks::TensorBoard(folders.logs));
  const History history = model.fit(train, {.epochs = epochs, .callbacks = callbacks});
  if (!history.results.contains("loss")) return;  // fit() has said that there were no rows for it
  std::printf("%s staleness=%.2f loss=%.4f\n",
              strategy.workers().name(strategy.workers().rank()).c_str(),
              history.results.contains("staleness") ? history["staleness"].back() : 0.0,
              history["loss"].back());
}

// The chief schedules `steps` steps for each epoch, which the workers execute on batches of
// theirs. A job that is started again goes on after the steps that its servers' snapshots have.
void schedule(ParameterServerStrategy& strategy, const Model& model, const losses::Loss& loss,
              int64_t steps, int64_t epochs, const Folders& folders) {
  std::optional<EventFile> events;
  if (!folders.logs.empty()) events.emplace(folders.logs);
  const auto step = strategy.function([&](const BatchValues& batch) {
    const Value logits = model({batch["ids"], batch["dense"]}, {.training = true});
    Value mean = ops::reduce_mean(loss.per_example(batch["label"], logits));
    model.optimizer().minimize(mean, model.trainable_variables());
    return mean;
  });
  model.optimizer().build(model.trainable_variables());
  auto scheduled = static_cast<int64_t>(model.optimizer().iterations()->value().item());
  ClusterCoordinator coordinator(strategy);
  const auto batches = coordinator.create_per_worker_dataset("impressions").iterate();
  for (int64_t epoch = scheduled / steps + 1; epoch <= epochs; ++epoch) {
    std::vector<RemoteValue> losses;
    for (; scheduled < epoch * steps; ++scheduled)
      losses.push_back(coordinator.schedule(step, batches));
    coordinator.join();
    double sum = 0;
    for (const RemoteValue& value : losses) sum += value.get().item();
    const StrategyReport report = coordinator.take_report();
    std::printf("epoch %ld: loss=%.4f staleness=%.2f lost_updates=%.0f\n", static_cast<long>(epoch),
                sum / static_cast<double>(losses.size()), report.numbers.at("staleness"),
                report.numbers.at("lost_updates"));
    if (events)
      events->write_histograms(epoch, {{"epoch_staleness", report.histograms.at("staleness")}});
    if (!folders.checkpoints.empty())
      model.save_checkpoint(str(folders.checkpoints, "/epoch-", epoch, ".safetensors"));
  }
  coordinator.shut_down();
}

// Each worker that executes takes batches of its share again and again.
void require_a_row_each(int64_t rows) {
  const int workers = resolve_cluster().resolver->cluster_spec().num_tasks("worker");
  if (rows < workers)
    invalid("--rows=", rows, " is not allowed with --coordinator and ", workers,
            " workers: expected at least ", workers, ", one for each");
}

// Beside training: the test results of each checkpoint.
void evaluate(const std::string& checkpoints, Model& model, const data::Dataset& test) {
  evaluate_checkpoints(checkpoints, model, test, {.evaluated = [](auto&, int64_t step, auto& logs) {
                         std::printf("step=%ld auc=%.4f\n", static_cast<long>(step),
                                     logs.at("auc"));
                         std::fflush(stdout);
                       }});
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Trains a click predictor with parameter servers.");
    const auto vocabulary =
        flags.integer("vocabulary", int64_t{1} << 40, "features that there may be", {.min = 1000});
    const auto columns = flags.integer("columns", 16, "numbers for each of them", {.min = 1});
    const auto rows = flags.integer("rows", 40'000, "impressions to train on", {.min = 1});
    const auto epochs = flags.integer("epochs", 2, "passes over them", {.min = 1});
    const auto batch = std::min(
        flags.integer("batch", 256, "impressions in a worker's step, --rows at most", {.min = 1}),
        rows);
    const bool coordinated =
        flags.boolean("coordinator", false, "the chief schedules, and workers execute");
    const auto max_staleness = flags.integer(
        "max_staleness", -1, "steps that a worker may be ahead of the slowest; -1: any number",
        {.min = -1});
    const auto snapshots = flags.text("snapshots", "", "folder for the servers'; none: nowhere");
    const Folders folders{.checkpoints = flags.text(
                              "checkpoints", "",
                              "folder for one after each epoch, which an evaluator looks at; none"),
                          .logs = flags.text("logs", "", "folder for TensorBoard; none")};
    const auto seed =
        static_cast<uint64_t>(flags.integer("seed", 1, "of weights and data", {.min = 0}));
    flags.finish();
    if (coordinated && max_staleness >= 0)
      invalid("--max_staleness=", max_staleness,
              " has no use with --coordinator, where servers update asynchronously");
    if (coordinated) require_a_row_each(rows);

    set_global_seed(seed);
    ParameterServerStrategy::Options options{.snapshot_folder = snapshots};
    if (max_staleness >= 0) options.max_staleness = max_staleness;
    options.rows_on_first_use = [=](const std::string& name, const TensorSpec&) {
      return rows_on_first_use(name, seed);
    };
    if (run_parameter_server(options)) return;
    const auto train = impressions(0, rows, vocabulary, seed);
    if (coordinated) {
      register_dataset("impressions", [&](const InputContext& in) {
        return train.shard(in.num_input_pipelines, in.input_pipeline_id).repeat().batch(batch);
      });
      if (run_worker_server()) return;
    }

    const bool is_evaluator = resolve_cluster().resolver->task_type() == "evaluator";
    // An evaluator is on its own: its tables are in its own process, and in no snapshot.
    if (is_evaluator) {
      options.resolver = std::make_shared<LiteralResolver>();
      options.snapshot_folder.clear();
    }
    ParameterServerStrategy strategy(options);
    const auto scope = strategy.scope();
    Model model = wide_and_deep(vocabulary, columns);
    const auto loss = losses::BinaryCrossentropy({.from_logits = true});
    model.compile({.optimizer = optim::Adagrad(0.1),
                   .loss = loss,
                   .metrics = {metrics::AUC({.from_logits = true})}});
    const auto test = impressions(rows, 4000, vocabulary, seed).batch(500);
    if (is_evaluator) return evaluate(folders.checkpoints, model, test);
    if (coordinated)
      schedule(strategy, model, loss, (rows - 1) / batch + 1, epochs, folders);
    else
      fit(strategy, model, train.batch(batch), epochs, folders);
    if (!strategy.is_chief()) return;
    const Logs results = model.evaluate(test);
    std::printf("test_auc=%.4f test_loss=%.4f\n", results.at("auc"), results.at("loss"));
  });
}
