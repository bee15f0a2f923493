// Measures training steps under MultiWorkerMirroredStrategy, in processes of this host, beside one
// process with the same threads and the same global batch, in alternating rounds.
#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "benchmarks/mirrored_trainer.h"
#include "benchmarks/models.h"
#include "benchmarks/statistics.h"
#include "cohort.h"

namespace cohort::benchmarks {
namespace {

struct Settings {
  std::string model;
  int workers;
  int64_t batch, threads, steps, rounds, bytes_per_pack;
  bool is_worker;
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
  s.is_worker = flags.boolean("is_worker", false, "used by the program itself");
  flags.finish();
  return s;
}

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    fail(Code::kUnavailable, "there is no free port");
  close(socket);
  return ntohs(address.sin_port);
}

// A process of this program that measures a round whenever it is told to.
class WorkerProcess {
 public:
  WorkerProcess(const std::vector<std::string>& arguments, const std::string& tf_config,
                int64_t threads) {
    int input[2], output[2];
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0)
      fail(Code::kResourceExhausted, "cannot make a pipe");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(input[0], STDIN_FILENO);
      dup2(output[1], STDOUT_FILENO);
      setenv("TF_CONFIG", tf_config.c_str(), 1);
      setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
      std::vector<char*> argv;
      for (const std::string& argument : arguments)
        argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      execv("/proc/self/exe", argv.data());
      _exit(127);
    }
    close(input[0]);
    close(output[1]);
    to_.reset(fdopen(input[1], "w"));
    from_.reset(fdopen(output[0], "r"));
  }
  ~WorkerProcess() {
    end_rounds();
    waitpid(pid_, nullptr, 0);
  }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  void end_rounds() { to_.reset(); }
  void start_round() {
    std::fputs("go\n", to_.get());
    std::fflush(to_.get());
  }
  double median_ms() {
    double milliseconds = 0;
    if (std::fscanf(from_.get(), "%lf", &milliseconds) != 1)
      fail(Code::kAborted, "a worker has ended early");
    return milliseconds;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  pid_t pid_;
  std::unique_ptr<std::FILE, Close> to_, from_;
};

MirroredTrainer::Options trainer_options(const Settings& s) {
  return {.model = s.model, .batch = s.batch, .bytes_per_pack = s.bytes_per_pack};
}

void be_worker(const Settings& s) {
  auto options = trainer_options(s);
  options.several_workers = true;
  options.threads_per_replica = std::max(1, static_cast<int>(s.threads) / s.workers);
  MirroredTrainer trainer(options);
  char line[16];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    std::printf("%f\n", median(trainer.run(s.steps)));
    std::fflush(stdout);
  }
}

// All end together, because each waits for the others.
struct WorkerProcesses {
  std::vector<std::unique_ptr<WorkerProcess>> processes;

  WorkerProcesses() = default;
  WorkerProcesses(WorkerProcesses&&) = default;
  ~WorkerProcesses() {
    for (const auto& process : processes) process->end_rounds();
  }
};

WorkerProcesses start_workers(const Settings& s, std::vector<std::string> arguments) {
  arguments.push_back("--is_worker");
  std::string addresses;
  for (int w = 0; w < s.workers; ++w)
    addresses += str(w == 0 ? "" : ",", "\"127.0.0.1:", free_port(), "\"");
  WorkerProcesses workers;
  for (int w = 0; w < s.workers; ++w)
    workers.processes.push_back(
        std::make_unique<WorkerProcess>(arguments,
                                        str(R"({"cluster":{"worker":[)", addresses,
                                            R"(]},"task":{"type":"worker","index":)", w, "}}"),
                                        std::max<int64_t>(1, s.threads / s.workers)));
  return workers;
}

void report(const Settings& s, const char* what, double milliseconds) {
  std::printf("cohort %s %s global_batch=%lld median_ms=%.2f examples_per_s=%.1f\n",
              s.model.c_str(), what, static_cast<long long>(s.batch), milliseconds,
              1e3 * static_cast<double>(s.batch) / milliseconds);
}

void measure(const Settings& s, const std::vector<std::string>& arguments) {
  const WorkerProcesses workers = start_workers(s, arguments);
  auto options = trainer_options(s);
  options.threads_per_replica = static_cast<int>(s.threads);
  MirroredTrainer alone(options);
  std::vector<double> of_one, of_many, ratios;
  for (int64_t round = 0; round < s.rounds; ++round) {
    of_one.push_back(median(alone.run(s.steps)));
    for (const auto& worker : workers.processes) worker->start_round();
    double slowest = 0;
    for (const auto& worker : workers.processes) slowest = std::max(slowest, worker->median_ms());
    of_many.push_back(slowest);
    ratios.push_back(of_one.back() / slowest);
  }
  report(s, str("processes=1 threads=", s.threads).c_str(), median(of_one));
  report(s,
         str("processes=", s.workers, " threads_each=", std::max<int64_t>(1, s.threads / s.workers))
             .c_str(),
         median(of_many));
  std::printf("ratio %s processes=%d/1 speed=%.2f (median of %zu alternating rounds)\n",
              s.model.c_str(), s.workers, median(ratios), ratios.size());
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
