// A click predictor, wide and deep (Cheng et al. 2016), over features from a vocabulary that is far
// too large for memory: its tables live on parameter servers, which make a row when it is first
// trained. The same program is every task:
//
//   cohort-run --workers=2 --ps=2 wide_and_deep
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

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Trains a click predictor with parameter servers.");
    const auto vocabulary =
        flags.integer("vocabulary", int64_t{1} << 36, "features that there may be", {.min = 1000});
    const auto columns = flags.integer("columns", 16, "numbers for each of them", {.min = 1});
    const auto rows = flags.integer("rows", 40'000, "impressions to train on", {.min = 1});
    const auto epochs = flags.integer("epochs", 2, "passes over them", {.min = 1});
    const auto batch = flags.integer("batch", 256, "impressions in a worker's step", {.min = 1});
    const auto max_staleness = flags.integer(
        "max_staleness", -1, "steps that a worker may be ahead of the slowest; -1: any number",
        {.min = -1});
    const auto snapshots = flags.text("snapshots", "", "folder for the servers'; none: nowhere");
    const auto seed = flags.integer("seed", 1, "of weights and data", {.min = 0});
    flags.finish();

    set_global_seed(static_cast<uint64_t>(seed));
    ParameterServerStrategy::Options options{.snapshot_folder = snapshots};
    if (max_staleness >= 0) options.max_staleness = max_staleness;
    options.rows_on_first_use = [&](const std::string& name, const TensorSpec&) {
      const bool is_table = name.ends_with("/embeddings");
      return is_table ? std::optional(RowInitializer{.kind = RowInitializer::Kind::kNormal,
                                                     .b = 0.01,
                                                     .seed = static_cast<uint64_t>(seed)})
                      : std::nullopt;
    };
    if (run_parameter_server(options)) return;

    ParameterServerStrategy strategy(options);
    const auto scope = strategy.scope();
    Model model = wide_and_deep(vocabulary, columns);
    model.compile({.optimizer = optim::Adagrad(0.1),
                   .loss = losses::BinaryCrossentropy({.from_logits = true}),
                   .metrics = {metrics::AUC({.from_logits = true})}});
    const auto data_seed = static_cast<uint64_t>(seed);
    const History history =
        model.fit(impressions(0, rows, vocabulary, data_seed).batch(batch), {.epochs = epochs});
    std::printf("staleness=%.2f loss=%.4f\n",
                history.results.contains("staleness") ? history["staleness"].back() : 0.0,
                history["loss"].back());
    if (!strategy.is_chief()) return;
    const Logs test = model.evaluate(impressions(rows, 4000, vocabulary, data_seed).batch(500));
    std::printf("test_auc=%.4f test_loss=%.4f\n", test.at("auc"), test.at("loss"));
  });
}
