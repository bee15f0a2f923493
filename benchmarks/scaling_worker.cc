#include "benchmarks/scaling_worker.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "benchmarks/mirrored_trainer.h"
#include "benchmarks/statistics.h"
#include "benchmarks/waits.h"
#include "cohort.h"
#include "strategies/multi_worker/cluster_link.h"

namespace cohort::benchmarks {
namespace {

using Clock = Profiler::Clock;

constexpr int kWarmUpSteps = 3, kSmallReductions = 200, kLargeReductions = 15;

// Times all-reduces of this worker with the others.
class ReductionProbe {
 public:
  ReductionProbe(WorkerLink& link, size_t bytes)
      : communicator_(std::move(link.connect("scaling probe", 1, {}).front())),
        memory_(communicator_->allocate(bytes)),
        count_(static_cast<int64_t>(bytes / sizeof(float))) {
    std::memset(memory_->data, 0, bytes);
  }

  double small_ms() { return median_ms(1, kSmallReductions); }
  double large_ms() { return median_ms(count_, kLargeReductions); }

 private:
  // The first of them finds pages that nobody has touched.
  double median_ms(int64_t count, int repetitions) {
    reduce(count);
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
      communicator_->barrier();
      const auto begin = Clock::now();
      reduce(count);
      times.push_back(milliseconds(Clock::now() - begin));
    }
    return median(times);
  }

  void reduce(int64_t count) {
    const Segment segment{memory_->data, memory_->data, count};
    communicator_->all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
  }

  std::unique_ptr<Communicator> communicator_;
  std::shared_ptr<Buffer> memory_;
  int64_t count_;
};

struct StepTimes {
  Clock::time_point begin, has_input, end;
};

// The time from `begin` to `end` in which data moved.
double moving_ms(const std::vector<const Profiler::Event*>& step, Clock::time_point begin,
                 Clock::time_point end) {
  double sum = 0;
  for (const auto* event : step)
    if (event->kind == Profiler::kCommunication)
      sum += std::max(0.0, milliseconds(std::min(event->end, end) - std::max(event->begin, begin)));
  return sum;
}

// Adds one step of this worker's only replica to `sum`, given its events.
void add_step(const StepTimes& times, const std::vector<const Profiler::Event*>& events,
              WorkerRound& sum) {
  std::optional<Clock::time_point> first, last, first_bucket, last_bucket;
  double still = 0, exposed = 0;
  for (const auto* event : events) {
    if (event->kind == Profiler::kCommunication) continue;
    if (!first) first = event->begin;
    last = event->end;
    if (event->kind == "AllReduceStart") {
      if (!first_bucket) first_bucket = event->end;
      last_bucket = event->end;
    }
    if (!waits_for_others(*event)) continue;
    still += milliseconds(event->end - event->begin);
    exposed += moving_ms(events, event->begin, event->end);
  }
  if (!first) fail(Code::kInternal, "the profiler has seen no kernel of a step");
  const double kernels = milliseconds(*last - *first);
  exposed = std::min(exposed, still);  // buckets may move at the same time
  sum.input += milliseconds(times.has_input - times.begin);
  sum.agreement += milliseconds(times.end - times.has_input) - kernels;
  sum.compute += kernels - still;
  sum.exposed += exposed;
  sum.late += still - exposed;
  if (first_bucket) sum.overlappable += milliseconds(*last_bucket - *first_bucket);
}

class Worker {
 public:
  explicit Worker(const WorkerOptions& options)
      : options_(options),
        link_(join()),
        trainer_({.model = options.model,
                  .batch = options.batch,
                  .threads_per_replica = options.threads,
                  .several_workers = true,
                  .link = link_}),
        batches_(make_batches()) {
    for (const auto& variable : trainer_.benchmark().network.trainable_variables())
      gradient_bytes_ += variable->spec().bytes();
    if (link_ != nullptr) probe_.emplace(*link_, gradient_bytes_);
    for (int i = 0; i < kWarmUpSteps; ++i) step();
  }

  WorkerRound measure() {
    WorkerRound round;
    std::vector<double> times;
    for (int64_t i = 0; i < options_.steps; ++i) {
      const StepTimes t = step();
      times.push_back(milliseconds(t.end - t.begin));
    }
    measure_parts(round);
    round.step = median(times);
    round.gradient_bytes = static_cast<double>(gradient_bytes_);
    if (probe_) {
      round.small = probe_->small_ms();
      round.large = probe_->large_ms();
    }
    return round;
  }

 private:
  static std::shared_ptr<WorkerLink> join() {
    const auto resolver = resolve_cluster().resolver;
    return resolver->world().size > 1 ? join_cluster(*resolver, {}) : nullptr;
  }

  // The trainer's rows over and over, batched behind the step that runs.
  data::DistributedIterator make_batches() {
    const Benchmark& benchmark = trainer_.benchmark();
    const auto rows =
        data::from_tensor_slices({{"input", benchmark.input}, {"label", benchmark.label}});
    return trainer_.strategy()
        .distribute_dataset(rows.repeat().batch(options_.batch, {.drop_remainder = true}))
        .iterate();
  }

  StepTimes step() {
    StepTimes times{};
    times.begin = Clock::now();
    const auto batch = batches_.next();
    times.has_input = Clock::now();
    if (!batch) fail(Code::kInternal, "an endless dataset has ended");
    PerReplica<Tensor> input(batch->size()), label(batch->size());
    for (size_t r = 0; r < batch->size(); ++r) {
      input[r] = (*batch)[r]["input"];
      label[r] = (*batch)[r]["label"];
    }
    trainer_.step(input, label);
    times.end = Clock::now();
    return times;
  }

  void measure_parts(WorkerRound& round) {
    const Profiler profiler;
    std::vector<StepTimes> steps;
    for (int64_t i = 0; i < options_.steps; ++i) steps.push_back(step());
    const auto events = profiler.events();
    WorkerRound sum;
    for (const StepTimes& times : steps) {
      std::vector<const Profiler::Event*> of_step;
      for (const auto& event : events)
        if (event.begin >= times.begin && event.begin < times.end) of_step.push_back(&event);
      add_step(times, of_step, sum);
    }
    const auto mean = [&](double all) { return all / static_cast<double>(steps.size()); };
    round.input = mean(sum.input);
    round.agreement = mean(sum.agreement);
    round.compute = mean(sum.compute);
    round.exposed = mean(sum.exposed);
    round.late = mean(sum.late);
    round.overlappable = mean(sum.overlappable);
  }

  WorkerOptions options_;
  std::shared_ptr<WorkerLink> link_;  // null for a worker alone
  MirroredTrainer trainer_;
  data::DistributedIterator batches_;
  size_t gradient_bytes_ = 0;
  std::optional<ReductionProbe> probe_;
};

}  // namespace

std::string WorkerRound::to_line() const {
  std::ostringstream line;
  line.precision(std::numeric_limits<double>::max_digits10);
  for (const auto field : kRoundFields) line << this->*field << ' ';
  return line.str();
}

WorkerRound WorkerRound::from_line(const std::string& line) {
  WorkerRound round;
  std::istringstream in(line);
  for (const auto field : kRoundFields)
    if (!(in >> round.*field)) invalid("a worker has answered \"", line, "\"");
  return round;
}

void run_worker(const WorkerOptions& options) {
  Worker worker(options);
  std::puts("ready");
  std::fflush(stdout);
  std::array<char, 16> line;
  while (std::fgets(line.data(), line.size(), stdin) != nullptr) {
    std::puts(worker.measure().to_line().c_str());
    std::fflush(stdout);
  }
}

}  // namespace cohort::benchmarks
