#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <set>

#include "core/base/format_number.h"
#include "core/distribute/workers.h"
#include "core/train/callbacks/divergence.h"
#include "core/train/callbacks/folder.h"
#include "core/train/callbacks/monitor.h"
#include "core/train/callbacks/path_pattern.h"
#include "core/train/callbacks/save_interval.h"
#include "core/train/callbacks/writes.h"

namespace cohort::callbacks {
namespace {

bool saves_after_batches(const ModelCheckpointOptions& options) {
  return options.save_freq || options.save_interval;
}

class ModelCheckpointCallback : public Callback {
 public:
  ModelCheckpointCallback(std::string path, const ModelCheckpointOptions& options)
      : path_(std::move(path)),
        options_(options),
        monitor_(options.monitor, options.mode, 0, options.initial_value_threshold),
        interval_(kName, options.save_interval),
        guard_(kName),
        writes_(kName) {}

  void on_train_begin(Training& training) override {
    interval_.begin(training);
    guard_.begin();
    writes_.begin();
    require_place(training);
    std::set<std::string> needed = names_in(path_);
    if (options_.save_best_only) {
      monitor_.begin(training, kName);
      needed.insert(options_.monitor);
    }
    for (const std::string& result : needed) warn_if_missing(training, kName, result);
  }
  void on_batch_end(Training& training) override {
    const bool is_due = options_.save_freq && ++batches_ % *options_.save_freq == 0;
    if (is_due || interval_.is_over(training)) save(training, training.logs());
  }
  void on_epoch_end(Training& training, Logs& logs) override {
    if (!saves_after_batches(options_)) save(training, logs);
    training.add_failed_saves(logs);
  }
  void on_train_end(Training& training) override { writes_.end(training); }

  // Without the path, which may be another one on each worker.
  std::string state_name() const override {
    return options_.save_best_only ? str(kName, " of the best ", options_.monitor) : kName;
  }
  CallbackState state() const override {
    CallbackState state = monitor_.state();
    state.merge(writes_.state());
    state[kBatches] = Tensor::scalar(batches_);
    std::vector<Tensor> written, values;
    for (const File& file : written_) {
      written.push_back(tensor_of(file.path));
      values.push_back(Tensor::scalar(file.value));
    }
    add_list(state, kWritten, written);
    if (options_.save_best_only) add_list(state, kValues, values);
    return state;
  }
  void restore(const CallbackState& state) override {
    monitor_.restore(state);
    writes_.restore(state);
    batches_ = integer_in(state, kBatches).value_or(0);
    written_.clear();
    // What has no value was the best when it was written, as older backups have it.
    const double best = monitor_.best().value_or(0);
    const std::vector<Tensor> paths = list_in(state, kWritten), values = list_in(state, kValues);
    for (size_t i = 0; i < paths.size(); ++i) {
      const std::string path = text_of(paths[i]);
      if (is_own(path)) written_.push_back({path, i < values.size() ? values[i].item() : best});
    }
  }

 private:
  static constexpr const char* kName = "ModelCheckpoint";
  static constexpr const char* kBatches = "batches";
  static constexpr const char* kWritten = "written";
  static constexpr const char* kValues = "values";

  struct File {
    std::string path;
    double value;  // of what is monitored; 0 where the newest are kept
  };

  // Whether the path names a result of validation, which this epoch has not had.
  bool lacks_validation(const Training& training, const Logs& logs) const {
    return names_validation(path_) && training.options().validation_data &&
           !logs.contains(str(kValidationPrefix, "loss"));
  }

  void save(Training& training, const Logs& logs) {
    interval_.begin(training);
    if (lacks_validation(training, logs)) return;
    std::optional<double> value;
    if (options_.save_best_only) {
      value = monitor_.find(training, logs);
      if (!value) return;
    }
    const std::string path = path_for(training, logs);
    if (value && !is_worth_saving(training, *value, path)) return;
    const Model& model = training.model();
    const auto snapshot = guard_.accept(training, [&] {
      return Snapshot(options_.save_weights_only ? model.variables() : model.checkpoint_variables(),
                      metadata_of(training, logs), model.strategy().workers());
    });
    if (!snapshot || !writes_.record_save(training, path, snapshot->try_save(path))) return;
    if (value) monitor_.improves(*value);
    if (model.strategy().is_chief()) forget_others({path, value.value_or(0)});
  }

  void require_place(Training& training) const {
    if (path_.find('{') == std::string::npos)
      require_file_of_chief(training, kName, path_);
    else
      require_folder_of_chief(training, kName, known_folder());
  }

  // The folder of all files, as far as it has no fields.
  std::filesystem::path known_folder() const {
    auto folder = std::filesystem::path(path_).parent_path();
    while (folder.string().find('{') != std::string::npos) folder = folder.parent_path();
    return folder;
  }

  // Whether a file is where those of this run are. Where a folder was copied, with its backup, that
  // tells of files of another run; and one that somebody has made, of any file.
  bool is_own(const std::filesystem::path& file) const {
    const auto place = file.lexically_relative(known_folder());
    return !place.empty() &&
           std::none_of(place.begin(), place.end(), [](const auto& part) { return part == ".."; });
  }

  static Logs with_place(const Training& training, Logs values) {
    values["epoch"] = static_cast<double>(training.epoch() + 1);
    values["batch"] = static_cast<double>(training.step());
    return values;
  }
  std::string path_for(const Training& training, const Logs& logs) const {
    return fill_pattern(kName, path_, with_place(training, logs));
  }
  static Metadata metadata_of(const Training& training, const Logs& logs) {
    constexpr int kDigits = 9;
    Metadata metadata;
    for (const auto& [name, value] : with_place(training, logs))
      metadata[name] = format_number(value, std::chars_format::general, kDigits);
    return metadata;
  }

  // The chief knows what it has written, to paths that others need not have.
  bool is_worth_saving(Training& training, double value, const std::string& path) const {
    if (options_.keep == 0) return monitor_.is_better(value);
    const auto decide = [&] { return std::string(is_among_best(value, path) ? "yes" : "no"); };
    return from_chief(training.model().strategy().workers(),
                      "whether ModelCheckpoint has a better one", decide) == "yes";
  }

  bool is_among_best(double value, const std::string& path) const {
    const auto& threshold = options_.initial_value_threshold;
    if (std::isnan(value) || (threshold && !monitor_.beats(value, *threshold))) return false;
    const auto same = std::ranges::find(written_, path, &File::path);
    if (same != written_.end()) return monitor_.beats(value, same->value);
    return std::ssize(written_) < options_.keep || monitor_.beats(value, written_.front().value);
  }

  void forget_others(const File& newest) {
    if (options_.keep == 0) return;
    std::erase_if(written_, [&](const File& file) { return file.path == newest.path; });
    const auto is_better = [&](const File& file) {
      return monitor_.beats(file.value, newest.value);
    };
    written_.insert(std::ranges::find_if(written_, is_better), newest);
    while (std::ssize(written_) > options_.keep) {
      std::error_code gone_already;
      std::filesystem::remove(written_.front().path, gone_already);
      written_.pop_front();
    }
  }

  std::string path_;
  ModelCheckpointOptions options_;
  Monitor monitor_;
  SaveInterval interval_;
  SaveGuard guard_;
  Writes writes_;
  int64_t batches_ = 0;
  std::deque<File> written_;  // what is to be deleted some day: the first first
};

}  // namespace

CallbackPtr ModelCheckpoint(std::string path, const ModelCheckpointOptions& options) {
  if (options.save_freq && *options.save_freq < 1)
    invalid("ModelCheckpoint: save_freq must be at least 1, got ", *options.save_freq);
  const std::string_view option = options.save_freq ? "save_freq" : "save_interval";
  if (saves_after_batches(options) && options.save_best_only &&
      options.monitor.starts_with(kValidationPrefix))
    invalid("ModelCheckpoint: monitor \"", options.monitor, "\" is known after an epoch only, and ",
            option, " saves after batches; monitor a result of training, or leave ", option,
            " out");
  if (saves_after_batches(options) && names_validation(path))
    invalid("ModelCheckpoint: ", path,
            ": results of validation are known after an epoch only, and ", option,
            " saves after batches");
  if (options.keep < 0) invalid("ModelCheckpoint: keep must not be negative, got ", options.keep);
  require_file_name("ModelCheckpoint", path);
  require_pattern("ModelCheckpoint", path);
  return std::make_shared<ModelCheckpointCallback>(std::move(path), options);
}

}  // namespace cohort::callbacks
