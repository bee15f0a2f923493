// Measures training steps under MirroredStrategy for several numbers of replicas, in alternating
// rounds. They share the same threads and, but for weak scaling, the same global batch.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>

#include "benchmarks/mirrored_trainer.h"
#include "benchmarks/models.h"
#include "benchmarks/statistics.h"
#include "cohort.h"

namespace cohort::benchmarks {
namespace {

struct Settings {
  std::string model, device;
  std::vector<int> replicas;
  int64_t batch, threads, steps, rounds, bytes_per_pack;
  bool weak;

  int64_t global_batch(int count) const { return weak ? batch * count : batch; }
};

std::vector<int> parse_counts(const std::string& text) {
  std::vector<int> counts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (part.empty() || part.size() > 3 || part.find_first_not_of("0123456789") != part.npos ||
        std::stoi(part) < 1)
      invalid("--replicas takes numbers from 1 to 999 with commas between, like 1,2; got \"", text,
              "\"");
    counts.push_back(std::stoi(part));
    begin = end + 1;
  }
  return counts;
}

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures MirroredStrategy with different numbers of replicas.");
  Settings s;
  s.model = flags.text("model", "mlp", "which model", {.choices = model_names()});
  s.replicas = parse_counts(flags.text("replicas", "1,2", "numbers of replicas to compare"));
  s.device = flags.text("device", "cpu", "what they run on", {.choices = {"cpu", "gpu"}});
  s.batch = flags.integer("batch", usual_batch(s.model), "rows of a global step", {.min = 1});
  s.weak = flags.boolean("weak", false, "weak scaling: as many rows for each replica");
  s.threads = flags.integer("threads", std::max(1u, std::thread::hardware_concurrency()),
                            "threads that the replicas share", {.min = 1, .max = 1024});
  s.steps = flags.integer("steps", 20, "steps measured in each round", {.min = 1});
  s.rounds = flags.integer("rounds", 5, "alternating rounds", {.min = 1});
  s.bytes_per_pack =
      flags.integer("bytes_per_pack", 0, "size of a gradient bucket; 0 chooses", {.min = 0});
  flags.finish();
  return s;
}

void measure(const Settings& s) {
  std::vector<std::unique_ptr<MirroredTrainer>> trainers;
  for (const int replicas : s.replicas)
    trainers.push_back(std::make_unique<MirroredTrainer>(MirroredTrainer::Options{
        .model = s.model,
        .batch = s.global_batch(replicas),
        .replicas = replicas,
        .threads_per_replica = std::max(1, static_cast<int>(s.threads) / replicas),
        .device = s.device,
        .bytes_per_pack = s.bytes_per_pack}));
  std::vector<std::vector<double>> medians(trainers.size());
  for (int64_t round = 0; round < s.rounds; ++round)
    for (size_t i = 0; i < trainers.size(); ++i)
      medians[i].push_back(median(trainers[i]->run(s.steps)));
  for (size_t i = 0; i < trainers.size(); ++i) {
    const double milliseconds = median(medians[i]);
    const int64_t batch = s.global_batch(s.replicas[i]);
    std::printf(
        "cohort %s replicas=%d threads_per_replica=%d global_batch=%lld median_ms=%.2f "
        "examples_per_s=%.1f\n",
        s.model.c_str(), s.replicas[i], trainers[i]->threads_per_replica(),
        static_cast<long long>(batch), milliseconds,
        1e3 * static_cast<double>(batch) / milliseconds);
  }
  for (size_t i = 1; i < trainers.size(); ++i) {
    const double rows = static_cast<double>(s.global_batch(s.replicas[i])) /
                        static_cast<double>(s.global_batch(s.replicas[0]));
    std::vector<double> ratios;
    for (size_t round = 0; round < medians[i].size(); ++round)
      ratios.push_back(rows * medians[0][round] / medians[i][round]);
    std::printf("ratio %s replicas=%d/replicas=%d speed=%.2f (median of %zu alternating rounds)\n",
                s.model.c_str(), s.replicas[i], s.replicas[0], median(ratios), ratios.size());
  }
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main(
      [&] { cohort::benchmarks::measure(cohort::benchmarks::parse(argc, argv)); });
}
