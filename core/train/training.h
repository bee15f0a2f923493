#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "core/train/feed.h"
#include "core/train/model.h"
#include "core/train/stepper.h"

namespace cohort {

// One call of fit(): its loop, and what its callbacks may ask and do.
class Training {
 public:
  Training(const Model& model, const data::Dataset& dataset, const FitOptions& options);
  History run();

  Model& model() { return model_; }
  const FitOptions& options() const { return options_; }
  int64_t epoch() const { return epoch_; }  // from 0
  int64_t step() const { return step_; }    // batches done in this epoch
  // Batches in an epoch, as far as that is known: always after the first one.
  std::optional<int64_t> steps() const { return steps_; }
  int64_t total_steps() const { return stepper_.step(); }  // the optimizer's count, over all fits
  int64_t examples() const { return totals_.rows; }        // rows seen in this epoch
  double seconds() const;  // since this epoch began, validation apart
  // Loss and metrics of this epoch so far.
  Logs logs() const { return stepper_.logs(totals_); }
  // What the strategy has said about the epoch; for on_epoch_end().
  const StrategyReport& report() const { return report_; }

  // Ends training after the present step (its epoch then has no validation) or after the present
  // epoch.
  void stop(std::string reason) { history_.stop_reason = std::move(reason); }
  bool stopping() const { return !history_.stop_reason.empty(); }
  const std::string& stop_reason() const { return history_.stop_reason; }
  // Whether an interrupt, rather than a callback, is what ends training.
  bool interrupted() const { return interrupted_; }

  // Where training stands, next to the variables: epoch, step, place in the dataset, sums and time
  // so far. restore_position is for on_train_begin(), and its errors begin with `source`, where the
  // text is from; kDataLoss when it is not such a position. With several workers, all call them,
  // and the text is that of all; in the middle of an epoch only equally many can go on, and only
  // with the metrics of before (kFailedPrecondition).
  std::string save_position() const;
  void restore_position(std::string_view position, const std::string& source);

  // A checkpoint of the model that also holds the position and what callbacks keep. Continuing
  // there gives the same bits as never having stopped. Both are for callbacks that act last, and
  // restore() is for on_train_begin(); kDataLoss when the file is not such a backup. Where others
  // train the same variables (InputContext::independent), these are restored only if nobody has
  // trained them since they were made.
  void save(const std::string& path) const;
  void restore(const std::string& path);

 private:
  using Clock = std::chrono::steady_clock;

  // Throws before an epoch is spent what validation would throw after it.
  void check_validation_data() const;
  void run_epoch();
  void resume_data();
  void run_step(const data::DistributedBatch& batch);
  void end_epoch();
  // Adds to `logs`; false when interrupted.
  bool validate(Logs& logs);
  void interrupt();
  // Calls f(prefix, callback) for each callback that keeps something: what the names of its state
  // begin with in a backup, which says whose it is.
  template <typename F>
  void for_each_state(const F& f) const;
  // Calls one hook of all callbacks, in order.
  template <typename... Parameters, typename... Arguments>
  void call(void (Callback::*hook)(Training&, Parameters...), Arguments&... arguments) {
    for (const CallbackPtr& callback : callbacks_) (callback.get()->*hook)(*this, arguments...);
  }

  Model model_;
  FitOptions options_;
  Stepper& stepper_;
  Feed feed_;
  std::vector<CallbackPtr> callbacks_;
  History history_;
  Totals totals_;
  StrategyReport report_;
  int64_t epoch_ = 0, step_ = 0;
  std::optional<int64_t> steps_;
  struct Place {
    std::string position, source;
  };
  std::optional<Place> resume_;  // a place in the dataset to begin the present epoch at
  bool interrupted_ = false;
  Clock::time_point epoch_began_;
  double seconds_before_ = 0;  // that this epoch had taken where it is gone on with
  std::optional<Clock::time_point> epoch_ended_;  // set while the end of an epoch is dealt with
};

}  // namespace cohort
