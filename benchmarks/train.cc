// Measures training steps of one model: forward, backward, update, and the loss read back.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include "benchmarks/models.h"
#include "benchmarks/statistics.h"
#include "benchmarks/step_trace.h"
#include "benchmarks/torch_peer.h"
#include "cohort.h"

namespace cohort::benchmarks {
namespace {

constexpr int kWarmUpSteps = 3;

struct Settings {
  std::string model, device;
  int64_t batch, threads, steps, rounds;
  Precision precision;
  optim::NonFinite non_finite;
  StepTrace trace;
  std::string peer;
  bool vs_torch, tf32, compile, channels_last;
};

// What becomes of gradients that are not finite, by name.
const std::pair<std::string, optim::NonFinite> kPolicies[] = {{"keep", optim::NonFinite::kKeep},
                                                              {"error", optim::NonFinite::kError},
                                                              {"skip", optim::NonFinite::kSkip},
                                                              {"zero", optim::NonFinite::kZero}};

optim::NonFinite parse_policy(Flags& flags) {
  std::vector<std::string> names;
  for (const auto& [name, policy] : kPolicies) names.push_back(name);
  const std::string given = flags.text(
      "non_finite", "keep", "what becomes of gradients that are not finite", {.choices = names});
  const auto is_given = [&](const auto& named) { return named.first == given; };
  return std::ranges::find_if(kPolicies, is_given)->second;
}

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures training steps of one model, alone or against PyTorch.");
  Settings s;
  s.model = flags.text("model", "mlp", "which model", {.choices = model_names()});
  s.device = flags.text("device", "cpu:0", "cpu:0, or a GPU: gpu:0");
  s.batch = flags.integer("batch", usual_batch(s.model), "rows of a step", {.min = 1});
  s.threads = flags.integer("threads", 2, "threads", {.min = 1, .max = 1024});
  s.steps = flags.integer("steps", 20, "steps measured in each round", {.min = 1});
  s.rounds = flags.integer("rounds", 3, "alternating rounds with --vs-torch", {.min = 1});
  s.precision = precision_from_name(flags.text(
      "precision", "float32", "of products and convolutions", {.choices = precision_names()}));
  s.non_finite = parse_policy(flags);
  s.trace = StepTrace(flags);
  s.vs_torch = flags.boolean("vs-torch", false, "also runs the same model in PyTorch");
  s.tf32 = flags.boolean("tf32", false, "lets float32 products on GPUs read operands in TF32");
  s.compile = flags.boolean("compile", false, "with --vs-torch: by torch.compile");
  s.channels_last = flags.boolean("channels-last", false, "with --vs-torch: images as NHWC");
  s.peer = flags.text("peer", torch_program(argv[0]), "the PyTorch program");
  flags.finish();
  const bool on_cpu = parse_device(s.device).type == DeviceType::kCpu;
  if (s.tf32 && on_cpu) invalid("--tf32 is for GPUs, not for ", s.device);
  if ((s.compile || s.channels_last) && !s.vs_torch)
    invalid("--compile and --channels-last are PyTorch's: they need --vs-torch");
  if (s.vs_torch && on_cpu && s.precision == Precision::kMixedFloat16)
    invalid("--vs-torch compares float32 and mixed_bfloat16: PyTorch has no autocast to float16 ",
            "on CPUs");
  return s;
}

// A training step of the model on its batch.
class Trainer {
 public:
  explicit Trainer(const Settings& settings)
      : strategy_(OneDeviceStrategy(settings.device)),
        benchmark_(make_benchmark(settings.model, settings.batch)),
        optimizer_(
            optim::SGD(0.01, {.momentum = 0.9, .gradients = {.non_finite = settings.non_finite}})),
        precision_(settings.precision) {
    if (precision_ == Precision::kMixedFloat16) optimizer_.use_loss_scale();
    const auto scope = strategy_->scope();
    benchmark_.network.build({benchmark_.input.spec()});
    const auto network = benchmark_.network;
    const auto optimizer = optimizer_;
    step_ = std::make_unique<Function>(function(
        [network, optimizer](Value x, Value label) {
          Value loss = ops::reduce_mean(
              losses::sparse_softmax_cross_entropy(network(x, {.training = true}), label));
          optimizer.minimize(loss, network.trainable_variables());
          return loss;
        },
        settings.model));
    run(kWarmUpSteps);
  }

  // Milliseconds of each step.
  std::vector<double> run(int64_t steps) {
    std::vector<double> times;
    for (int64_t i = 0; i < steps; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      PerReplica<std::vector<Tensor>> inputs(1);
      inputs[0] = {benchmark_.input, benchmark_.label};
      const RunOptions options{.step = count_++, .precision = precision_};
      const double loss = strategy_->run(*step_, inputs, options)[0][0].item();
      times.push_back(milliseconds_since(begin));
      if (!std::isfinite(loss))
        fail(Code::kOutOfRange, "the loss became ", loss, " after ", count_, " steps");
      if (interrupted()) fail(Code::kCancelled, "interrupted after ", count_, " steps");
    }
    return times;
  }

  int64_t parameters() const { return count_parameters(benchmark_.network); }

 private:
  std::unique_ptr<Strategy> strategy_;
  Benchmark benchmark_;
  optim::Optimizer optimizer_;
  Precision precision_;
  std::unique_ptr<Function> step_;
  int64_t count_ = 0;
};

void report(const Settings& s, const Trainer& trainer, double milliseconds) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "cohort %s%s%s world=1 local_batch=%lld threads=%lld precision=%s params=%lld "
      "median_ms=%.4f "
      "examples_per_s=%.1f "
      "peak_rss_mb=%.0f\n",
      s.model.c_str(), s.device == "cpu:0" ? "" : (" device=" + s.device).c_str(),
      s.tf32 ? " tf32" : "", static_cast<long long>(s.batch), static_cast<long long>(s.threads),
      std::string(precision_name(s.precision)).c_str(),
      static_cast<long long>(trainer.parameters()), milliseconds,
      1e3 * static_cast<double>(s.batch) / milliseconds,
      static_cast<double>(usage.ru_maxrss) / 1024);
  std::fflush(stdout);
}

void measure(const Settings& s) {
  s.trace.check();
  set_logical_cpus(1, static_cast<int>(s.threads));
  allow_tf32(s.tf32);
  Trainer trainer(s);
  std::fputs(s.trace.record([&] { trainer.run(1); }).c_str(), stdout);
  const TorchPeer peer{.program = s.peer,
                       .model = s.model,
                       .batch = s.batch,
                       .threads = s.threads,
                       .precision = s.precision,
                       .device = parse_device(s.device),
                       .tf32 = s.tf32,
                       .compile = s.compile,
                       .channels_last = s.channels_last};
  std::vector<double> own, peers;
  for (int64_t round = 0; round < (s.vs_torch ? s.rounds : 1); ++round) {
    const auto times = trainer.run(s.steps);
    own.push_back(median(times));
    report(s, trainer, own.back());
    if (s.vs_torch) peers.push_back(peer.run(s.steps));
  }
  if (s.vs_torch)
    std::printf(
        "ratio %s cohort_ms=%.4f torch_ms=%.4f cohort/torch=%.2f (medians of %zu alternating "
        "rounds)\n",
        s.model.c_str(), median(own), median(peers), median(peers) / median(own), own.size());
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main(
      [&] { cohort::benchmarks::measure(cohort::benchmarks::parse(argc, argv)); });
}
