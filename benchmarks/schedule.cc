// Measures how many functions a coordinator has executed in a second, by workers in processes of
// their own, over loopback TCP: functions that do nothing, and such that add two numbers, whose
// sum is fetched.
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "benchmarks/statistics.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "core/ops/math_ops.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/coordinator/coordinator.h"

namespace cohort::benchmarks {
namespace {

struct Settings {
  int64_t workers, closures, rounds;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures functions that a coordinator has executed by workers.");
  Settings s;
  s.workers = flags.integer("workers", 2, "processes that execute", {.min = 1, .max = 64});
  s.closures = flags.integer("closures", 100'000, "functions in a round", {.min = 1});
  s.rounds = flags.integer("rounds", 5, "of each kind", {.min = 1});
  flags.finish();
  return s;
}

// A worker in a process of its own, as in a job; it ends with the object.
class WorkerProcess {
 public:
  WorkerProcess() : pid_(fork()) {
    if (pid_ != 0) return;
    _exit(run_main([&] {
      WorkerServer server(Address::parse(port_.address()),
                          {.job_id = "benchmark", .orphaned_after = std::chrono::seconds(5)});
      server.wait();
    }));
  }
  ~WorkerProcess() { waitpid(pid_, nullptr, 0); }
  std::string address() const { return port_.address(); }

 private:
  launcher::ReservedPort port_;
  pid_t pid_;
};

void measure(const Settings& s, ClusterCoordinator& coordinator, const char* what,
             const std::function<RemoteValue()>& schedule, size_t results) {
  std::vector<double> rates;
  for (int64_t round = 0; round <= s.rounds; ++round) {
    std::vector<RemoteValue> values;
    values.reserve(static_cast<size_t>(s.closures));
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < s.closures; ++i) values.push_back(schedule());
    coordinator.join();
    const double seconds = 1e-3 * milliseconds_since(begin);
    for (const RemoteValue& value : values)
      if (value.fetch().size() != results) fail(Code::kInternal, "a result is missing");
    if (round > 0) rates.push_back(static_cast<double>(s.closures) / seconds);
  }
  std::printf("cohort-schedule work=%s workers=%lld closures=%lld per_second=%.0f\n", what,
              static_cast<long long>(s.workers), static_cast<long long>(s.closures), median(rates));
}

void run(int argc, char** argv) {
  const Settings s = parse(argc, argv);
  std::deque<WorkerProcess> workers;
  std::vector<std::string> addresses;
  for (int64_t w = 0; w < s.workers; ++w) addresses.push_back(workers.emplace_back().address());
  ClusterCoordinator coordinator(ClusterSpec(ClusterSpec::Jobs{{"worker", addresses}}),
                                 {.job_id = "benchmark"});
  coordinator.wait_for_workers();
  const Function nothing =
      function([](const std::vector<Value>&) { return std::vector<Value>{}; }, "nothing");
  measure(
      s, coordinator, "empty", [&] { return coordinator.schedule(nothing); }, 0);
  const Function sum = function([](Value x, Value y) { return x + y; }, "sum");
  measure(
      s, coordinator, "sum", [&] { return coordinator.schedule(sum, 1.0f, 2.0f); }, 1);
  coordinator.shut_down();
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main([&] { cohort::benchmarks::run(argc, argv); });
}
