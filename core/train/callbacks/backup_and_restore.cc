#include <filesystem>
#include <iostream>

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
      : path_(std::filesystem::path(directory) / "backup.safetensors"),
        previous_(std::filesystem::path(directory) / "backup.safetensors.previous"),
        options_(options) {}

  void on_train_begin(Training& training) override {
    const Strategy& strategy = training.model().strategy();
    // Each of them has a place of its own in its data, and the variables are those of all.
    if (strategy.input_context().independent && !strategy.is_chief()) return;
    const auto find = [&] {
      return std::string(exists(path_) ? "newest" : exists(previous_) ? "previous" : "none");
    };
    const std::string found =
        from_chief(training.model().strategy().workers(), "whether there is a backup", find);
    if (found == "none") return;
    const Metadata metadata = found == "newest" ? load_either(training) : load(training, previous_);
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
      for (const auto& path : {path_, previous_}) std::filesystem::remove(path, gone_already);
  }

 private:
  static Metadata load(Training& training, const std::filesystem::path& path) {
    // Where other workers train the same variables, these have moved on since the backup.
    const bool are_trained =
        training.model().strategy().input_context().independent && training.total_steps() > 0;
    return are_trained ? read_safetensors(path.string()).metadata
                       : training.model().load_checkpoint(path.string());
  }

  // Every worker gets the same error, if there is one.
  Metadata load_either(Training& training) {
    const Strategy& strategy = training.model().strategy();
    try {
      return load(training, path_);
    } catch (const Error& error) {
      const auto find = [&] { return std::string(exists(previous_) ? "yes" : "no"); };
      if (error.code() != Code::kDataLoss ||
          from_chief(training.model().strategy().workers(), "an older backup", find) == "no")
        throw;
      if (strategy.is_chief())
        std::cerr << str(
            "warning: the newest backup is of no use, training goes on from the one "
            "before, ",
            previous_.string(), ": ", error.message(), "\n");
    }
    const Metadata metadata = load(training, previous_);
    // So that the next backup is not written over the only good one.
    if (strategy.is_chief()) move(previous_, path_);
    return metadata;
  }

  static void move(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::error_code not_there;
    std::filesystem::rename(from, to, not_there);
  }

  void save(Training& training) {
    diverged_ = has_diverged(training);
    if (diverged_) return;
    // Until the new one is there, this is what restoring finds.
    if (training.model().strategy().is_chief()) move(path_, previous_);
    training.model().save_checkpoint(path_.string(), {{kPositionKey, training.save_position()}});
  }

  const std::filesystem::path path_, previous_;
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
