#include <cmath>

#include "core/train/callbacks/monitor.h"

namespace cohort::callbacks {
namespace {

class EarlyStoppingCallback : public Callback {
 public:
  explicit EarlyStoppingCallback(const EarlyStoppingOptions& options)
      : options_(options), monitor_(options.monitor, options.mode, options.min_delta) {}

  void on_train_begin(Training& training) override {
    monitor_ = Monitor(options_.monitor, options_.mode, options_.min_delta);
    monitor_.begin(training, "EarlyStopping");
    warn_if_missing(training, "EarlyStopping", options_.monitor);
    waited_ = 0;
    best_weights_.clear();
    weights_.clear();
    for (const auto& variable : training.model().variables())
      weights_.emplace_back(variable->name(), variable->spec());
  }

  void on_epoch_end(Training& training, Logs& logs) override {
    const auto value = monitor_.find(training, logs);
    if (!value || training.epoch() < options_.start_from_epoch) return;
    const bool improves = monitor_.improves(*value);
    waited_ = improves && is_beyond_baseline(*value) ? 0 : waited_ + 1;
    // Those of the first epoch that is watched are the best while no value is a number.
    if (options_.restore_best_weights && !training.leaves_to_chief() &&
        (improves || best_weights_.empty()))
      keep_weights(training.model());
    if (!improves && waited_ >= options_.patience && training.epoch() > 0)
      training.stop(str(options_.monitor, " has not improved", missed_baseline(), " for ", waited_,
                        " epochs"));
  }

  void on_train_end(Training& training) override {
    if (best_weights_.empty() || training.interrupted()) return;
    const Variables variables = training.model().variables();
    for (size_t i = 0; i < variables.size(); ++i) variables[i]->assign(best_weights_[i]);
  }

  std::string state_name() const override { return "EarlyStopping of " + options_.monitor; }
  CallbackState state() const override {
    CallbackState state = monitor_.state();
    state[kWaited] = Tensor::scalar(waited_);
    for (size_t i = 0; i < best_weights_.size(); ++i)
      state[kBestWeights + weights_[i].first] = best_weights_[i];
    return state;
  }
  void restore(const CallbackState& state) override {
    monitor_.restore(state);
    waited_ = integer_in(state, kWaited).value_or(0);
    best_weights_.clear();
    if (!options_.restore_best_weights) return;
    const auto first = state.lower_bound(kBestWeights);
    if (first == state.end() || !first->first.starts_with(kBestWeights)) return;
    for (const auto& [name, spec] : weights_) best_weights_.push_back(weight_in(state, name, spec));
  }

 private:
  static constexpr const char* kWaited = "waited";
  static constexpr const char* kBestWeights = "best_weights/";  // before a variable's name

  void keep_weights(const Model& model) {
    best_weights_.clear();
    for (const auto& variable : model.variables()) best_weights_.push_back(variable->value());
  }

  static Tensor weight_in(const CallbackState& state, const std::string& name,
                          const TensorSpec& spec) {
    const auto found = state.find(kBestWeights + name);
    if (found == state.end()) invalid("the best weights lack ", name, " ", spec);
    if (found->second.spec() != spec)
      invalid(name, " is ", spec, ", among the best weights ", found->second.spec());
    return found->second;
  }

  bool is_beyond_baseline(double value) const {
    return !options_.baseline || monitor_.beats(value, *options_.baseline);
  }

  // What to say where no value has been beyond the baseline.
  std::string missed_baseline() const {
    const auto& best = monitor_.best();
    const bool is_reached = best ? is_beyond_baseline(*best) : !options_.baseline;
    return is_reached ? "" : str(" to beyond the baseline ", *options_.baseline);
  }

  EarlyStoppingOptions options_;
  Monitor monitor_;
  int64_t waited_ = 0;  // epochs since the last improvement to beyond the baseline
  std::vector<std::pair<std::string, TensorSpec>> weights_;  // of the model
  std::vector<Tensor> best_weights_;                         // of these, in order; or none
};

}  // namespace

CallbackPtr EarlyStopping(const EarlyStoppingOptions& options) {
  if (options.patience < 0)
    invalid("EarlyStopping: patience must not be negative, got ", options.patience);
  if (options.baseline && std::isnan(*options.baseline))
    invalid("EarlyStopping: the baseline is NaN");
  return std::make_shared<EarlyStoppingCallback>(options);
}

}  // namespace cohort::callbacks
