#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "core/base/lock_file.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/base/system_error.h"
#include "core/train/callbacks.h"
#include "core/train/callbacks/divergence.h"
#include "core/train/callbacks/folder.h"
#include "core/train/callbacks/save_interval.h"
#include "core/train/callbacks/writes.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

constexpr double kLongestGrace = 86'400;  // a day

// For how long at most network file systems keep the locks of a host that was lost.
constexpr std::chrono::seconds kLongestLease(120);

class BackupAndRestoreCallback : public Callback {
 public:
  BackupAndRestoreCallback(const std::filesystem::path& folder,
                           const BackupAndRestoreOptions& options)
      : path_(folder / "backup.safetensors"),
        previous_(folder / "backup.safetensors.previous"),
        next_(folder / "backup.safetensors.next"),
        lock_(folder / "backup.lock"),
        options_(options),
        interval_(kName, options.save_interval),
        guard_(kName),
        writes_(kName) {}

  bool acts_last() const override { return true; }

  void on_train_begin(Training& training) override {
    interval_.begin(training);
    guard_.begin();
    writes_.begin();
    saved_in_grace_.reset();
    require_folder_of_chief(training, kName, path_.parent_path());
    // The same request ends parameter servers soon.
    if (options_.grace_seconds > 0 && !training.model().strategy().input_context().independent)
      training.set_grace(std::chrono::duration<double>(options_.grace_seconds));
    // Each of them has a place of its own in its data, and the variables are those of all.
    if (training.leaves_to_chief()) return;
    const auto find = [&] {
      take_folder(training);
      put_in_place();  // what a process that was killed has written
      return std::string(is_there(path_) ? "newest" : is_there(previous_) ? "previous" : "none");
    };
    const std::string found =
        from_chief(training.model().strategy().workers(), "whether there is a backup", find);
    if (found == "none") return;
    if (found == "newest")
      restore_either(training);
    else
      restore_previous(training);
    writes_.record(training, path_.string(), std::nullopt);
  }

  void on_batch_end(Training& training) override {
    const bool is_due = options_.save_freq && training.step() % *options_.save_freq == 0;
    if (training.in_grace() && !saved_in_grace_) {
      saved_in_grace_ = training.total_steps();
      save_if_possible(training);
    } else if (is_due || interval_.is_over(training)) {
      save(training);
    }
  }
  void on_epoch_end(Training& training, Logs& logs) override {
    if (!training.stopping()) save(training);
    training.add_failed_saves(logs);
  }
  void on_train_end(Training& training) override {
    if (training.interrupted()) {
      if (saved_in_grace_ != training.total_steps() || writes_.refusal()) save_at_last(training);
    } else if (is_beyond_the_end(training)) {
      if (training.model().strategy().is_chief() && is_there(path_))
        print_notice(str("warning: the backup ", path_.string(), " is of epoch ",
                         training.epoch() + (training.step() > 0 ? 1 : 0),
                         ", beyond the last one asked for, ", training.options().epochs,
                         ": nothing is trained, and it stays\n"));
    } else if (!options_.delete_checkpoint) {
      writes_.end(training);
    } else if (!has_diverged_at_last(training)) {
      remove(training);
    }
  }

 private:
  static constexpr const char* kName = "BackupAndRestore";

  // For this job alone. Where another that uses it ends in time, that is waited for: the one before
  // this one, or one whose host was lost.
  void take_folder(Training& training) const {
    const std::string folder = path_.parent_path().string();
    const std::string taken = str(kName, ": another job keeps its backups in ", folder,
                                  ", or has not ended yet: each needs a folder of its own");
    const auto end = std::chrono::steady_clock::now() + kLongestLease;
    for (bool is_told = false;; is_told = true) {
      try {
        auto lock = std::make_shared<const LockFile>(lock_.string(), taken);
        if (!lock->is_exclusive()) warn_of_others(folder, "its file system has no locks");
        return training.keep(std::move(lock));
      } catch (const Error& error) {
        if (error.code() != Code::kFailedPrecondition)
          return warn_of_others(folder, error.message());
        if (interrupted()) fail(Code::kCancelled, "fit: interrupted before it began");
        if (std::chrono::steady_clock::now() >= end) throw;
        if (!is_told)
          print_notice(str("warning: ", taken, "; waiting for its end for up to ",
                           kLongestLease.count(), " s\n"));
      }
    }
  }

  static void warn_of_others(const std::string& folder, const std::string& why) {
    print_notice(str("warning: ", kName, ": another job that keeps its backups in ", folder,
                     " would not be noticed: ", why, '\n'));
  }

  // Whether what was restored is more than was asked for, so that somebody may still want to go on.
  static bool is_beyond_the_end(const Training& training) {
    const int64_t last = training.options().epochs;
    return training.epoch() > last || (training.epoch() == last && training.step() > 0);
  }

  // What is there may be of use then. An epoch that a callback has stopped was not saved, so that
  // nobody has looked.
  bool has_diverged_at_last(Training& training) {
    const Model& model = training.model();
    const auto take = [&] {
      return Snapshot(model.trainable_variables(), {}, model.strategy().workers());
    };
    return guard_.rejected() || (training.stopping() && !guard_.accept(training, take));
  }

  // What a worker throws when training ends makes fit() fail on all, which is started again then.
  void remove(Training& training) {
    const Strategy& strategy = training.model().strategy();
    const auto all = strategy.workers().exchange("whether training has ended as planned",
                                                 training.fails_at_end() ? "no" : "yes");
    if (!strategy.is_chief()) return;
    if (std::ranges::count(all, "no") > 0)
      return print_notice(str("warning: backups in ", path_.parent_path().string(),
                              " stay, since other files could not be written\n"));
    for (const auto& path : {path_, previous_, next_}) {
      std::error_code error;
      std::filesystem::remove(path, error);
      if (error)
        print_notice(str("warning: ", kName, ": cannot remove ", path.string(),
                         ", from which another job there would go on: ", error.message(), '\n'));
    }
  }

  // Of a file that this class has written, an unknown dtype is damage as well, and so is a disk at
  // fault (EIO) below it.
  static bool is_damage(const Error& error) {
    return error.code() == Code::kDataLoss || error.code() == Code::kUnimplemented ||
           error.code() == Code::kUnknown;
  }

  // Every worker gets the same error, if there is one.
  void restore_either(Training& training) {
    const Strategy& strategy = training.model().strategy();
    try {
      return training.restore(path_.string());
    } catch (const Error& error) {
      const auto find = [&] { return std::string(is_there(previous_) ? "yes" : "no"); };
      if (!is_damage(error) ||
          from_chief(training.model().strategy().workers(), "an older backup", find) == "no")
        throw;
      if (strategy.is_chief())
        print_notice(
            str("warning: the newest backup is of no use, training goes on from the one "
                "before, ",
                previous_.string(), ": ", error.message(), "\n"));
    }
    restore_previous(training);
  }

  void restore_previous(Training& training) {
    training.restore(previous_.string());
    // So that the next backup is not written over the only good one.
    from_chief(training.model().strategy().workers(), "the place of the older backup", [&] {
      move(previous_, path_);
      return std::string();
    });
  }

  // Whoever starts the job again on account of an interrupt relies on what was saved.
  void save_at_last(Training& training) {
    if (!save_if_possible(training))
      throw writes_.refusal()->with_context("fit: interrupted, and not saved");
  }

  // As save(). An interrupt stays one where the place in the data cannot be saved.
  bool save_if_possible(Training& training) {
    try {
      return save(training);
    } catch (const Error& error) {
      if (error.code() != Code::kFailedPrecondition) throw;
      if (training.model().strategy().is_chief())
        print_notice(str(
            "warning: BackupAndRestore leaves the last backup as it is: ", error.message(), '\n'));
      return true;
    }
  }

  // What cannot be looked for may be there all the same, and is an error.
  static bool is_there(const std::filesystem::path& path) {
    std::error_code error;
    const bool found = std::filesystem::exists(path, error);
    if (error)
      fail(code_of_errno(error.value()), kName, ": cannot look for ", path.string(), ": ",
           error.message());
    return found;
  }

  // Where there is one.
  static void move(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::error_code error;
    std::filesystem::rename(from, to, error);
    if (error && error != std::errc::no_such_file_or_directory)
      fail(code_of_errno(error.value()), kName, ": cannot rename ", from.string(), " to ",
           to.filename().string(), ": ", error.message());
  }

  // Whether the system has not refused it. Until the new one is whole, those of before stay.
  bool save(Training& training) {
    interval_.begin(training);
    const auto backup = guard_.accept(training, [&] { return training.backup(); });
    if (!backup) return true;
    const std::optional<Error> refusal = backup->try_save(next_.string(), [&] { put_in_place(); });
    return writes_.record_save(training, path_.string(), refusal);
  }

  // Makes the next backup, where there is one, the newest, and that the previous one. Wherever this
  // ends, two of them are there, and another call does the rest.
  void put_in_place() const {
    std::error_code unknown;
    if (!std::filesystem::exists(next_, unknown)) return;
    move(path_, previous_);
    move(next_, path_);
  }

  const std::filesystem::path path_, previous_, next_, lock_;
  BackupAndRestoreOptions options_;
  SaveInterval interval_;
  SaveGuard guard_;
  Writes writes_;
  std::optional<int64_t> saved_in_grace_;  // after how many steps it first did
};

}  // namespace

CallbackPtr BackupAndRestore(std::string directory, const BackupAndRestoreOptions& options) {
  if (options.save_freq && *options.save_freq < 1)
    invalid("BackupAndRestore: save_freq must be at least 1, got ", *options.save_freq);
  if (!(options.grace_seconds >= 0 && options.grace_seconds <= kLongestGrace))
    invalid("BackupAndRestore: grace_seconds must be from 0 to ", kLongestGrace, ", got ",
            options.grace_seconds);
  require_directory_name("BackupAndRestore", directory);
  return std::make_shared<BackupAndRestoreCallback>(std::filesystem::path(std::move(directory)),
                                                    options);
}

}  // namespace cohort::callbacks
