// Measures what becomes of training with parameter servers when a worker or a server is killed, or
// a worker is slow, the same of synchronous training by several workers, and what attackers do to
// those who are served besides. Counts and weights that are wrong are an error, and strangers who
// are let in.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/fault_rows.h"
#include "benchmarks/statistics.h"
#include "benchmarks/training_task.h"
#include "core/base/error.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "core/base/random.h"

namespace cohort::benchmarks {
namespace {

struct Settings : FaultSettings {
  std::string row;
  int64_t rounds;
  uint64_t seed;
};

std::vector<FaultRow> rows() {
  std::vector<FaultRow> all = parameter_server_rows();
  for (const auto& more : {attack_rows(), training_rows()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

Settings parse(int argc, char** argv) {
  Flags flags(
      argc, argv,
      "Measures what faults do to training with parameter servers and to synchronous training by "
      "several workers, and attacks to those who are served besides. Wrong counts and weights are "
      "an error.");
  std::vector<std::string> names = {"all"};
  for (const FaultRow& row : rows())
    if (names.back() != row.name) names.push_back(row.name);
  Settings s;
  s.row = flags.text("row", "all", "which fault", {.choices = names});
  s.job.workers = static_cast<int>(flags.integer("workers", 3, "processes", {.min = 2, .max = 16}));
  s.job.servers = static_cast<int>(flags.integer("servers", 2, "processes", {.min = 1, .max = 8}));
  s.job.pace = std::chrono::milliseconds(
      flags.integer("pace_ms", 20, "that the computation of a step takes", {.min = 1, .max = 100}));
  s.job.snapshot_interval = std::chrono::milliseconds(
      flags.integer("snapshot_ms", 200, "between snapshots of servers that are killed",
                    {.min = 10, .max = 5000}));
  const auto nanoseconds = [](double seconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds));
  };
  s.window = nanoseconds(flags.number("seconds", 1, "of training before a fault and after it",
                                      {.min = 0.1, .max = 10}));
  s.attack.window = s.window;
  s.attack.clients =
      static_cast<int>(flags.integer("clients", 2, "that attacks disturb", {.min = 1, .max = 16}));
  s.attack.pause = std::chrono::milliseconds(
      flags.integer("attack_ms", 10, "between hostile messages", {.min = 0, .max = 1000}));
  s.attack.connections_per_s = static_cast<int>(
      flags.integer("connections_per_s", 100, "of a flood", {.min = 1, .max = 10'000}));
  s.attack.own_core =
      flags.boolean("own_core", false, "for the attacker; all others share the rest");
  s.training = {.workers = s.job.workers, .pace = s.job.pace, .window = s.window};
  s.training.kill_interval = nanoseconds(flags.number(
      "kill_s", 60, "of training by several workers for each kill", {.min = 0.5, .max = 3600}));
  s.training.save_interval = nanoseconds(
      flags.number("checkpoint_s", 5, "of it between checkpoints", {.min = 0.05, .max = 1800}));
  s.rounds = flags.integer("rounds", 3, "with fresh processes; medians count", {.min = 1});
  s.seed = static_cast<uint64_t>(
      flags.integer("seed", 1, "of victims and moments of faults", {.min = 0}));
  flags.finish();
  if (2 * s.training.save_interval > s.training.kill_interval)
    invalid("--checkpoint_s is at most half of --kill_s, so that a kill finds a checkpoint");
  return s;
}

// To three decimals, and whole numbers as such.
std::string rounded(double value) { return str(std::round(1e3 * value) / 1e3); }

void report(const Settings& s, const FaultRow& row, const std::vector<Figures>& rounds) {
  std::string line = str("cohort-faults row=", row.name, row.more, row.settings(s),
                         " rounds=", s.rounds, " seed=", s.seed);
  for (size_t i = 0; i < rounds[0].size(); ++i) {
    std::vector<double> values;
    for (const Figures& figures : rounds) values.push_back(figures[i].second);
    line += str(' ', rounds[0][i].first, '=', rounded(median(values)));
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void run(int argc, char** argv) {
  const Settings s = parse(argc, argv);
  const CatchTermination catching;  // so that the folders of servers are removed
  uint64_t number = 0;
  for (const FaultRow& row : rows()) {
    RandomStream random(s.seed, ++number);
    if (s.row != "all" && s.row != row.name) continue;
    std::vector<Figures> rounds;
    for (int64_t i = 0; i < s.rounds; ++i) {
      try {
        rounds.push_back(row.measure(s, random));
      } catch (const Error& error) {
        throw error.with_context(
            str("row ", row.name, row.more, ", round ", i + 1, ", seed ", s.seed));
      }
    }
    report(s, row, rounds);
  }
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main([&] {
    if (cohort::benchmarks::is_training_task(argc, argv))
      cohort::benchmarks::run_training_task(argc, argv);
    else
      cohort::benchmarks::run(argc, argv);
  });
}
