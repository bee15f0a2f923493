#include <algorithm>

#include "core/train/callbacks/monitor.h"

namespace cohort::callbacks {
namespace {

class EarlyStoppingCallback : public Callback {
 public:
  explicit EarlyStoppingCallback(const EarlyStoppingOptions& options)
      : options_(options), monitor_(options.monitor, options.mode, options.min_delta) {}

  void on_train_begin(Training& training) override {
    monitor_ = Monitor(options_.monitor, options_.mode, options_.min_delta);
    monitor_.warn_if_missing(training, "EarlyStopping");
    waited_ = 0;
    best_weights_.clear();
  }

  void on_epoch_end(Training& training, Logs& logs) override {
    const auto value = monitor_.find(training, logs);
    if (!value || training.epoch() < options_.start_from_epoch) return;
    if (monitor_.improves(*value)) {
      if (!options_.baseline || monitor_.beats(*value, *options_.baseline))
        waited_ = 0;
      else
        ++waited_;
      if (options_.restore_best_weights) keep_weights(training.model());
    } else if (++waited_ >= options_.patience) {
      training.stop(str(options_.monitor, " has not improved for ", waited_, " epochs"));
    }
  }

  void on_train_end(Training& training) override {
    if (best_weights_.empty() || training.interrupted()) return;
    const Variables variables = training.model().variables();
    for (size_t i = 0; i < std::min(variables.size(), best_weights_.size()); ++i)
      variables[i]->assign(best_weights_[i]);
  }

  std::string state_name() const override { return "EarlyStopping of " + options_.monitor; }
  CallbackState state() const override {
    CallbackState state = monitor_.state();
    state[kWaited] = Tensor::scalar(waited_);
    add_list(state, kBestWeights, best_weights_);
    return state;
  }
  void restore(const CallbackState& state) override {
    monitor_.restore(state);
    waited_ = static_cast<int64_t>(number_in(state, kWaited).value_or(0));
    best_weights_ = list_in(state, kBestWeights);
  }

 private:
  static constexpr const char* kWaited = "waited";
  static constexpr const char* kBestWeights = "best_weights";

  void keep_weights(const Model& model) {
    best_weights_.clear();
    for (const auto& variable : model.variables()) best_weights_.push_back(variable->value());
  }

  EarlyStoppingOptions options_;
  Monitor monitor_;
  int64_t waited_ = 0;  // epochs since the last improvement to beyond the baseline
  std::vector<Tensor> best_weights_;
};

}  // namespace

CallbackPtr EarlyStopping(const EarlyStoppingOptions& options) {
  return std::make_shared<EarlyStoppingCallback>(options);
}

}  // namespace cohort::callbacks
