// Measures what becomes of training with parameter servers when a worker or a server is killed, or
// a worker is slow: tasks are processes of this host, and a model that counts tells whether each
// push was applied once. The same of synchronous training by several workers, under cohort-run,
// whose weights tell whether it goes on as if nothing had happened. And what attackers do to those
// who are served besides. Counts and weights that are wrong are an error, and strangers who are let
// in.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/attacks.h"
#include "benchmarks/fault_job.h"
#include "benchmarks/statistics.h"
#include "benchmarks/training_faults.h"
#include "benchmarks/training_task.h"
#include "core/base/error.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "core/base/random.h"
#include "core/base/temporary_folder.h"

namespace cohort::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
using Times = std::vector<Time>;

// What one round has found, by name, the same names in each.
using Figures = std::vector<std::pair<std::string, double>>;

// Values of float32, made of thirds or other parts of 1, are as far from whole numbers at most.
constexpr double kRounding = 0.01;

struct Settings {
  std::string row;
  FaultJobOptions job;
  AttackOptions attack;
  TrainingFaultOptions training;
  std::chrono::nanoseconds window;  // before and after a fault
  int64_t rounds;
  uint64_t seed;
};

// Those that rows were measured with.
std::string job_settings(const Settings& s) {
  return str(" workers=", s.job.workers, " servers=", s.job.servers,
             " pace_ms=", s.job.pace.count());
}
std::string attack_settings(const Settings& s) {
  return str(" clients=", s.attack.clients, " attack_ms=", s.attack.pause.count(),
             " own_core=", s.attack.own_core);
}
std::string flood_settings(const Settings& s) {
  return str(" workers=", s.attack.clients, " connections_per_s=", s.attack.connections_per_s,
             " own_core=", s.attack.own_core);
}

std::string training_settings(const Settings& s) {
  return str(" workers=", s.training.workers, " pace_ms=", s.training.pace.count());
}
std::string kill_settings(const Settings& s) {
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  return str(training_settings(s), " kill_s=", seconds(s.training.kill_interval),
             " checkpoint_s=", seconds(s.training.save_interval));
}

struct Row {
  std::string name, more;  // the latter is printed behind the name
  std::function<Figures(const Settings&, RandomStream&)> measure;
  std::function<std::string(const Settings&)> settings = job_settings;
};

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
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
std::vector<int> others(const Settings& s, int victim) {
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

// --- Moments and victims

int draw(int count, RandomStream& random) {
  return static_cast<int>(random.below(static_cast<uint64_t>(count)));
}

// A part of `whole`, so that what comes next happens anywhere in it.
std::chrono::nanoseconds draw(std::chrono::nanoseconds whole, RandomStream& random) {
  return std::chrono::nanoseconds(random.below(static_cast<uint64_t>(whole.count())));
}

// --- Counts

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
Figures count_updates(const Settings& s, FaultJob& job) {
  const std::vector<double> values = job.end();
  size_t most = 0;
  for (int w = 0; w < s.job.workers; ++w) most = std::max(most, job.steps(w).size());
  check_counts(values, static_cast<double>(most), static_cast<double>(most));
  return {{"updates", static_cast<double>(most)}};
}

void append(Figures& figures, const Figures& more) {
  figures.insert(figures.end(), more.begin(), more.end());
}

// --- Rows

FaultJobOptions synchronous(FaultJobOptions options) {
  options.max_staleness = 0;
  return options;
}

Figures kill_worker(const Settings& s, RandomStream& random) {
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

Figures kill_synchronous_worker(const Settings& s, RandomStream& random) {
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

Figures kill_server(const Settings& s, RandomStream& random, ServerLog log) {
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
double speed_beside(const Settings& s, int worker, bool is_slow) {
  FaultJobOptions options = s.job;
  if (is_slow) options.slow_worker = worker;
  FaultJob job(options);
  const Time begin = Clock::now();
  job.run_for(s.window);
  const double speed = steps_per_second(job, others(s, worker), begin, begin + s.window);
  count_pushes(job, 0);
  return speed;
}

Figures slow_worker(const Settings& s, RandomStream& random) {
  const int victim = draw(s.job.workers, random);
  const double alike = speed_beside(s, victim, false), slow = speed_beside(s, victim, true);
  return {{"steps_per_s", alike}, {"steps_per_s_beside_slow", slow}, {"ratio", slow / alike}};
}

Figures slow_synchronous_worker(const Settings& s, RandomStream& random) {
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

// --- Synchronous training by several workers. What is wanted of a figure stands behind it.

// At any moment of a step, when a window of time has passed.
TrainingFault draw_fault(const Settings& s, int worker, RandomStream& random) {
  return {.worker = worker, .after = s.window + draw(s.training.pace, random)};
}

Figures recover(const Settings& s, const TrainingFault& fault, int signal) {
  const Recovery found = lose_worker(s.training, fault, signal);
  return {{"named_ms", found.named_ms},
          {"named_ms_at_most", signal == SIGSTOP ? 6000 : 1000},
          {"recovered_ms", found.recovered_ms},
          {"recovered_ms_at_most", 10'000},
          {"steps_lost", static_cast<double>(found.steps_lost)}};
}

Figures kill_mirrored_worker(const Settings& s, RandomStream& random) {
  const int victim = 1 + draw(s.training.workers - 1, random);
  return recover(s, draw_fault(s, victim, random), SIGKILL);
}

Figures kill_chief(const Settings& s, RandomStream& random) {
  return recover(s, draw_fault(s, 0, random), SIGKILL);
}

Figures freeze_worker(const Settings& s, RandomStream& random) {
  const int victim = draw(s.training.workers, random);
  return recover(s, draw_fault(s, victim, random), SIGSTOP);
}

Figures preempt(const Settings& s, RandomStream& random) {
  const int victim = draw(s.training.workers, random);
  const Preemption found = preempt_worker(s.training, draw_fault(s, victim, random));
  return {
      {"ended_ms", found.ended_ms}, {"step_ms", found.step_ms},
      {"save_ms", found.save_ms},   {"beside_ms", found.ended_ms - found.step_ms - found.save_ms},
      {"beside_ms_at_most", 2000},  {"steps_lost", static_cast<double>(found.steps_lost)}};
}

// The kill comes in the middle, at any moment between two backups.
Figures effective_time(const Settings& s, RandomStream& random) {
  const int victim = draw(s.training.workers, random);
  const TrainingFault fault = {
      .worker = victim,
      .after = s.training.kill_interval / 2 + draw(s.training.save_interval, random)};
  const TimeSpent spent = train_with_a_kill(s.training, fault);
  return {{"ettr", spent.effective()},
          {"ettr_at_least", 0.95},
          {"total_s", spent.total()},
          {"kept_s", spent.kept},
          {"lost_s", spent.lost},
          {"between_s", spent.between},
          {"ending_s", spent.ending},
          {"starting_s", spent.starting},
          {"steps_lost", static_cast<double>(spent.steps_lost)}};
}

// --- Attacks

// The value that this part of all does not exceed.
double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// How many an attacker keeps busy, and its victim, which does nothing else.
Figures cores_in_control(const AttackTimes& times) {
  return {{"cores_of_attacker", times.attacker_processor_s / times.seconds},
          {"cores_of_control", times.victim_processor_s / times.seconds}};
}

Figures figures_of_attack(const Attacked& found) {
  const double quiet = quantile(found.quiet_us, 0.99),
               control = quantile(found.control.calls_us, 0.99),
               attacked = quantile(found.attack.calls_us, 0.99);
  Figures figures = {{"calls", static_cast<double>(found.attack.calls_us.size())},
                     {"p99_us", quiet},
                     {"p99_us_control", control},
                     {"p99_us_attacked", attacked},
                     {"ratio", attacked / quiet},
                     {"ratio_to_control", attacked / control},
                     {"refused", static_cast<double>(found.attack.attempts)},
                     {"refused_by_control", static_cast<double>(found.control.attempts)}};
  append(figures, cores_in_control(found.control));
  append(figures, {{"growth_mib", found.growth_bytes / (1 << 20)},
                   {"growth_in_messages", found.growth_bytes / found.message_bytes}});
  return figures;
}

Figures flood(const Settings& s) {
  const Attacked found = leader_under_flood(s.attack);
  const int64_t answered = found.attack.answered + found.control.answered;
  if (answered > 0)
    fail(Code::kPermissionDenied, "leaders have answered ", answered, " calls of strangers");
  const double quiet = mean(found.quiet_us), control = mean(found.control.calls_us),
               flooded = mean(found.attack.calls_us);
  const auto connected_per_s = [](const AttackTimes& times) {
    return static_cast<double>(times.attempts) / times.seconds;
  };
  Figures figures = {{"steps", static_cast<double>(found.attack.calls_us.size())},
                     {"step_ms", quiet / 1e3},
                     {"step_ms_control", control / 1e3},
                     {"step_ms_flooded", flooded / 1e3},
                     {"cost", flooded / quiet - 1},
                     {"cost_to_control", flooded / control - 1},
                     {"connected_per_s", connected_per_s(found.attack)},
                     {"connected_per_s_control", connected_per_s(found.control)}};
  append(figures, cores_in_control(found.control));
  append(figures, {{"answered", static_cast<double>(answered)},
                   {"growth_mib", found.growth_bytes / (1 << 20)}});
  return figures;
}

std::vector<Row> rows() {
  const auto server_row = [](std::string log, ServerLog kind) {
    return Row{"server_killed", " log=" + std::move(log),
               [kind](const auto& s, auto& random) { return kill_server(s, random, kind); }};
  };
  const auto attack_row = [](std::string target, Attacked (*measure)(const AttackOptions&)) {
    return Row{"attack", " target=" + std::move(target),
               [measure](const auto& s, auto&) { return figures_of_attack(measure(s.attack)); },
               attack_settings};
  };
  return {{"worker_killed", "", kill_worker},
          {"synchronous_worker_killed", "", kill_synchronous_worker},
          server_row("none", ServerLog::kNone),
          server_row("written", ServerLog::kWritten),
          {"slow_worker", "", slow_worker},
          {"synchronous_slow_worker", "", slow_synchronous_worker},
          attack_row("server", parameter_server_under_attack),
          attack_row("leader", leader_under_attack),
          {"flood", "", [](const auto& s, auto&) { return flood(s); }, flood_settings},
          {"mirrored_worker_killed", "", kill_mirrored_worker, training_settings},
          {"chief_killed", "", kill_chief, training_settings},
          {"worker_frozen", "", freeze_worker, training_settings},
          {"preempted", "", preempt, training_settings},
          {"ettr", "", effective_time, kill_settings}};
}

// --- The program

Settings parse(int argc, char** argv) {
  Flags flags(
      argc, argv,
      "Measures what faults do to training with parameter servers and to synchronous training by "
      "several workers, and attacks to those who are served besides. Wrong counts and weights are "
      "an error.");
  std::vector<std::string> names = {"all"};
  for (const Row& row : rows())
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

void report(const Settings& s, const Row& row, const std::vector<Figures>& rounds) {
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
  for (const Row& row : rows()) {
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
