// A small training of several workers, of which one can come to harm at a moment of choice: in the
// first attempt, or another one in each.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "cohort.h"
#include "core/base/crc32c.h"
#include "core/base/system_error.h"

using namespace cohort;

namespace {

struct Settings {
  std::string loop, backup, harm, at, non_finite;
  int64_t epochs, batch, width, devices, save_freq, grace, victim, step, percent;
  bool shuffle, again;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Trains on a few synthetic digits.");
  Settings s;
  s.loop = flags.text("loop", "fit", "who loops", {.choices = {"fit", "own"}});
  s.backup = flags.text("backup", "", "folder of backups");
  s.save_freq = flags.integer("save_freq", 1, "steps between backups", {.min = 1});
  s.grace = flags.integer("grace", 0, "seconds to live after SIGTERM", {.min = 0});
  s.epochs = flags.integer("epochs", 2, "passes over the data", {.min = 1});
  s.batch = flags.integer("batch", 12, "rows of a step, over all replicas", {.min = 1});
  s.width = flags.integer("width", 0, "units of a hidden layer; 0: there is none", {.min = 0});
  s.devices = flags.integer("devices", 1, "replicas of each worker", {.min = 1, .max = 16});
  s.harm = flags.text("harm", "none", "what happens to the victim",
                      {.choices = {"none", "kill", "stop", "pause", "term", "throw", "sleep"}});
  s.non_finite = flags.text("non_finite", "none",
                            "with --loop=own, what becomes of a gradient that is not finite, which "
                            "the victim then has in the step of --step",
                            {.choices = {"none", "error", "skip", "zero"}});
  s.at = flags.text("at", "step",
                    "when: before or after it joins, after a step, in the save that follows a step "
                    "(with --harm=kill or stop), in the step that follows one (of fit), in the "
                    "first validation (which there is only then), or at the end",
                    {.choices = {"start", "joined", "step", "save", "next", "validation", "end"}});
  s.victim = flags.integer("victim", 1, "its rank");
  s.step = flags.integer("step", 5, "after which step of the attempt", {.min = 1});
  s.percent =
      flags.integer("percent", 0, "with --at=next: how much of a step's time has passed then",
                    {.min = 0, .max = 99});
  s.again = flags.boolean("again", false,
                          "whether the worker after the victim comes to harm in the next attempt, "
                          "and so on");
  s.shuffle = flags.boolean("shuffle", true, "whether to shuffle, each worker its own part");
  flags.finish();
  return s;
}

int64_t restarts() {
  const char* count = std::getenv("COHORT_RESTART_COUNT");
  return count == nullptr ? 0 : std::stoll(count);
}

// Whether it is this one that comes to harm in this attempt.
bool is_victim(const Settings& s, const World& world) {
  return (s.harm != "none" || s.non_finite != "none") && (restarts() == 0 || s.again) &&
         world.rank == (s.victim + restarts()) % world.size;
}

// For 3 seconds.
void stand_still() {
  const pid_t frozen = getpid();
  if (fork() == 0) {
    sleep(3);
    kill(frozen, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
}

void come_to_harm(const Settings& s) {
  std::fprintf(stderr, "harm\n");
  std::fflush(stdout);
  if (s.harm == "kill") raise(SIGKILL);
  if (s.harm == "stop") raise(SIGSTOP);
  if (s.harm == "pause") stand_still();
  if (s.harm == "term") raise(SIGTERM);
  if (s.harm == "sleep") std::this_thread::sleep_for(std::chrono::hours(1));
  if (s.harm == "throw") fail(Code::kResourceExhausted, "the victim has run out of luck");
}

// To be called before a save: the chief comes to harm in the middle of the file, and another worker
// at once, while the others save.
void come_to_harm_in_save(const Settings& s, bool is_chief) {
  if (!is_chief) return come_to_harm(s);
  static const Settings settings = s;
  std::signal(SIGXFSZ, [](int) { come_to_harm(settings); });
  const rlimit most_bytes{4096, 4096};  // of a file that is to have more than twice as many
  if (setrlimit(RLIMIT_FSIZE, &most_bytes) != 0) fail_errno("limit", "files");
}

class Harm : public Callback {
 public:
  explicit Harm(const Settings& settings) : settings_(settings) {}
  void on_batch_end(Training& training) override {
    if (++steps_ != settings_.step) return;
    if (settings_.at == "save")
      come_to_harm_in_save(settings_, training.model().strategy().is_chief());
    else
      come_to_harm(settings_);
  }

 private:
  Settings settings_;
  int64_t steps_ = 0;
};

// In the step after the one of the settings, when a part of the time has passed that a step takes
// at least.
class HarmInNextStep : public Callback {
 public:
  explicit HarmInNextStep(const Settings& settings) : settings_(settings) {}
  void on_batch_begin(Training&) override {
    began_ = Clock::now();
    if (steps_ != settings_.step) return;
    const auto moment = began_ + shortest_ * settings_.percent / 100;
    std::thread([settings = settings_, moment] {
      std::this_thread::sleep_until(moment);
      come_to_harm(settings);
    }).detach();
  }
  void on_batch_end(Training&) override {
    shortest_ = std::min(shortest_, Clock::now() - began_);
    ++steps_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Settings settings_;
  Clock::time_point began_;
  Clock::duration shortest_ = Clock::duration::max();
  int64_t steps_ = 0;
};

void report(const Model& model, double loss) {
  std::string bytes;
  for (const auto& variable : model.variables()) {
    const Tensor value = variable->value();
    bytes.append(static_cast<const char*>(value.raw()), value.bytes());
  }
  std::printf("weights=%08x\nloss=%.6f\n", crc32c(bytes), loss);
}

// The same rows; the harmed worker comes to harm when it reads the first of them.
data::Dataset harming(const data::Dataset& rows, const Settings& s, bool harmed) {
  const auto fresh = std::make_shared<std::atomic<bool>>(harmed);
  return rows.map([fresh, s](const data::Element& row) {
    if (fresh->exchange(false)) come_to_harm(s);
    return row;
  });
}

double fit(const Settings& s, Model& model, const data::Dataset& train, bool harmed) {
  FitOptions options{.epochs = s.epochs, .verbose = Verbose::kSilent};
  if (s.at == "validation")
    options.validation_data = harming(data::synthetic_digits(360), s, harmed).batch(12);
  if (harmed && (s.at == "step" || s.at == "save"))
    options.callbacks.push_back(std::make_shared<Harm>(s));
  if (harmed && s.at == "next") options.callbacks.push_back(std::make_shared<HarmInNextStep>(s));
  if (!s.backup.empty())
    options.callbacks.push_back(callbacks::BackupAndRestore(
        s.backup, {.save_freq = s.save_freq, .grace_seconds = static_cast<double>(s.grace)}));
  return model.fit(train, options)["loss"].back();
}

optim::NonFinite policy_of(const Settings& s) {
  if (s.non_finite == "error") return optim::NonFinite::kError;
  if (s.non_finite == "skip") return optim::NonFinite::kSkip;
  return s.non_finite == "zero" ? optim::NonFinite::kZero : optim::NonFinite::kKeep;
}

double loop(const Settings& s, Strategy& strategy, const Model& model, const data::Dataset& train,
            bool harmed) {
  const auto optimizer =
      optim::SGD(0.05, {.momentum = 0.9, .gradients = {.non_finite = policy_of(s)}});
  // `poison` is added to the gradients of the last bias, and to those alone.
  const auto step = strategy.function([&](const BatchValues& batch, const Value& poison) {
    const Value losses =
        losses::sparse_softmax_cross_entropy(model(batch["image"]), batch["label"]);
    Value loss = ops::reduce_sum(losses) / static_cast<double>(batch.global_rows());
    const Variables variables = model.trainable_variables();
    const bool is_poisoned = s.non_finite != "none";
    optimizer.minimize(
        is_poisoned ? loss + ops::reduce_sum(variables.back()->read()) * poison : loss, variables);
    return loss;
  });
  optimizer.build(model.trainable_variables());
  Variables all = model.variables();
  for (const auto& variable : optimizer.variables()) all.push_back(variable);
  const std::string path = s.backup + "/loop.safetensors";
  int64_t saved = 0;
  if (!s.backup.empty() && std::filesystem::exists(path))
    saved = std::stoll(load_variables(path, all, {}, strategy.workers()).metadata.at("steps"));
  const auto save = [&](int64_t steps) {
    if (!s.backup.empty())
      save_variables(path, all, {{"steps", std::to_string(steps)}}, strategy.workers());
  };
  const CatchTermination catch_termination;
  double loss = 0;
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < s.epochs; ++epoch)
    for (const auto& batch : strategy.distribute_dataset(train)) {
      if (steps++ < saved) continue;
      const bool is_bad = harmed && s.non_finite != "none" && steps - saved == s.step;
      const float poison = is_bad ? std::numeric_limits<float>::quiet_NaN() : 0;
      loss = strategy.reduce("sum", strategy.run(step, batch, poison)).item();
      if (strategy.workers().stop_requested()) {
        save(steps);
        fail(Code::kCancelled, "interrupted after step ", steps);
      }
      if (steps - saved == s.step && harmed && s.at == "save")
        come_to_harm_in_save(s, strategy.is_chief());
      if (steps % s.save_freq == 0) save(steps);
      if (steps - saved == s.step && harmed && s.at == "step") come_to_harm(s);
    }
  return loss;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    const Settings s = parse(argc, argv);
    const bool harmed = is_victim(s, resolve_cluster().resolver->world());
    // cohort-run asks the survivors to end at once; they shall show that they end by themselves.
    // After an error before they train it gives them time, and they shall need no more.
    const bool throws = s.harm == "throw" && s.at != "joined";
    if ((s.at == "step" || s.at == "save" || s.at == "next" || s.at == "joined" || s.at == "end") &&
        (s.harm == "kill" || s.harm == "stop" || throws || s.non_finite == "error"))
      std::signal(SIGTERM, SIG_IGN);
    if (harmed && s.at == "start") come_to_harm(s);
    set_global_seed(11);
    set_logical_cpus(static_cast<int>(s.devices));
    MultiWorkerMirroredStrategy strategy;
    if (harmed && s.at == "joined") come_to_harm(s);
    const auto scope = strategy.scope();
    std::vector<nn::Layer> layers = {nn::Conv2D(4, 3, {.activation = nn::tanh}),
                                     nn::SyncBatchNormalization(), nn::AveragePooling2D(4),
                                     nn::Flatten()};
    if (s.width > 0) layers.push_back(nn::Dense(s.width, {.activation = nn::tanh}));
    layers.push_back(nn::Dense(10));
    auto model = nn::Sequential(layers);
    model.build({{DType::kFloat32, {1, 28, 28, 1}}});
    model.compile({.optimizer = optim::SGD(0.05, {.momentum = 0.9}),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
    const auto digits = data::synthetic_digits(72);
    const auto train = (s.shuffle ? digits.shuffle(72) : digits).batch(s.batch);
    std::printf("replicas=%d\n", strategy.num_replicas_in_sync());
    report(model, s.loop == "fit" ? fit(s, model, train, harmed)
                                  : loop(s, strategy, model, train, harmed));
    if (harmed && s.at == "end") come_to_harm(s);
  });
}
