// Measures how much of the communication of a training step under MirroredStrategy goes on behind
// computation.
#include <algorithm>
#include <cstdio>

#include "benchmarks/mirrored_trainer.h"
#include "benchmarks/statistics.h"
#include "benchmarks/step_trace.h"
#include "benchmarks/waits.h"

namespace cohort::benchmarks {
namespace {

// As bytes_per_pack: all gradients in one bucket, which starts when the backward pass has ended,
// and a bucket for each.
constexpr int64_t kOneBucket = int64_t{1} << 50, kBucketForEach = 1;

struct Settings {
  MirroredTrainer::Options trainer;
  int64_t steps, rounds;
  StepTrace trace;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures how much of a step's communication computation hides.");
  Settings s;
  auto& t = s.trainer;
  t.model = flags.text("model", "mlp", "which model", {.choices = model_names()});
  t.batch = flags.integer("batch", usual_batch(t.model), "rows of a global step", {.min = 1});
  t.replicas = static_cast<int>(flags.integer("replicas", 2, "replicas", {.min = 2, .max = 1024}));
  t.threads_per_replica =
      static_cast<int>(flags.integer("threads", 1, "threads a replica", {.min = 1, .max = 1024}));
  t.bytes_per_pack =
      flags.integer("bytes_per_pack", 0, "size of a gradient bucket; 0 chooses", {.min = 0});
  s.steps = flags.integer("steps", 20, "steps measured in each round", {.min = 1});
  s.rounds =
      flags.integer("rounds", 5, "rounds, in which all sizes of buckets take turns", {.min = 1});
  s.trace = StepTrace(flags);
  flags.finish();
  return s;
}

// Means over replicas and steps, in microseconds.
struct Communication {
  double buckets = 0;
  double moving = 0;   // the time in which data moved
  double exposed = 0;  // the part of it in which the replica stood still
  double waiting = 0;  // the time in which the replica stood still, for data or for late replicas
};

Communication communication_of(const Profiler& profiler, const Settings& s) {
  Communication sum;
  const auto events = profiler.events();
  for (const auto& event : events) {
    if (event.kind == "AllReduceStart") ++sum.buckets;
    if (waits_for_others(event)) sum.waiting += microseconds(event.end - event.begin);
    if (event.kind != Profiler::kCommunication) continue;
    sum.moving += microseconds(event.end - event.begin);
    for (const auto& wait : events) {
      if (!waits_for_others(wait) || wait.replica != event.replica) continue;
      const auto both = std::min(event.end, wait.end) - std::max(event.begin, wait.begin);
      sum.exposed += std::max(0.0, microseconds(both));
    }
  }
  const double count = static_cast<double>(s.steps) * s.trainer.replicas;
  return {sum.buckets / count, sum.moving / count, sum.exposed / count, sum.waiting / count};
}

MirroredTrainer::Options with_buckets(MirroredTrainer::Options options, int64_t bytes_per_pack) {
  options.bytes_per_pack = bytes_per_pack;
  return options;
}

void measure(const Settings& s) {
  s.trace.check();
  MirroredTrainer overlapped(s.trainer), blocking(with_buckets(s.trainer, kOneBucket)),
      unfused(with_buckets(s.trainer, kBucketForEach));
  std::vector<double> times, blocking_times, unfused_times;
  for (int64_t round = 0; round < s.rounds; ++round) {
    times.push_back(median(overlapped.run(s.steps)));
    blocking_times.push_back(median(blocking.run(s.steps)));
    unfused_times.push_back(median(unfused.run(s.steps)));
  }
  Communication c;
  {
    const Profiler profiler;
    overlapped.run(s.steps);
    c = communication_of(profiler, s);
  }
  s.trace.record([&] { overlapped.run(1); });
  const double hidden = c.moving > 0 ? 1 - c.exposed / c.moving : 0;
  std::printf(
      "cohort-overlap model=%s replicas=%d buckets=%.0f communication_us=%.0f exposed_us=%.0f "
      "hidden=%.0f%% waiting_us=%.0f step_ms=%.2f step_ms_without_overlap=%.2f "
      "step_ms_bucket_for_each=%.2f\n",
      s.trainer.model.c_str(), s.trainer.replicas, c.buckets, c.moving, c.exposed, 100 * hidden,
      c.waiting, median(times), median(blocking_times), median(unfused_times));
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main(
      [&] { cohort::benchmarks::measure(cohort::benchmarks::parse(argc, argv)); });
}
