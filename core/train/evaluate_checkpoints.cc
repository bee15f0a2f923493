#include "core/train/evaluate_checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/base/time_limits.h"
#include "core/train/checkpoint.h"
#include "core/train/checkpoint_files.h"
#include "core/train/event_file.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFirstLine(5);

// The updates that a checkpoint has seen, where it says so.
std::optional<int64_t> iterations_of(const Tensors& file) {
  constexpr std::string_view kIterations = "/iterations";
  for (const auto& [name, tensor] : file)
    if (name.ends_with(kIterations) && tensor.num_elements() == 1)
      return tensor.cast(DType::kInt64).values<int64_t>()[0];  // whatever number it is
  return std::nullopt;
}

// Says that there is nothing to evaluate yet, each time after twice as long as before.
class Waiting {
 public:
  explicit Waiting(const std::string& folder) : folder_(folder) {}

  void look() {
    const auto waited = Clock::now() - began_;
    if (waited < next_line_) return;
    next_line_ *= 2;
    std::error_code unknown;
    print_notice(str("evaluate_checkpoints: waiting for a first checkpoint (*.safetensors) in ",
                     folder_, fs::is_directory(folder_, unknown) ? "" : ", which is no folder yet",
                     ", since ", std::chrono::floor<std::chrono::seconds>(waited).count(), " s\n"));
  }

 private:
  const std::string& folder_;
  const Clock::time_point began_ = Clock::now();
  Clock::duration next_line_ = kFirstLine;
};

class Evaluator {
 public:
  Evaluator(Model& model, const data::Dataset& dataset, const EvaluateCheckpointsOptions& options)
      : model_(model), dataset_(dataset), options_(options) {
    if (!options.log_directory.empty()) events_.emplace(options.log_directory);
  }

  // False where the file cannot be read, as one that has gone, or is another one by now.
  bool evaluate(const CheckpointFile& saved) {
    const std::string& path = saved.path;
    if (model_.variables().empty()) model_.evaluate(dataset_, {.steps = 1, .interruptible = false});
    int64_t step = std::ssize(history_.epochs);
    const auto look_for_step = [&step](const Tensors& file) {
      step = iterations_of(file).value_or(step);
      return file;
    };
    try {
      model_.load_weights(path, {.ignore_unexpected = true, .convert = look_for_step});
    } catch (const Error& error) {
      if (error.code() == Code::kInvalidArgument) throw;
      if (error.code() != Code::kNotFound && unreadable_.insert(path).second)
        print_notice(str("warning: evaluate_checkpoints: passed over until it is written again: ",
                         error.message(), '\n'));
      return false;
    }
    unreadable_.erase(path);
    std::error_code gone;
    if (fs::last_write_time(path, gone) != saved.written) return false;
    const Logs logs = model_.evaluate(dataset_, {.steps = options_.steps, .interruptible = false});
    history_.epochs.push_back(step);
    std::map<std::string, double> scalars;
    for (const auto& [name, value] : logs) {
      history_.results[name].push_back(value);
      scalars["evaluation_" + name] = value;
    }
    if (events_) events_->write_scalars(step, scalars);
    if (options_.evaluated) options_.evaluated(path, step, logs);
    return true;
  }

  bool is_enough() const {
    return options_.max_evaluations && std::ssize(history_.epochs) >= *options_.max_evaluations;
  }
  History history() const { return history_; }

 private:
  Model& model_;
  const data::Dataset& dataset_;
  const EvaluateCheckpointsOptions& options_;
  std::optional<EventFile> events_;
  History history_;
  std::set<std::string> unreadable_;  // of which that was said
};

}  // namespace

History evaluate_checkpoints(const std::string& folder, Model& model, const data::Dataset& dataset,
                             const EvaluateCheckpointsOptions& options) {
  if (folder.empty())
    invalid("evaluate_checkpoints: folder is \"\"; give it that of the checkpoints of training");
  if (options.poll.count() < 1)
    invalid("evaluate_checkpoints: poll is ", options.poll.count(), " ms; it has to be 1 or more");
  const CatchTermination catch_termination;
  Evaluator evaluator(model, dataset, options);
  std::set<CheckpointFile> done;
  Waiting waiting(folder);
  auto last_new = Clock::now();
  for (;;) {
    const bool is_last = interrupted();  // asked before the folder is looked at
    for (const CheckpointFile& saved : checkpoint_files(folder)) {
      if (evaluator.is_enough()) return evaluator.history();
      if (!done.insert(saved).second || !evaluator.evaluate(saved)) continue;
      last_new = Clock::now();
    }
    if (done.empty()) waiting.look();
    const bool is_idle =
        options.idle_timeout && Clock::now() - last_new >= clamped(*options.idle_timeout);
    if (is_last || is_idle || evaluator.is_enough()) return evaluator.history();
    std::this_thread::sleep_for(options.poll);
  }
}

}  // namespace cohort
