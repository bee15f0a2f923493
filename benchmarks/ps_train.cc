// Measures training steps of asynchronous workers under ParameterServerStrategy, in processes of
// this host beside their server, against one such worker, in alternating rounds.
#include <chrono>
#include <cstdio>
#include <sys/wait.h>
#include <unistd.h>

#include "benchmarks/models.h"
#include "benchmarks/statistics.h"
#include "benchmarks/worker_processes.h"
#include "cohort.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/parameter_server/server.h"

namespace cohort::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  std::string model, server;
  int workers;
  int64_t batch, threads, steps, rounds;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures ParameterServerStrategy with several workers beside one.");
  Settings s;
  s.model = flags.text("model", "cnn", "which model", {.choices = model_names()});
  s.workers = static_cast<int>(flags.integer("workers", 2, "processes", {.min = 1, .max = 64}));
  s.batch = flags.integer("batch", usual_batch(s.model), "rows of a worker's step", {.min = 1});
  s.threads = flags.integer("threads", 1, "of each worker", {.min = 1, .max = 1024});
  s.steps = flags.integer("steps", 20, "of each worker in each round", {.min = 1});
  s.rounds = flags.integer("rounds", 5, "alternating rounds", {.min = 1});
  s.server = flags.text("server", "", "used by the program itself");
  flags.finish();
  return s;
}

// A server in a process of its own, which ends with the object.
class ServerProcess {
 public:
  ServerProcess() : pid_(fork()) {
    if (pid_ != 0) return;
    _exit(run_main([&] { ParameterServer(Address::parse(port_.address())).wait(); }));
  }
  ~ServerProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  std::string address() const { return port_.address(); }

 private:
  launcher::ReservedPort port_;
  pid_t pid_;
};

void be_worker(const Settings& s) {
  const auto workers = resolve_cluster().resolver;
  ClusterSpec::Jobs jobs = {{"ps", {s.server}}};
  for (const int id : workers->cluster_spec().task_ids("worker"))
    jobs["worker"].push_back(workers->cluster_spec().address("worker", id).text());
  set_logical_cpus(1, static_cast<int>(s.threads));
  ParameterServerStrategy strategy(
      {.resolver = std::make_shared<LiteralResolver>(
           ClusterSpec(jobs),
           LiteralResolverOptions{.task_type = "worker", .task_id = workers->task_id()})});
  const auto scope = strategy.scope();
  const Benchmark benchmark = make_benchmark(s.model, s.batch);
  benchmark.network.build({benchmark.input.spec()});
  const auto loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
  const auto optimizer = optim::SGD(0.01, {.momentum = 0.9});
  const auto step = strategy.function([&](Value x, Value label) {
    const Value each = loss.per_example(label, benchmark.network(x, {.training = true}));
    const Value mean = ops::reduce_mean(each);
    optimizer.minimize(mean, benchmark.network.trainable_variables());
    return mean;
  });
  for (int i = 0; i < 3; ++i) strategy.run(step, benchmark.input, benchmark.label);
  char line[16];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < s.steps; ++i) strategy.run(step, benchmark.input, benchmark.label);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::printf("%f\n", static_cast<double>(s.steps) / seconds);
    std::fflush(stdout);
  }
}

// Workers with a server of their own.
struct Group {
  ServerProcess server;
  WorkerProcesses workers;

  Group(std::vector<std::string> arguments, int count, int64_t threads)
      : workers((arguments.push_back("--server=" + server.address()), arguments), count, threads) {}

  // Steps a second of all together.
  double round() {
    workers.start_round();
    double sum = 0;
    for (const std::string& answer : workers.answers()) sum += std::stod(answer);
    return sum;
  }
};

void measure(const Settings& s, const std::vector<std::string>& arguments) {
  Group one(arguments, 1, s.threads), many(arguments, s.workers, s.threads);
  std::vector<double> of_one, of_many, ratios;
  one.round();
  many.round();
  for (int64_t round = 0; round < s.rounds; ++round) {
    of_one.push_back(one.round());
    of_many.push_back(many.round());
    ratios.push_back(of_many.back() / of_one.back());
  }
  std::printf("cohort %s batch=%lld threads=%lld workers=1 steps_per_s=%.2f\n", s.model.c_str(),
              static_cast<long long>(s.batch), static_cast<long long>(s.threads), median(of_one));
  std::printf("cohort %s batch=%lld threads=%lld workers=%d steps_per_s=%.2f\n", s.model.c_str(),
              static_cast<long long>(s.batch), static_cast<long long>(s.threads), s.workers,
              median(of_many));
  std::printf("speedup=%.2f\n", median(ratios));
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  using namespace cohort::benchmarks;
  return cohort::run_main([&] {
    const Settings settings = parse(argc, argv);
    if (settings.server.empty())
      measure(settings, {argv, argv + argc});
    else
      be_worker(settings);
  });
}
