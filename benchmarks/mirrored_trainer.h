#pragma once

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/models.h"
#include "cohort.h"

namespace cohort::benchmarks {

// Training steps of a model under a MirroredStrategy of its own, or as one of the workers of a
// MultiWorkerMirroredStrategy, who all run the same number of steps.
class MirroredTrainer {
 public:
  struct Options {
    std::string model;
    int64_t batch = 0;  // rows of a global step
    int replicas = 1;
    int threads_per_replica = 1;
    std::string device = "cpu";  // of the replicas: "cpu" or "gpu", of which they take the first
    int64_t bytes_per_pack = 0;
    bool several_workers = false;
    std::shared_ptr<WorkerLink> link;  // to the other workers; null reads the environment
  };

  // Changes the logical CPUs; warms up.
  explicit MirroredTrainer(const Options& options);

  // Milliseconds of each step. kInternal when the loss is no longer finite, kCancelled when an
  // interrupt comes before the last one.
  std::vector<double> run(int64_t steps);
  // One step with each local replica's rows. The same errors.
  void step(const PerReplica<Tensor>& input, const PerReplica<Tensor>& label);
  // The network and the rows of a global step.
  const Benchmark& benchmark() const { return benchmark_; }
  Strategy& strategy() { return *strategy_; }
  int threads_per_replica() const { return options_.threads_per_replica; }

 private:
  using Step = StepFunction<Value, Value, Value>;

  std::unique_ptr<Strategy> make_strategy() const;
  Step make_step();

  Options options_;
  std::unique_ptr<Strategy> strategy_;
  Benchmark benchmark_;
  optim::Optimizer optimizer_;
  Step step_;
  PerReplica<Tensor> input_, label_;
};

}  // namespace cohort::benchmarks
