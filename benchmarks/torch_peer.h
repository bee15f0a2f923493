#pragma once

#include <cstdint>
#include <string>

#include "cohort.h"

namespace cohort::benchmarks {

// The same training step in PyTorch: peers/torch_train.py.
struct TorchPeer {
  std::string program, model;
  int64_t batch, threads;  // of all workers
  int workers = 1;         // several are processes under DistributedDataParallel over Gloo
  Precision precision = Precision::kFloat32;
  Device device = {};          // a GPU is the card that CUDA gives the same number
  bool tf32 = false;           // products of float32 read TF32
  bool compile = false;        // by torch.compile
  bool channels_last = false;  // images and filters as NHWC

  // Runs it, echoes its line and returns the milliseconds of its median step. kUnavailable names
  // the packages that it needs.
  double run(int64_t steps) const;
};

// The program that comes with the benchmark that was started as `argv0`.
std::string torch_program(const char* argv0);

}  // namespace cohort::benchmarks
