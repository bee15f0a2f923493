// Training with parameter servers that is disturbed: tasks are processes of this host, and a model
// that counts tells whether each push was applied once.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/fault_job.h"
#include "benchmarks/fault_rows.h"
#include "benchmarks/statistics.h"
#include "core/base/error.h"
#include "core/base/temporary_folder.h"

namespace cohort::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
using Times = std::vector<Time>;

std::string job_settings(const FaultSettings& s) {
  return str(" workers=", s.job.workers, " servers=", s.job.servers,
             " pace_ms=", s.job.pace.count());
}

// --- Steps of a worker, from their times

// Between two moments, by whole steps: a gap that the first moment lies in counts.
double steps_per_second(const Times& steps, Time from, Time to) {
  auto first = std::ranges::lower_bound(steps, from);
  const auto end = std::ranges::upper_bound(steps, to);
  if (first != steps.begin()) --first;
  if (end - first < 2) return 0;
  const std::chrono::duration<double> time = *(end - 1) - *first;
  return static_cast<double>(end - first - 1) / time.count();
}

// The longest time without a step that overlaps the time between two moments; there are steps.
double longest_gap_ms(const Times& steps, Time from, Time to) {
  double longest = 0;
  for (size_t i = 1; i < steps.size(); ++i)
    if (steps[i] > from && steps[i - 1] < to)
      longest = std::max(longest, milliseconds(steps[i] - steps[i - 1]));
  return std::max(longest, milliseconds(to - std::min(steps.back(), to)));
}

// The worker's first one after a moment; waits for it.
Time next_step(FaultJob& job, int worker, Time after) {
  Times steps;
  job.wait_until(str("worker:", worker, " has pushed again"), [&] {
    steps = job.steps(worker);
    return !steps.empty() && steps.back() > after;
  });
  return *std::ranges::upper_bound(steps, after);
}

// All workers but one.
std::vector<int> others(const FaultSettings& s, int victim) {
  std::vector<int> workers;
  for (int w = 0; w < s.job.workers; ++w)
    if (w != victim) workers.push_back(w);
  return workers;
}

double steps_per_second(const FaultJob& job, const std::vector<int>& workers, Time from, Time to) {
  double sum = 0;
  for (const int w : workers) sum += steps_per_second(job.steps(w), from, to);
  return sum;
}

double longest_gap_ms(const FaultJob& job, const std::vector<int>& workers, Time from, Time to) {
  double longest = 0;
  for (const int w : workers) longest = std::max(longest, longest_gap_ms(job.steps(w), from, to));
  return longest;
}

// --- Counts

// Values of float32, made of thirds or other parts of 1, are as far from whole numbers at most.
constexpr double kRounding = 0.01;

// That each server's value is from `least` to `most`.
void check_counts(const std::vector<double>& values, double least, double most) {
  for (size_t server = 0; server < values.size(); ++server)
    if (values[server] < least - kRounding || values[server] > most + kRounding)
      fail(Code::kDataLoss, "ps:", server, " has counted ", values[server], ", and it should be ",
           least, least == most ? "" : str(" to ", most));
}

// Of asynchronous workers of which `killed` were killed: a push that was under way then may have
// been applied, though nobody knows.
Figures count_pushes(FaultJob& job, int killed) {
  const std::vector<double> values = job.end();
  const auto pushes = static_cast<double>(job.pushes());
  check_counts(values, pushes, pushes + killed);
  return {{"acknowledged", pushes}, {"unacknowledged", std::ranges::max(values) - pushes}};
}

// Of synchronous workers: an update for each step of the one that has made most.
Figures count_updates(const FaultSettings& s, FaultJob& job) {
  const std::vector<double> values = job.end();
  size_t most = 0;
  for (int w = 0; w < s.job.workers; ++w) most = std::max(most, job.steps(w).size());
  check_counts(values, static_cast<double>(most), static_cast<double>(most));
  return {{"updates", static_cast<double>(most)}};
}

// --- Rows

FaultJobOptions synchronous(FaultJobOptions options) {
  options.max_staleness = 0;
  return options;
}

Figures kill_worker(const FaultSettings& s, RandomStream& random) {
  const int victim = draw(s.job.workers, random);
  const std::vector<int> survivors = others(s, victim);
  FaultJob job(s.job);
  job.run_for(s.window);
  job.run_for(draw(s.job.pace, random));
  const Time killed = Clock::now();
  job.worker(victim).kill_now();
  const Time detected = job.observed(
      str("worker:", victim, " has gone"), killed, [](const auto& before, const auto& now) {
        return now.epoch == before.epoch && now.sessions < before.sessions;
      });
  job.run_for(killed + s.window - Clock::now());
  const Time restarted = Clock::now();
  job.worker(victim).start();
  const Time back = next_step(job, victim, restarted);
  for (const int w : survivors) next_step(job, w, back);
  const double before = steps_per_second(job, survivors, killed - s.window, killed),
               after = steps_per_second(job, survivors, killed, killed + s.window);
  Figures figures = {{"detected_ms", milliseconds(detected - killed)},
                     {"longest_gap_ms", longest_gap_ms(job, survivors, killed, back)},
                     {"back_ms", milliseconds(back - restarted)},
                     {"steps_per_s_before", before},
                     {"steps_per_s_after", after},
                     {"ratio", after / before}};
  append(figures, count_pushes(job, 1));
  return figures;
}

Figures kill_synchronous_worker(const FaultSettings& s, RandomStream& random) {
  const int victim = draw(s.job.workers, random);
  const std::vector<int> survivors = others(s, victim);
  FaultJob job(synchronous(s.job));
  job.run_for(s.window);
  job.run_for(draw(s.job.pace, random));
  const Time killed = Clock::now();
  job.worker(victim).kill_now();
  const Time named = job.notice_of_servers(str("worker:", victim, " has gone"));
  for (const int w : survivors) next_step(job, w, named);
  const Time going_on = Clock::now();
  job.run_for(s.window);
  const double before = steps_per_second(job, survivors, killed - s.window, killed),
               after = steps_per_second(job, survivors, going_on, going_on + s.window);
  Figures figures = {{"named_ms", milliseconds(named - killed)},
                     {"longest_gap_ms", longest_gap_ms(job, survivors, killed, going_on)},
                     {"steps_per_s_before", before},
                     {"steps_per_s_after", after}};
  append(figures, count_updates(s, job));
  return figures;
}

// What a server has said that it lacks, of the shard that counts: "lost=3 pushes of worker:1 to
// shard "counter"", or "lost=5 pushes of worker:1 to 2 shards ("counter" 3, "iterations" 2)".
double said_to_be_lost(TaskProcess& server) {
  constexpr std::string_view kLost = "lost=", kCounter = "\"counter";
  double sum = 0;
  for (const auto& line : server.notices()) {
    const size_t lost = line.text.find(kLost), counter = line.text.find(kCounter);
    if (lost == std::string::npos || counter == std::string::npos) continue;
    const size_t end = line.text.find('"', counter + 1);
    const bool is_alone = line.text.find("shards (") == std::string::npos;
    sum += std::atof(line.text.c_str() + (is_alone ? lost + kLost.size() : end + 1));
  }
  return sum;
}

Figures kill_server(const FaultSettings& s, RandomStream& random, ServerLog log) {
  const TemporaryFolder snapshots("cohort-faults");
  FaultJobOptions options = s.job;
  options.snapshot_folder = snapshots.path();
  options.log = log;
  const int victim = draw(s.job.servers, random);
  FaultJob job(options);
  job.run_for(s.window);
  job.wait_for_snapshot(victim);
  job.run_for(draw(options.snapshot_interval, random));
  const Time killed = Clock::now();
  job.server(victim).kill_now();
  const Time restarted = Clock::now();
  job.server(victim).start();
  std::vector<Time> pushed;
  for (const int w : others(s, -1)) pushed.push_back(next_step(job, w, restarted));
  const Time all_pushed = std::ranges::max(pushed);
  const Time detected = job.observed(str("ps:", victim, " has gone"), killed,
                                     [victim](const auto& before, const auto& now) {
                                       return now.server == victim && now.epoch != before.epoch;
                                     });
  const std::vector<double> values = job.end();
  const auto pushes = static_cast<double>(job.pushes());
  const double lost = said_to_be_lost(job.server(victim));
  for (size_t server = 0; server < values.size(); ++server) {
    const double expected = pushes - (static_cast<int>(server) == victim ? lost : 0);
    check_counts({values[server]}, expected, expected);
  }
  if (log != ServerLog::kNone && lost > 0)
    fail(Code::kDataLoss, "ps:", victim, " has a log, and lost ", lost, " pushes");
  return {{"detected_ms", milliseconds(detected - killed)},
          {"recovered_ms", milliseconds(std::ranges::min(pushed) - killed)},
          {"longest_gap_ms", longest_gap_ms(job, others(s, -1), killed, all_pushed)},
          {"acknowledged", pushes},
          {"lost", lost}};
}

// Steps a second of all workers but one, which may be slow.
double speed_beside(const FaultSettings& s, int worker, bool is_slow) {
  FaultJobOptions options = s.job;
  if (is_slow) options.slow_worker = worker;
  FaultJob job(options);
  const Time begin = Clock::now();
  job.run_for(s.window);
  const double speed = steps_per_second(job, others(s, worker), begin, begin + s.window);
  count_pushes(job, 0);
  return speed;
}

Figures slow_worker(const FaultSettings& s, RandomStream& random) {
  const int victim = draw(s.job.workers, random);
  const double alike = speed_beside(s, victim, false), slow = speed_beside(s, victim, true);
  return {{"steps_per_s", alike}, {"steps_per_s_beside_slow", slow}, {"ratio", slow / alike}};
}

Figures slow_synchronous_worker(const FaultSettings& s, RandomStream& random) {
  FaultJobOptions options = synchronous(s.job);
  const int victim = draw(s.job.workers, random);
  options.slow_worker = victim;
  FaultJob job(options);
  const Time named = job.notice_of_servers(str("wait for worker:", victim, ","));
  const Times steps = job.steps(victim);
  const auto until_named = std::ranges::upper_bound(steps, named) - steps.begin();
  Figures figures = {{"named_after_steps", static_cast<double>(until_named)}};
  append(figures, count_updates(s, job));
  return figures;
}

}  // namespace

std::vector<FaultRow> parameter_server_rows() {
  const auto server_row = [](std::string log, ServerLog kind) {
    return FaultRow{"server_killed", " log=" + std::move(log),
                    [kind](const auto& s, auto& random) { return kill_server(s, random, kind); },
                    job_settings};
  };
  return {{"worker_killed", "", kill_worker, job_settings},
          {"synchronous_worker_killed", "", kill_synchronous_worker, job_settings},
          server_row("none", ServerLog::kNone),
          server_row("written", ServerLog::kWritten),
          {"slow_worker", "", slow_worker, job_settings},
          {"synchronous_slow_worker", "", slow_synchronous_worker, job_settings}};
}

}  // namespace cohort::benchmarks
