#include <functional>
#include <optional>

#include "core/train/callbacks.h"
#include "core/train/callbacks/folder.h"
#include "core/train/callbacks/writes.h"
#include "core/train/event_file.h"
#include "core/train/training.h"
#include "core/train/try_write.h"

namespace cohort::callbacks {
namespace {

std::map<std::string, double> numbers_of(const StepShares& shares) {
  std::map<std::string, double> numbers = {{"step_ms", 1e3 * shares.seconds},
                                           {"compute_share", shares.compute},
                                           {"input_share", shares.input}};
  if (shares.communication) numbers["communication_share"] = *shares.communication;
  if (shares.for_worker.size() > 1) numbers["late_workers_share"] = shares.for_workers();
  return numbers;
}

class TensorBoardCallback : public Callback {
 public:
  TensorBoardCallback(std::string directory, const TensorBoardOptions& options)
      : directory_(std::move(directory)), options_(options), writes_(kName) {}

  void on_train_begin(Training& training) override {
    writes_.begin();
    if (training.model().strategy().is_chief()) require_folder(kName, directory_);
  }

  void on_batch_end(Training& training) override {
    const int64_t step = training.total_steps();
    if (!options_.update_freq || step % *options_.update_freq != 0) return;
    if (!training.model().strategy().is_chief()) return;
    std::map<std::string, double> values;
    for (const auto& [name, value] : training.logs()) values["batch_" + name] = value;
    write(training, [&] { train().write_scalars(step, values); });
  }

  void on_epoch_end(Training& training, Logs& logs) override {
    if (!training.model().strategy().is_chief()) return;
    std::map<std::string, double> trained, validated;
    for (const auto& [name, value] : logs) {
      if (name.starts_with(kValidationPrefix))
        validated["epoch_" + name.substr(kValidationPrefix.size())] = value;
      else
        trained["epoch_" + name] = value;
    }
    for (const auto& [name, value] : numbers_of(training.step_shares()))
      trained.try_emplace("epoch_" + name, value);
    trained.try_emplace("epoch_learning_rate", training.model().optimizer().learning_rate());
    std::map<std::string, Histogram> histograms;
    for (const auto& [name, counts] : training.report().histograms)
      histograms["epoch_" + name] = counts;
    const int64_t epoch = training.epoch();
    write(training, [&] {
      train().write_scalars(epoch, trained);
      if (!histograms.empty()) train().write_histograms(epoch, histograms);
      if (!validated.empty()) validation().write_scalars(epoch, validated);
    });
  }

  void on_train_end(Training& training) override { writes_.end(training); }

 private:
  static constexpr const char* kName = "TensorBoard";

  void write(Training& training, const std::function<void()>& events) {
    writes_.record(training, directory_, try_write(events));
  }

  EventFile& train() { return train_ ? *train_ : train_.emplace(directory_ + "/train"); }
  EventFile& validation() {
    return validation_ ? *validation_ : validation_.emplace(directory_ + "/validation");
  }

  std::string directory_;
  TensorBoardOptions options_;
  Writes writes_;
  std::optional<EventFile> train_, validation_;
};

}  // namespace

CallbackPtr TensorBoard(std::string directory, const TensorBoardOptions& options) {
  if (options.update_freq && *options.update_freq < 1)
    invalid("TensorBoard: update_freq must be at least 1, got ", *options.update_freq);
  require_directory_name("TensorBoard", directory);
  return std::make_shared<TensorBoardCallback>(std::move(directory), options);
}

}  // namespace cohort::callbacks
