#include "benchmarks/scaling_model.h"

#include <algorithm>
#include <bit>

#include "core/base/error.h"

namespace cohort::benchmarks {
namespace {

void require_workers(int64_t workers) {
  if (workers < 1) invalid("there are ", workers, " workers; there have to be 1 or more");
}

// False for NaN, too.
void require_not_negative(const char* what, double value) {
  if (!(value >= 0)) invalid(what, " is ", value, "; it has to be 0 or more");
}

void require_positive(const char* what, double value) {
  if (!(value > 0)) invalid(what, " is ", value, "; it has to be more than 0");
}

// Of all rounds together, in multiples of the size of the data.
double volume(AllReduceAlgorithm algorithm, int64_t workers) {
  if (algorithm == AllReduceAlgorithm::kTree)
    return static_cast<double>(all_reduce_rounds(algorithm, workers));
  return 2 * static_cast<double>(workers - 1) / static_cast<double>(workers);
}

}  // namespace

const char* name_of(AllReduceAlgorithm algorithm) {
  return algorithm == AllReduceAlgorithm::kRing ? "ring" : "tree";
}

int64_t all_reduce_rounds(AllReduceAlgorithm algorithm, int64_t workers) {
  require_workers(workers);
  if (algorithm == AllReduceAlgorithm::kRing) return 2 * (workers - 1);
  return 2 * std::bit_width(static_cast<uint64_t>(workers - 1));
}

double all_reduce_seconds(AllReduceAlgorithm algorithm, const Network& network, double bytes,
                          int64_t workers) {
  require_not_negative("the size of the data", bytes);
  require_not_negative("the latency", network.latency);
  require_positive("the bandwidth", network.bytes_per_second);
  return network.latency * static_cast<double>(all_reduce_rounds(algorithm, workers)) +
         volume(algorithm, workers) * bytes / network.bytes_per_second;
}

AllReduceAlgorithm faster_all_reduce(const Network& network, double bytes, int64_t workers) {
  const auto seconds = [&](AllReduceAlgorithm algorithm) {
    return all_reduce_seconds(algorithm, network, bytes, workers);
  };
  return seconds(AllReduceAlgorithm::kTree) < seconds(AllReduceAlgorithm::kRing)
             ? AllReduceAlgorithm::kTree
             : AllReduceAlgorithm::kRing;
}

Network network_from(int64_t workers, double small_seconds, double large_bytes,
                     double large_seconds) {
  if (workers < 2) invalid("a network cannot be measured with ", workers, " workers; it takes 2");
  require_not_negative("the time of a small all-reduce", small_seconds);
  require_positive("the size of a large all-reduce", large_bytes);
  if (!(large_seconds > small_seconds))
    invalid("an all-reduce of ", large_bytes, " bytes took ", large_seconds,
            " s, no longer than the ", small_seconds, " s of a small one");
  constexpr auto kRing = AllReduceAlgorithm::kRing;
  return {
      .latency = small_seconds / static_cast<double>(all_reduce_rounds(kRing, workers)),
      .bytes_per_second = volume(kRing, workers) * large_bytes / (large_seconds - small_seconds)};
}

Prediction predict(const StepCosts& costs, const Network& network, Scaling scaling,
                   int64_t workers) {
  require_workers(workers);
  require_positive("the time of the computation", costs.compute);
  require_not_negative("the part of it that communication can go on behind", costs.overlappable);
  const double divisor = scaling == Scaling::kStrong ? static_cast<double>(workers) : 1;
  Prediction p{};
  p.workers = workers;
  p.algorithm = faster_all_reduce(network, costs.gradient_bytes, workers);
  p.compute = costs.compute / divisor;
  p.communication = all_reduce_seconds(p.algorithm, network, costs.gradient_bytes, workers);
  p.exposed = std::max(0.0, p.communication - costs.overlappable / divisor);
  p.step = p.compute + p.exposed;
  p.efficiency = p.compute / p.step;
  return p;
}

}  // namespace cohort::benchmarks
