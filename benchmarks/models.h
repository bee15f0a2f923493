#pragma once

#include <string>
#include <vector>

#include "cohort.h"

namespace cohort::benchmarks {

// One of the models that training speed is measured with, and a batch of made-up input for it.
struct Benchmark {
  nn::Layer network;
  Tensor input;
  Tensor label;  // int32 class numbers, one for each row or each token
};

// A transformer over tokens, with learned positions and norms before its layers.
struct GptSizes {
  int64_t vocabulary, length, size, heads, layers;
  // The head is the table of tokens, behind a last norm, as in GPT-2; else a Dense layer.
  bool has_tied_head = false;
};
Benchmark make_gpt(const GptSizes& sizes, int64_t batch);

// "mlp", "cnn", "resnet20", "resnet56", "resnet50", "gpt", "gpt2". The last four are images of 32 x
// 32 pixels in 10 classes, images of 224 x 224 in 1,000 (v1.5: bottlenecks with the stride in their
// 3x3 convolution), 128 bytes, and 1,024 tokens of GPT-2's smallest.
const std::vector<std::string>& model_names();
// The batch size that the model is usually measured with.
int64_t usual_batch(const std::string& name);
// Elements of the weights that are trained.
int64_t count_parameters(const nn::Layer& network);
// The model by name; benchmarks/peers defines the same ones for the peers. kInvalidArgument for
// another name.
Benchmark make_benchmark(const std::string& name, int64_t batch);

}  // namespace cohort::benchmarks
