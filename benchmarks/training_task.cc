#include "benchmarks/training_task.h"

#include <memory>
#include <string_view>
#include <thread>
#include <unistd.h>

#include "benchmarks/task_process.h"
#include "cohort.h"
#include "core/base/crc32c.h"

namespace cohort::benchmarks {
namespace {

constexpr char kMark[] = "--trains";
constexpr int64_t kRows = 480, kBatch = 48;

TrainingTask parse(int argc, char** argv) {
  Flags flags(argc, argv, "A worker of a job that is to be disturbed.");
  TrainingTask task;
  flags.boolean("trains", true, "marks such a worker");
  task.steps = flags.integer("steps", 1, "to make altogether", {.min = 1});
  task.pace = std::chrono::milliseconds(
      flags.integer("pace_ms", 0, "that the computation of a step takes", {.min = 0}));
  task.backup_folder = flags.text("backup", "", "folder of backups");
  task.save_freq = flags.integer("save_freq", 1, "steps between backups", {.min = 1});
  flags.finish();
  return task;
}

// Says what happens, and takes its time.
class Diary : public Callback {
 public:
  explicit Diary(std::chrono::milliseconds pace) : pace_(pace) {}

  void on_batch_begin(Training& training) override {
    if (is_chief(training)) say(str("began ", training.step()));
    std::this_thread::sleep_for(pace_);
  }
  void on_batch_end(Training& training) override {
    if (is_chief(training)) say(str("made ", training.step() - 1));
  }
  void on_train_end(Training& /*training*/) override { say("saving"); }

 private:
  static bool is_chief(Training& training) { return training.model().strategy().is_chief(); }

  const std::chrono::milliseconds pace_;
};

uint32_t check_of(const Model& model) {
  uint32_t check = 0;
  for (const auto& variable : model.variables()) {
    const Tensor value = variable->value();
    check = crc32c({static_cast<const char*>(value.raw()), value.bytes()}, check);
  }
  return check;
}

void train(const TrainingTask& task) {
  say(str("id ", getpid()));
  // cohort-run asks those to end who are about to say whom they miss.
  const CatchTermination until_the_end;
  set_global_seed(1);
  set_logical_cpus(1, 1);
  MultiWorkerMirroredStrategy strategy;
  const auto scope = strategy.scope();
  Model model =
      nn::Sequential({nn::Flatten(), nn::Dense(32, {.activation = nn::relu}), nn::Dense(10)});
  model.compile({.optimizer = optim::SGD(0.05, {.momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  FitOptions options{.steps_per_epoch = task.steps,
                     .callbacks = {std::make_shared<Diary>(task.pace)},
                     .verbose = Verbose::kSilent};
  if (!task.backup_folder.empty())
    options.callbacks.push_back(
        callbacks::BackupAndRestore(task.backup_folder, {.save_freq = task.save_freq}));
  try {
    model.fit(data::synthetic_digits(kRows).shuffle(kRows).batch(kBatch), options);
  } catch (const Error& error) {
    say(str("failed ", error.what()));
    throw;
  }
  say(str("weights ", check_of(model)));
}

}  // namespace

std::vector<std::string> arguments_of(const TrainingTask& task) {
  return {kMark, str("--steps=", task.steps), str("--pace_ms=", task.pace.count()),
          "--backup=" + task.backup_folder, str("--save_freq=", task.save_freq)};
}

bool is_training_task(int argc, char** argv) {
  return argc > 1 && std::string_view(argv[1]) == kMark;
}

void run_training_task(int argc, char** argv) { train(parse(argc, argv)); }

}  // namespace cohort::benchmarks
