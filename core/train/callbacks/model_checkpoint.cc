#include <cmath>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <regex>

#include "core/train/callbacks/divergence.h"
#include "core/train/callbacks/monitor.h"

namespace cohort::callbacks {
namespace {

// "02d" or ".3f" applied to a value; plain where there is no format.
std::string format_value(double value, const std::string& format) {
  const bool integral = format.empty() ? value == std::floor(value) : format.back() == 'd';
  const std::string flags = format.empty() ? "" : format.substr(0, format.size() - 1);
  char text[64];
  if (integral)
    std::snprintf(text, sizeof text, ("%" + flags + "lld").c_str(), std::llround(value));
  else
    std::snprintf(text, sizeof text, ("%" + flags + (format.empty() ? 'g' : format.back())).c_str(),
                  value);
  return text;
}

std::string fill_pattern(const std::string& pattern, const Logs& values) {
  static const std::regex field(R"(\{([^{}:]*)(?::([0-9]?[0-9]?(?:\.[0-9])?[dfeg]))?\})");
  std::string out;
  std::string rest = pattern;
  for (std::smatch match; std::regex_search(rest, match, field); rest = match.suffix()) {
    const auto value = values.find(match[1]);
    if (value == values.end())
      invalid("ModelCheckpoint: ", pattern, ": there is no value \"", match[1].str(), "\"");
    out += match.prefix().str() + format_value(value->second, match[2]);
  }
  return out + rest;
}

class ModelCheckpointCallback : public Callback {
 public:
  ModelCheckpointCallback(std::string path, const ModelCheckpointOptions& options)
      : path_(std::move(path)), options_(options), monitor_(options.monitor, options.mode) {}

  void on_batch_end(Training& training) override {
    if (options_.save_freq && ++batches_ % *options_.save_freq == 0)
      save(training, training.logs());
  }
  void on_epoch_end(Training& training, Logs& logs) override {
    if (!options_.save_freq) save(training, logs);
  }

 private:
  void save(Training& training, const Logs& logs) {
    if (has_diverged(training)) return;
    if (options_.save_best_only) {
      const auto value = monitor_.find(training, logs);
      if (!value || !monitor_.improves(*value)) return;
    }
    Logs values = logs;
    values["epoch"] = static_cast<double>(training.epoch() + 1);
    values["batch"] = static_cast<double>(training.step());
    const std::string path = fill_pattern(path_, values);
    if (options_.save_weights_only)
      training.model().save_weights(path);
    else
      training.model().save_checkpoint(path);
    if (training.model().strategy().is_chief()) forget_old(path);
  }

  void forget_old(const std::string& newest) {
    std::erase(written_, newest);
    written_.push_back(newest);
    while (options_.keep > 0 && std::ssize(written_) > options_.keep) {
      std::error_code gone_already;
      std::filesystem::remove(written_.front(), gone_already);
      written_.pop_front();
    }
  }

  std::string path_;
  ModelCheckpointOptions options_;
  Monitor monitor_;
  int64_t batches_ = 0;
  std::deque<std::string> written_;  // oldest first
};

}  // namespace

CallbackPtr ModelCheckpoint(std::string path, const ModelCheckpointOptions& options) {
  if (options.save_freq && *options.save_freq < 1)
    invalid("ModelCheckpoint: save_freq must be at least 1, got ", *options.save_freq);
  if (options.keep < 0) invalid("ModelCheckpoint: keep must not be negative, got ", options.keep);
  return std::make_shared<ModelCheckpointCallback>(std::move(path), options);
}

}  // namespace cohort::callbacks
