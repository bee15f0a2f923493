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

// "mlp", "cnn", "resnet20", "resnet56", "gpt".
const std::vector<std::string>& model_names();
// The batch size that the model is usually measured with.
int64_t usual_batch(const std::string& name);
// The model by name; benchmarks/peers defines the same ones for the peers. kInvalidArgument for
// another name.
Benchmark make_benchmark(const std::string& name, int64_t batch);

}  // namespace cohort::benchmarks
