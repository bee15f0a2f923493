// Measures how training steps scale over the workers of a MultiWorkerMirroredStrategy, processes of
// this host, and predicts from what it has measured how they would over many hosts.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "benchmarks/line_chart.h"
#include "benchmarks/models.h"
#include "benchmarks/scaling_model.h"
#include "benchmarks/scaling_worker.h"
#include "benchmarks/statistics.h"
#include "benchmarks/worker_processes.h"
#include "core/base/file.h"

namespace cohort::benchmarks {
namespace {

constexpr int kMostWorkers = 64;

struct Settings {
  std::string model;
  std::vector<int> workers;
  Scaling scaling;
  int64_t batch, threads, steps, rounds, max_workers;
  double latency_us, gigabytes_per_s;  // 0 measures
  std::string svg;
  int worker_of;  // so many; 0 for the program that a person has started
};

std::vector<int> parse_workers(const std::string& list) {
  const auto refuse = [&] {
    invalid("--workers=", list, " has to be numbers from 1 to ", kMostWorkers,
            " that grow, such as 1,2,4");
  };
  std::vector<int> workers;
  const char* at = list.data();
  const char* const end = at + list.size();
  for (;; ++at) {
    int count = 0;
    const auto [next, error] = std::from_chars(at, end, count);
    if (error != std::errc() || count < 1 || count > kMostWorkers) refuse();
    if (!workers.empty() && count <= workers.back()) refuse();
    workers.push_back(count);
    at = next;
    if (at == end) return workers;
    if (*at != ',') refuse();
  }
}

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures how training scales over workers, and predicts for more.");
  Settings s;
  s.model = flags.text("model", "mlp", "which model", {.choices = model_names()});
  s.workers = parse_workers(flags.text("workers", "1,2", "numbers of processes to measure with"));
  s.scaling = flags.boolean("strong", false, "the same global batch for any number of workers")
                  ? Scaling::kStrong
                  : Scaling::kWeak;
  s.batch = flags.integer("batch", usual_batch(s.model),
                          "rows of a worker, or of the global batch with --strong",
                          {.min = 1, .max = 1 << 20});
  s.threads = flags.integer("threads", 1, "threads of a worker", {.min = 1, .max = 1024});
  s.steps = flags.integer("steps", 20, "steps measured in each round", {.min = 1, .max = 10'000});
  s.rounds = flags.integer("rounds", 3, "rounds, alternating between the numbers of workers",
                           {.min = 1, .max = 1000});
  s.max_workers =
      flags.integer("max_workers", 1024, "predicts for up to so many", {.min = 1, .max = 1 << 20});
  s.latency_us = flags.number("latency_us", 0,
                              "microseconds of a round of messages to predict with; 0 measures",
                              {.min = 0, .max = 1e9});
  s.gigabytes_per_s =
      flags.number("gigabytes_per_s", 0, "bandwidth of a worker to predict with; 0 measures",
                   {.min = 0, .max = 1e6});
  s.svg = flags.text("svg", "scaling.svg", "writes a chart to this file; nothing when empty");
  s.worker_of = static_cast<int>(
      flags.integer("worker_of", 0, "used by the program itself", {.min = 0, .max = kMostWorkers}));
  flags.finish();
  if (s.scaling == Scaling::kStrong && s.batch < s.workers.back())
    invalid("--batch=", s.batch, " rows are too few for ", s.workers.back(), " workers");
  return s;
}

int64_t global_batch(const Settings& s, int64_t workers) {
  return s.scaling == Scaling::kStrong ? s.batch : s.batch * workers;
}

// With so many workers, the means over workers; of times over rounds the median.
struct Measured {
  int workers;
  bool shares_cores;
  WorkerRound round;
  double examples_per_s;
  double efficiency;  // throughput over that of as many of the smallest group's workers
};

// The worker that takes longest decides on the time of a step.
WorkerRound over_workers(const std::vector<std::string>& answers) {
  WorkerRound result;
  const double share = 1 / static_cast<double>(answers.size());
  for (const std::string& answer : answers) {
    const auto r = WorkerRound::from_line(answer);
    result.step = std::max(result.step, r.step);
    result.input += share * r.input;
    result.agreement += share * r.agreement;
    result.compute += share * r.compute;
    result.exposed += share * r.exposed;
    result.late += share * r.late;
    result.overlappable += share * r.overlappable;
    result.small += share * r.small;
    result.large += share * r.large;
    result.gradient_bytes = r.gradient_bytes;
  }
  return result;
}

WorkerRound over_rounds(const std::vector<WorkerRound>& rounds) {
  WorkerRound result;
  for (const auto field : kRoundFields) {
    std::vector<double> values;
    for (const WorkerRound& round : rounds) values.push_back(round.*field);
    result.*field = median(values);
  }
  return result;
}

std::vector<std::vector<WorkerRound>> run_rounds(const Settings& s,
                                                 const std::vector<std::string>& arguments) {
  std::vector<WorkerProcesses> groups;
  for (int workers : s.workers) {
    auto own = arguments;
    own.push_back(str("--worker_of=", workers));
    groups.emplace_back(own, workers, s.threads);
    groups.back().answers();  // until all are ready, so that groups do not disturb each other
  }
  std::vector<std::vector<WorkerRound>> rounds(groups.size());
  for (int64_t r = 0; r < s.rounds; ++r)
    for (size_t g = 0; g < groups.size(); ++g) {
      groups[g].start_round();
      rounds[g].push_back(over_workers(groups[g].answers()));
    }
  return rounds;
}

std::vector<Measured> measure(const Settings& s, const std::vector<std::string>& arguments) {
  const auto rounds = run_rounds(s, arguments);
  std::vector<Measured> all;
  for (size_t g = 0; g < rounds.size(); ++g) {
    Measured m{};
    m.workers = s.workers[g];
    m.shares_cores = m.workers * s.threads > std::thread::hardware_concurrency();
    m.round = over_rounds(rounds[g]);
    m.examples_per_s = 1e3 * static_cast<double>(global_batch(s, m.workers)) / m.round.step;
    const double of_one = (all.empty() ? m : all.front()).examples_per_s / s.workers.front();
    m.efficiency = m.examples_per_s / (m.workers * of_one);
    all.push_back(m);
  }
  return all;
}

std::string headline(const Settings& s) {
  return str(s.model, ", ",
             s.scaling == Scaling::kStrong ? str("strong scaling: ", s.batch, " rows in all")
                                           : str("weak scaling: ", s.batch, " rows a worker"),
             ", ", s.threads, s.threads == 1 ? " thread" : " threads", " a worker");
}

void print_measured(const Settings& s, const std::vector<Measured>& all) {
  std::printf("%s, on %u cores\n\n", headline(s).c_str(), std::thread::hardware_concurrency());
  std::printf("MEASURED                                         share of a step\n");
  std::printf(
      "workers  rows    step ms  examples/s  efficiency  compute  input  exposed  late  "
      "agreement\n");
  bool any_shares = false;
  for (const Measured& m : all) {
    const WorkerRound& r = m.round;
    const auto percent = [&](double part) { return 100 * part / r.sum_of_parts(); };
    std::printf("%7d %5lld %10.2f %11.1f %9.0f %%%c %6.1f %% %4.1f %% %6.1f %% %3.0f %% %8.1f %%\n",
                m.workers, static_cast<long long>(global_batch(s, m.workers)), r.step,
                m.examples_per_s, 100 * m.efficiency, m.shares_cores ? '*' : ' ',
                percent(r.compute), percent(r.input), percent(r.exposed), percent(r.late),
                percent(r.agreement));
    any_shares = any_shares || m.shares_cores;
  }
  std::printf(
      "Efficiency: throughput a worker over that with %s. Input: waiting for the next batch.\n"
      "Exposed: gradients move and nothing is computed. Late: waiting for slower workers.\n"
      "Agreement: what is exchanged before a step, and the way into it and out of it.\n",
      s.workers.front() == 1 ? "one worker" : str(s.workers.front(), " workers").c_str());
  if (any_shares)
    std::printf(
        "* More threads than cores: workers share cores, so that efficiency cannot be "
        "judged.\n");
}

struct Parameters {
  StepCosts costs;
  Network network;
  std::vector<std::string> notes;  // the parameters with their units and where they come from
};

// The first group that communicates.
const Measured* first_group(const std::vector<Measured>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [](auto& m) { return m.workers > 1; });
  return found == all.end() ? nullptr : &*found;
}

std::string rounded(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// What one worker computes in a step, brought back to a worker alone where none was measured.
double compute_seconds(const Settings& s, const Measured& base) {
  const WorkerRound& r = base.round;
  const double communicating = base.workers > 1 ? (r.exposed + r.late) / r.sum_of_parts() : 0;
  const double seconds = 1e-3 * r.step * (1 - communicating);
  return s.scaling == Scaling::kStrong ? seconds * base.workers : seconds;
}

// Nothing when there is no measured or given network.
std::optional<Parameters> parameters_of(const Settings& s, const std::vector<Measured>& all) {
  const Measured* group = first_group(all);
  const bool given = s.latency_us > 0 && s.gigabytes_per_s > 0;
  if (group == nullptr && !given) return std::nullopt;
  Parameters p;
  const Measured& base = all.front();
  p.costs = {.compute = compute_seconds(s, base),
             .overlappable = 0,
             .gradient_bytes = base.round.gradient_bytes};
  p.notes.push_back(str("compute ", rounded("%.2f", 1e3 * p.costs.compute), " ms a step of ",
                        s.batch, " rows (measured with ", base.workers,
                        base.workers == 1 ? " worker)" : " workers)"));
  std::string from = "given";
  if (group != nullptr) {
    const WorkerRound& r = group->round;
    p.costs.overlappable =
        1e-3 * r.overlappable * (s.scaling == Scaling::kStrong ? group->workers : 1);
    p.network = network_from(group->workers, 1e-3 * r.small, r.gradient_bytes, 1e-3 * r.large);
    from = str("all-reduces of ", group->workers, " workers: 4 bytes ",
               rounded("%.1f", 1e3 * r.small), " us, ", rounded("%.2f", 1e-6 * r.gradient_bytes),
               " MB ", rounded("%.2f", r.large), " ms");
  }
  if (s.latency_us > 0) p.network.latency = 1e-6 * s.latency_us;
  if (s.gigabytes_per_s > 0) p.network.bytes_per_second = 1e9 * s.gigabytes_per_s;
  const auto origin = [&](double flag) { return flag > 0 ? " (given)" : " (measured)"; };
  p.notes.push_back(str("overlappable ", rounded("%.2f", 1e3 * p.costs.overlappable),
                        " ms of it, from the first complete bucket of gradients to the last",
                        group == nullptr ? " (not measured: one worker has no buckets)" : ""));
  p.notes.push_back(str(
      "gradients ", rounded("%.2f", 1e-6 * p.costs.gradient_bytes), " MB, latency ",
      rounded("%.2f", 1e6 * p.network.latency), " us a round", origin(s.latency_us), ", bandwidth ",
      rounded("%.2f", 1e-9 * p.network.bytes_per_second), " GB/s", origin(s.gigabytes_per_s)));
  if (!given) p.notes.push_back(str("from ", from));
  return p;
}

constexpr auto kAssumptions =
    "Assumed: equal workers, each with cores and a link of its own; links that do not disturb "
    "each\n"
    "other; nobody is late; step = compute + max(0, communication - overlappable); all-reduce of "
    "S\n"
    "bytes = the faster of ring, 2 (P - 1) latency + 2 (P - 1) / P S / bandwidth, and tree,\n"
    "2 ceil(log2 P) (latency + S / bandwidth). Strong scaling divides compute and overlappable by "
    "P.\nMeasured latency and bandwidth are those between processes of this host, not of a "
    "network:\n"
    "--latency_us and --gigabytes_per_s give those of another.\n";

std::vector<Prediction> predictions(const Settings& s, const Parameters& p) {
  std::vector<Prediction> all;
  for (int64_t workers = 1; workers <= s.max_workers; workers *= 2)
    all.push_back(predict(p.costs, p.network, s.scaling, workers));
  return all;
}

void print_predicted(const Settings& s, const Parameters& p,
                     const std::vector<Prediction>& predicted) {
  std::printf("\nPREDICTED from\n");
  for (const std::string& note : p.notes) std::printf("  %s\n", note.c_str());
  std::printf(
      "\nworkers     step ms   examples/s  efficiency  communication ms  exposed ms  "
      "all-reduce\n");
  for (const Prediction& q : predicted)
    std::printf("%7lld %11.2f %12.1f %9.1f %% %17.3f %11.3f  %s\n",
                static_cast<long long>(q.workers), 1e3 * q.step,
                static_cast<double>(global_batch(s, q.workers)) / q.step, 100 * q.efficiency,
                1e3 * q.communication, 1e3 * q.exposed, q.workers > 1 ? name_of(q.algorithm) : "-");
  std::printf("%s", kAssumptions);
}

void write_chart(const Settings& s, const std::vector<Measured>& all,
                 const std::optional<Parameters>& parameters,
                 const std::vector<Prediction>& predicted) {
  LineChart chart{
      .title = headline(s), .x_label = "workers", .y_label = "efficiency in % of linear scaling"};
  Series ideal{"linear", Mark::kDashedLine, "#999999", {{1, 100}}};
  Series model{"cost model", Mark::kLine, "#1f77b4", {}};
  Series own{"measured", Mark::kDots, "#d62728", {}};
  Series shared{"measured, workers share cores", Mark::kCircles, "#d62728", {}};
  for (const Prediction& q : predicted)
    model.points.emplace_back(static_cast<double>(q.workers), 100 * q.efficiency);
  for (const Measured& m : all)
    (m.shares_cores ? shared : own).points.emplace_back(m.workers, 100 * m.efficiency);
  ideal.points.emplace_back(
      std::max(static_cast<double>(all.back().workers),
               predicted.empty() ? 2.0 : static_cast<double>(predicted.back().workers)),
      100);
  chart.series = {ideal, model, own, shared};
  if (parameters) chart.notes = parameters->notes;
  write_file_atomically(s.svg, to_svg(chart));
  std::printf("\nchart: %s\n", s.svg.c_str());
}

void report(const Settings& s, const std::vector<std::string>& arguments) {
  const auto measured = measure(s, arguments);
  print_measured(s, measured);
  const auto parameters = parameters_of(s, measured);
  std::vector<Prediction> predicted;
  if (parameters) {
    predicted = predictions(s, *parameters);
    print_predicted(s, *parameters, predicted);
  } else {
    std::printf(
        "\nNo prediction: it takes 2 workers or more, or --latency_us and "
        "--gigabytes_per_s.\n");
  }
  if (!s.svg.empty()) write_chart(s, measured, parameters, predicted);
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  using namespace cohort::benchmarks;
  return cohort::run_main([&] {
    const Settings s = parse(argc, argv);
    if (s.worker_of > 0)
      run_worker({.model = s.model,
                  .batch = global_batch(s, s.worker_of),
                  .threads = static_cast<int>(s.threads),
                  .steps = s.steps});
    else
      report(s, {argv, argv + argc});
  });
}
