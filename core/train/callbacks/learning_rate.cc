#include <algorithm>
#include <utility>

#include "core/train/callbacks/monitor.h"

namespace cohort::callbacks {
namespace {

class LearningRateSchedulerCallback : public Callback {
 public:
  explicit LearningRateSchedulerCallback(std::function<double(int64_t, double)> schedule)
      : schedule_(std::move(schedule)) {}

  void on_train_begin(Training&) override { begun_ = -1; }
  void on_epoch_begin(Training& training) override {
    if (training.leaves_to_chief()) return;
    // Where training goes on in an epoch that has had its rate, that was saved with it.
    if (std::exchange(begun_, training.epoch()) == training.epoch()) return;
    const auto& optimizer = training.model().optimizer();
    optimizer.set_learning_rate(schedule_(training.epoch(), optimizer.learning_rate()));
  }
  void on_epoch_end(Training& training, Logs& logs) override {
    logs["learning_rate"] = training.model().optimizer().learning_rate();
  }

  std::string state_name() const override { return "LearningRateScheduler"; }
  CallbackState state() const override { return {{kBegun, Tensor::scalar(begun_)}}; }
  void restore(const CallbackState& state) override {
    begun_ = integer_in(state, kBegun).value_or(-1);
  }

 private:
  static constexpr const char* kBegun = "epoch";

  std::function<double(int64_t, double)> schedule_;
  int64_t begun_ = -1;  // the last epoch whose rate was set
};

class ReduceLROnPlateauCallback : public Callback {
 public:
  explicit ReduceLROnPlateauCallback(const ReduceLROnPlateauOptions& options)
      : options_(options), monitor_(options.monitor, options.mode, options.min_delta) {}

  void on_train_begin(Training& training) override {
    if (training.model().optimizer().options().learning_rate.schedule())
      fail(Code::kFailedPrecondition,
           "ReduceLROnPlateau: the learning rate follows a schedule and cannot be set");
    monitor_ = Monitor(options_.monitor, options_.mode, options_.min_delta);
    monitor_.begin(training, "ReduceLROnPlateau");
    warn_if_missing(training, "ReduceLROnPlateau", options_.monitor);
    waited_ = cooldown_ = 0;
  }

  void on_epoch_end(Training& training, Logs& logs) override {
    const auto& optimizer = training.model().optimizer();
    const double rate = optimizer.learning_rate();
    logs["learning_rate"] = rate;
    if (training.leaves_to_chief()) return;
    const auto value = monitor_.find(training, logs);
    if (!value) return;
    if (cooldown_ > 0) {
      --cooldown_;
      waited_ = 0;
    }
    if (monitor_.improves(*value)) {
      waited_ = 0;
    } else if (cooldown_ > 0) {
      return;
    } else if (++waited_ >= options_.patience && rate > options_.min_lr) {
      optimizer.set_learning_rate(std::max(rate * options_.factor, options_.min_lr));
      cooldown_ = options_.cooldown;
      waited_ = 0;
    }
  }

  std::string state_name() const override { return "ReduceLROnPlateau of " + options_.monitor; }
  CallbackState state() const override {
    CallbackState state = monitor_.state();
    state[kWaited] = Tensor::scalar(waited_);
    state[kCooldown] = Tensor::scalar(cooldown_);
    return state;
  }
  void restore(const CallbackState& state) override {
    monitor_.restore(state);
    waited_ = integer_in(state, kWaited).value_or(0);
    cooldown_ = integer_in(state, kCooldown).value_or(0);
  }

 private:
  static constexpr const char* kWaited = "waited";
  static constexpr const char* kCooldown = "cooldown";

  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
  int64_t waited_ = 0;    // epochs since the last improvement or reduction
  int64_t cooldown_ = 0;  // epochs still to be passed over
};

}  // namespace

CallbackPtr LearningRateScheduler(
    std::function<double(int64_t epoch, double learning_rate)> schedule) {
  if (!schedule) invalid("LearningRateScheduler: the schedule is empty");
  return std::make_shared<LearningRateSchedulerCallback>(std::move(schedule));
}

CallbackPtr ReduceLROnPlateau(const ReduceLROnPlateauOptions& options) {
  if (!(options.factor > 0 && options.factor < 1)) {
    invalid("ReduceLROnPlateau: factor must be in (0, 1), got ", options.factor);
  }
  if (options.patience < 0 || options.cooldown < 0) {
    invalid("ReduceLROnPlateau: patience and cooldown must not be negative, got ", options.patience,
            " and ", options.cooldown);
  }
  return std::make_shared<ReduceLROnPlateauCallback>(options);
}

}  // namespace cohort::callbacks
