#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/device/device.h"
#include "core/graph/graph_function.h"
#include "core/kernels/kernel.h"
#include "core/runtime/precision.h"

namespace cohort {

// Where and how a plan runs.
struct PlanOptions {
  Device device;
  int local_replica = 0;  // which copy of each variable it reads and writes
  Precision precision = Precision::kFloat32;
  bool optimize = true;  // false: no folding and no fusion, for comparing results
  // Memory for the buckets of values to be reduced that a communicator works on in place: on a
  // device with memory of its own DeviceCollectives::allocate, else Communicator::allocate. Null,
  // or where it gives null: they lie in the arena.
  std::function<std::shared_ptr<Buffer>(size_t bytes)> bucket_memory = nullptr;
  // Memory for outputs that go to another process. Null, or where it gives null: the host's.
  std::function<std::shared_ptr<Buffer>(size_t bytes)> output_memory = nullptr;
  // Of a run's team; 0: the device's. Fewer where OpenMP gives fewer to who makes the plan: in a
  // parallel region of the program 1 (largest_team() in core/base/threads.h).
  int threads = 0;
  // No strategy runs it: of a variable it reads and writes what code outside functions does
  // (Variable::storage_outside). Where a strategy does, Function::run knows.
  bool outside = true;
};

// What a compiled plan holds, for reports and tests.
struct PlanStats {
  int kernels = 0;
  size_t arena_bytes = 0;     // all intermediates, after sharing memory
  size_t bucket_bytes = 0;    // buckets that have memory of their own
  size_t unshared_bytes = 0;  // what they would take without sharing
  size_t scratch_bytes = 0;   // the largest kernel's working memory
  // On a device with memory of its own: ops that have no kernel for it, which the host runs between
  // copies; and whether steps are replayed from a recording (not while the host runs any, nor once
  // the device has refused to record one, which is warned of).
  std::vector<std::string> host_ops;
  bool recorded = false;
};

// A graph compiled for one replica: optimised, scheduled, with every intermediate at a fixed place
// in one arena and every kernel prepared. `run` then only executes; after the first call it
// allocates no memory, except where the caller still holds the tensors of the call before (outputs
// are reused when nobody else refers to them). One thread at a time.
class Plan {
 public:
  Plan(const GraphFunction& function, const PlanOptions& options);
  ~Plan();
  Plan(Plan&&) noexcept;

  // `feeds` are the graph's inputs in order; their specs must match (kInvalidArgument naming the
  // input). They are only read, and only during the call. kFailedPrecondition where OpenMP gives
  // this thread no team of the size that the plan was made for, as in a parallel region. Otherwise
  // the team is there whatever OpenMP is set to, and the thread's own settings are back afterwards.
  std::vector<Tensor> run(std::span<const Tensor> feeds, const StepInfo& info);
  // As run, without making a vector: writes the outputs into `outputs`, replacing what it held.
  void run(std::span<const Tensor> feeds, const StepInfo& info, std::vector<Tensor>& outputs);
  const PlanStats& stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
