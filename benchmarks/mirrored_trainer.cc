#include "benchmarks/mirrored_trainer.h"

#include <chrono>
#include <cmath>

#include "benchmarks/statistics.h"

namespace cohort::benchmarks {
namespace {

constexpr int kWarmUpSteps = 3;

}  // namespace

MirroredTrainer::MirroredTrainer(const Options& options)
    : options_(options),
      strategy_(make_strategy()),
      benchmark_(make_benchmark(options.model, options.batch)),
      optimizer_(optim::SGD(0.01, {.momentum = 0.9})),
      step_(make_step()) {
  const auto parts = strategy_->split_batch({benchmark_.input, benchmark_.label});
  input_ = PerReplica<Tensor>(parts.size());
  label_ = PerReplica<Tensor>(parts.size());
  for (size_t r = 0; r < parts.size(); ++r) {
    input_[r] = parts[r][0];
    label_[r] = parts[r][1];
  }
  run(kWarmUpSteps);
}

std::vector<double> MirroredTrainer::run(int64_t steps) {
  std::vector<double> times;
  for (int64_t i = 0; i < steps; ++i) {
    // On all workers alike.
    if (i > 0 && strategy_->workers().stop_requested())
      fail(Code::kCancelled, "interrupted after step ", i, " of ", steps);
    const auto begin = std::chrono::steady_clock::now();
    step(input_, label_);
    times.push_back(milliseconds_since(begin));
  }
  return times;
}

void MirroredTrainer::step(const PerReplica<Tensor>& input, const PerReplica<Tensor>& label) {
  double loss = 0;  // of this process's replicas
  for (const Tensor& part : strategy_->run(step_, input, label)) loss += part.item();
  if (!std::isfinite(loss)) fail(Code::kInternal, "the loss became ", loss);
}

std::unique_ptr<Strategy> MirroredTrainer::make_strategy() const {
  set_logical_cpus(options_.replicas, options_.threads_per_replica);
  std::vector<std::string> devices;
  for (int r = 0; r < options_.replicas; ++r) devices.push_back(str(options_.device, ':', r));
  if (options_.several_workers) {
    MultiWorkerMirroredStrategy::Options options;
    options.devices = devices;
    options.communication.bytes_per_pack = options_.bytes_per_pack;
    options.link = options_.link;
    return std::make_unique<MultiWorkerMirroredStrategy>(options);
  }
  MirroredStrategy::Options options;
  options.devices = devices;
  options.communication.bytes_per_pack = options_.bytes_per_pack;
  return std::make_unique<MirroredStrategy>(options);
}

MirroredTrainer::Step MirroredTrainer::make_step() {
  const auto scope = strategy_->scope();
  benchmark_.network.build({benchmark_.input.spec()});
  return strategy_->function(
      [network = benchmark_.network, optimizer = optimizer_](Value x, Value label) {
        const Value losses =
            losses::sparse_softmax_cross_entropy(network(x, {.training = true}), label);
        const auto rows = get_replica_context()->global_extent(losses);
        const auto count = rows * losses.shape().count(1, losses.shape().rank());
        const Value loss = ops::reduce_sum(losses) * (1.0 / static_cast<double>(count));
        optimizer.minimize(loss, network.trainable_variables());
        return loss;
      });
}

}  // namespace cohort::benchmarks
