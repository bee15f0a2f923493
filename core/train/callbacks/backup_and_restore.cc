#include <filesystem>

#include "core/train/callbacks.h"
#include "core/train/callbacks/divergence.h"
#include "core/train/safetensors.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

constexpr const char* kPositionKey = "training";

class BackupAndRestoreCallback : public Callback {
 public:
  BackupAndRestoreCallback(const std::string& directory, const BackupAndRestoreOptions& options)
      : path_(std::filesystem::path(directory) / "backup.safetensors"), options_(options) {}

  void on_train_begin(Training& training) override {
    const Strategy& strategy = training.model().strategy();
    // Each of them has a place of its own in its data, and the variables are those of all.
    if (strategy.input_context().independent && !strategy.is_chief()) return;
    const auto is_there = [&] {
      return std::string(std::filesystem::exists(path_) ? "yes" : "no");
    };
    if (from_chief(training.model().strategy().workers(), "whether there is a backup", is_there) ==
        "no")
      return;
    // Where other workers train the same variables, these have moved on since the backup.
    const bool are_trained = strategy.input_context().independent && training.total_steps() > 0;
    const Metadata metadata = are_trained ? read_safetensors(path_.string()).metadata
                                          : training.model().load_checkpoint(path_.string());
    const auto position = metadata.find(kPositionKey);
    if (position == metadata.end())
      fail(Code::kDataLoss, path_.string(), " is a checkpoint but not a backup");
    training.restore_position(position->second);
  }

  void on_batch_end(Training& training) override {
    if (options_.save_freq && training.step() % *options_.save_freq == 0) save(training);
  }
  void on_epoch_end(Training& training, Logs&) override {
    if (!training.stopping()) save(training);
  }
  void on_train_end(Training& training) override {
    std::error_code gone_already;
    if (training.interrupted())
      save(training);
    else if (diverged_)
      return;  // what is there may be of use
    else if (options_.delete_checkpoint && training.model().strategy().is_chief())
      std::filesystem::remove(path_, gone_already);
  }

 private:
  void save(Training& training) {
    diverged_ = has_diverged(training);
    if (diverged_) return;
    training.model().save_checkpoint(path_.string(), {{kPositionKey, training.save_position()}});
  }

  std::filesystem::path path_;
  BackupAndRestoreOptions options_;
  bool diverged_ = false;  // when it would have saved the last time
};

}  // namespace

CallbackPtr BackupAndRestore(std::string directory, const BackupAndRestoreOptions& options) {
  if (options.save_freq && *options.save_freq < 1)
    invalid("BackupAndRestore: save_freq must be at least 1, got ", *options.save_freq);
  return std::make_shared<BackupAndRestoreCallback>(directory, options);
}

}  // namespace cohort::callbacks
