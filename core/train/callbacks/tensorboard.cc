#include <optional>

#include "core/train/callbacks.h"
#include "core/train/callbacks/folder.h"
#include "core/train/event_file.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

class TensorBoardCallback : public Callback {
 public:
  TensorBoardCallback(std::string directory, const TensorBoardOptions& options)
      : directory_(std::move(directory)), options_(options) {}

  void on_train_begin(Training& training) override {
    if (training.model().strategy().is_chief()) require_folder("TensorBoard", directory_);
  }

  void on_batch_end(Training& training) override {
    const int64_t step = training.total_steps();
    if (!options_.update_freq || step % *options_.update_freq != 0) return;
    if (!training.model().strategy().is_chief()) return;
    std::map<std::string, double> values;
    for (const auto& [name, value] : training.logs()) values["batch_" + name] = value;
    train().write_scalars(step, values);
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
    train().write_scalars(training.epoch(), trained);
    std::map<std::string, Histogram> histograms;
    for (const auto& [name, counts] : training.report().histograms)
      histograms["epoch_" + name] = counts;
    if (!histograms.empty()) train().write_histograms(training.epoch(), histograms);
    if (validated.empty()) return;
    if (!validation_) validation_.emplace(directory_ + "/validation");
    validation_->write_scalars(training.epoch(), validated);
  }

 private:
  EventFile& train() { return train_ ? *train_ : train_.emplace(directory_ + "/train"); }

  std::string directory_;
  TensorBoardOptions options_;
  std::optional<EventFile> train_, validation_;
};

}  // namespace

CallbackPtr TensorBoard(std::string directory, const TensorBoardOptions& options) {
  if (options.update_freq && *options.update_freq < 1)
    invalid("TensorBoard: update_freq must be at least 1, got ", *options.update_freq);
  return std::make_shared<TensorBoardCallback>(std::move(directory), options);
}

}  // namespace cohort::callbacks
