// A small GPT that learns to continue a text, letter by letter.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cohort.h"

using namespace cohort;

namespace {

constexpr int64_t kVocabulary = 256;  // bytes

// Sums in words, from "zero plus zero is zero." on.
std::string generated_text() {
  const char* words[] = {"zero", "one",   "two",   "three", "four", "five",
                         "six",  "seven", "eight", "nine",  "ten"};
  RandomStream random(/*seed=*/1);
  std::string text;
  for (int i = 0; i < 5'000; ++i) {
    const auto sum = random.below(11), first = random.below(sum + 1);
    text += str(words[first], " plus ", words[sum - first], " is ", words[sum], ".\n");
  }
  return text;
}

// Rows of `length` bytes, each with the bytes that follow them as labels.
data::Dataset windows(const std::string& text, int64_t length) {
  const int64_t rows = (static_cast<int64_t>(text.size()) - 1) / length;
  if (rows < 1)
    invalid("a text of ", text.size(), " bytes is too short for --context=", length,
            ", which takes ", length + 1);
  const auto bytes = Tensor::from<uint8_t>(std::vector<uint8_t>(text.begin(), text.end()),
                                           {static_cast<int64_t>(text.size())})
                         .cast(DType::kInt32);
  return data::from_tensor_slices(
      {{"tokens", bytes.slice_rows(0, rows * length).reshape({rows, length})},
       {"label", bytes.slice_rows(1, rows * length + 1).reshape({rows, length})}});
}

data::Dataset windows_of_file(const std::string& path, int64_t length) {
  if (path.empty()) return windows(generated_text(), length);
  try {
    return windows(read_file(path), length);
  } catch (const Error& error) {
    throw error.with_context("--text=" + path);
  }
}

Model gpt(int64_t layers, int64_t heads, int64_t width, int64_t context) {
  std::vector<nn::Layer> all = {nn::Embedding(kVocabulary, width), nn::PositionEmbedding(context)};
  for (int64_t i = 0; i < layers; ++i) {
    all.push_back(nn::Residual({nn::LayerNormalization(),
                                nn::MultiHeadAttention(heads, width / heads, {.causal = true})}));
    all.push_back(
        nn::Residual({nn::LayerNormalization(), nn::Dense(4 * width, {.activation = nn::gelu_tanh}),
                      nn::Dense(width)}));
  }
  all.push_back(nn::LayerNormalization());
  all.push_back(nn::Dense(kVocabulary));
  return nn::Sequential(all);
}

// One of the classes, with the probabilities of a softmax over `logits`.
int64_t sample(std::span<const float> logits, double temperature, RandomStream& random) {
  double highest = -INFINITY, total = 0;
  for (const float logit : logits) highest = std::max<double>(highest, logit);
  const auto weight = [&](float logit) { return std::exp((logit - highest) / temperature); };
  for (const float logit : logits) total += weight(logit);
  double left = random.uniform() * total;
  for (size_t i = 0; i < logits.size(); ++i) {
    if ((left -= weight(logits[i])) < 0) return static_cast<int64_t>(i);
  }
  return std::ssize(logits) - 1;
}

// The model sees a window of fixed length; what lies behind the last byte does not matter to it.
std::string continue_text(Model& model, std::string text, int64_t bytes, int64_t context,
                          double temperature) {
  RandomStream random(/*seed=*/2);
  for (int64_t i = 0; i < bytes; ++i) {
    if (interrupted()) fail(Code::kCancelled, "interrupted after writing ", i, " bytes");
    const int64_t known = std::min<int64_t>(std::ssize(text), context);
    Tensor window = Tensor::zeros(DType::kInt32, {1, context});
    for (int64_t j = 0; j < known; ++j) {
      window.data<int32_t>()[j] = static_cast<uint8_t>(text[text.size() - known + j]);
    }
    const Tensor logits = model.predict(window);
    const auto last = logits.values<float>().subspan((known - 1) * kVocabulary, kVocabulary);
    text += static_cast<char>(sample(last, temperature, random));
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Trains a small GPT on a text and lets it write.");
    const auto path = flags.text("text", "", "file to learn; empty: generated sums in words");
    const auto layers = flags.integer("layers", 2, "transformer blocks", {.min = 1, .max = 1000});
    const auto heads = flags.integer("heads", 4, "attention heads of a block", {.min = 1});
    const auto width = flags.integer("width", 64, "of the residual stream, a multiple of heads",
                                     {.min = 1, .max = 1 << 16});
    const auto context =
        flags.integer("context", 64, "bytes that the model sees", {.min = 1, .max = 1 << 20});
    const auto epochs = flags.integer("epochs", 5, "passes over the text", {.min = 1});
    const auto batch =
        flags.integer("batch", 32, "windows in a step, over all replicas", {.min = 1});
    const auto replicas =
        flags.integer("replicas", 1, "replicas that share the cores", {.min = 1, .max = 64});
    const auto prompt = flags.text("prompt", "two plus ", "text to continue");
    const auto write = flags.integer("write", 200, "bytes to write", {.min = 0});
    const auto temperature =
        flags.number("temperature", 0.5, "how daring the writing is", {.min = 0.01});
    flags.finish();
    if (width % heads != 0) invalid("--width=", width, " is not a multiple of --heads=", heads);
    if (prompt.empty()) invalid("--prompt must not be empty");

    set_logical_cpus(static_cast<int>(replicas));
    MirroredStrategy strategy;
    const auto scope = strategy.scope();
    auto model = gpt(layers, heads, width, context);
    model.compile({.optimizer = optim::AdamW(0.003, {.gradients = {.global_clipnorm = 1}}),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
    const auto train = windows_of_file(path, context).shuffle(100'000).batch(batch);
    const History history =
        model.fit(train, {.epochs = epochs, .callbacks = {callbacks::TerminateOnNaN()}});
    std::printf("%s\n", continue_text(model, prompt, write, context, temperature).c_str());
    std::printf("train_loss=%.4f\n", history["loss"].back());
  });
}
