// Measures training steps under MultiWorkerMirroredStrategy, in processes of this host, beside one
// process with the same threads and the same global batch, and beside PyTorch, in alternating
// rounds.
#include <algorithm>
#include <cstdio>
#include <thread>

#include "benchmarks/mirrored_trainer.h"
#include "benchmarks/models.h"
#include "benchmarks/statistics.h"
#include "benchmarks/torch_peer.h"
#include "benchmarks/worker_processes.h"
#include "cohort.h"

namespace cohort::benchmarks {
namespace {

struct Settings {
  std::string model;
  int workers;
  int64_t batch, threads, steps, rounds, bytes_per_pack;
  bool is_worker, vs_torch;
  std::string peer;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures MultiWorkerMirroredStrategy beside one process.");
  Settings s;
  s.model = flags.text("model", "mlp", "which model", {.choices = model_names()});
  s.workers = static_cast<int>(flags.integer("workers", 2, "processes", {.min = 1, .max = 64}));
  s.batch = flags.integer("batch", usual_batch(s.model), "rows of a global step", {.min = 1});
  s.threads = flags.integer("threads", std::max(1u, std::thread::hardware_concurrency()),
                            "threads that all processes share", {.min = 1, .max = 1024});
  s.steps = flags.integer("steps", 20, "steps measured in each round", {.min = 1});
  s.rounds = flags.integer("rounds", 5, "alternating rounds", {.min = 1});
  s.bytes_per_pack =
      flags.integer("bytes_per_pack", 0, "size of a gradient bucket; 0 chooses", {.min = 0});
  s.vs_torch = flags.boolean("vs-torch", false, "also PyTorch's DistributedDataParallel over Gloo");
  s.peer = flags.text("peer", torch_program(argv[0]), "the PyTorch program");
  s.is_worker = flags.boolean("is_worker", false, "used by the program itself");
  flags.finish();
  return s;
}

int64_t threads_each(const Settings& s) { return std::max<int64_t>(1, s.threads / s.workers); }

MirroredTrainer::Options trainer_options(const Settings& s) {
  return {.model = s.model, .batch = s.batch, .bytes_per_pack = s.bytes_per_pack};
}

void be_worker(const Settings& s) {
  auto options = trainer_options(s);
  options.several_workers = true;
  options.threads_per_replica = static_cast<int>(threads_each(s));
  MirroredTrainer trainer(options);
  char line[16];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    std::printf("%f\n", median(trainer.run(s.steps)));
    std::fflush(stdout);
  }
}

void report(const Settings& s, const char* what, double milliseconds) {
  std::printf("cohort %s %s global_batch=%lld median_ms=%.2f examples_per_s=%.1f\n",
              s.model.c_str(), what, static_cast<long long>(s.batch), milliseconds,
              1e3 * static_cast<double>(s.batch) / milliseconds);
}

void measure(const Settings& s, std::vector<std::string> arguments) {
  arguments.push_back("--is_worker");
  WorkerProcesses workers(arguments, s.workers, threads_each(s));
  auto options = trainer_options(s);
  options.threads_per_replica = static_cast<int>(s.threads);
  MirroredTrainer alone(options);
  const TorchPeer peer{.program = s.peer,
                       .model = s.model,
                       .batch = s.batch,
                       .threads = s.threads,
                       .workers = s.workers};
  std::vector<double> of_one, of_many, ratios, peer_ratios;
  for (int64_t round = 0; round < s.rounds; ++round) {
    of_one.push_back(median(alone.run(s.steps)));
    workers.start_round();
    double slowest = 0;
    for (const std::string& answer : workers.answers())
      slowest = std::max(slowest, std::stod(answer));
    of_many.push_back(slowest);
    ratios.push_back(of_one.back() / slowest);
    if (s.vs_torch) peer_ratios.push_back(peer.run(s.steps) / slowest);
  }
  report(s, str("processes=1 threads=", s.threads).c_str(), median(of_one));
  report(s, str("processes=", s.workers, " threads_each=", threads_each(s)).c_str(),
         median(of_many));
  std::printf("ratio %s processes=%d/1 speed=%.2f (median of %zu alternating rounds)\n",
              s.model.c_str(), s.workers, median(ratios), ratios.size());
  if (s.vs_torch)
    std::printf("ratio %s processes=%d cohort/torch=%.2f\n", s.model.c_str(), s.workers,
                median(peer_ratios));
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main([&] {
    const auto settings = cohort::benchmarks::parse(argc, argv);
    if (settings.is_worker)
      cohort::benchmarks::be_worker(settings);
    else
      cohort::benchmarks::measure(settings, {argv, argv + argc});
  });
}
