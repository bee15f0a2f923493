#include "core/train/callbacks/monitor.h"

namespace cohort::callbacks {
namespace {

class EarlyStoppingCallback : public Callback {
 public:
  explicit EarlyStoppingCallback(const EarlyStoppingOptions& options)
      : options_(options), monitor_(options.monitor, options.mode, options.min_delta) {}

  void on_train_begin(Training&) override {
    monitor_ = Monitor(options_.monitor, options_.mode, options_.min_delta);
    waited_ = 0;
    best_weights_.clear();
  }

  void on_epoch_end(Training& training, Logs& logs) override {
    const auto value = monitor_.find(training, logs);
    if (!value || training.epoch() < options_.start_from_epoch) return;
    if (monitor_.improves(*value)) {
      waited_ = 0;
      if (options_.restore_best_weights) keep_weights(training.model());
    } else if (++waited_ >= options_.patience) {
      training.stop(str(options_.monitor, " has not improved for ", waited_, " epochs"));
    }
  }

  void on_train_end(Training& training) override {
    if (best_weights_.empty() || training.interrupted()) return;
    const Variables variables = training.model().variables();
    for (size_t i = 0; i < variables.size(); ++i) variables[i]->assign(best_weights_[i]);
  }

 private:
  void keep_weights(const Model& model) {
    best_weights_.clear();
    for (const auto& variable : model.variables()) best_weights_.push_back(variable->value());
  }

  EarlyStoppingOptions options_;
  Monitor monitor_;
  int64_t waited_ = 0;  // epochs since the last improvement
  std::vector<Tensor> best_weights_;
};

}  // namespace

CallbackPtr EarlyStopping(const EarlyStoppingOptions& options) {
  return std::make_shared<EarlyStoppingCallback>(options);
}

}  // namespace cohort::callbacks
