#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/train/bottleneck_watch.h"
#include "core/train/feed.h"
#include "core/train/model.h"
#include "core/train/step_meter.h"
#include "core/train/stepper.h"

namespace cohort {

// One call of fit(): its loop, and what its callbacks may ask and do.
class Training {
 public:
  Training(const Model& model, const data::Dataset& dataset, const FitOptions& options);
  History run();

  Model& model() { return model_; }
  // Whether what all workers share, as the learning rate, is not this one's to set: where each acts
  // on its own (InputContext::independent), and another one is the chief.
  bool leaves_to_chief() const;
  const FitOptions& options() const { return options_; }
  int64_t epoch() const { return epoch_; }  // from 0
  int64_t step() const { return step_; }    // batches done in this epoch
  // Batches in an epoch, as far as that is known: always after the first one.
  std::optional<int64_t> steps() const { return steps_; }
  int64_t total_steps() const { return stepper_.step(); }  // the optimizer's count, over all fits
  int64_t examples() const { return totals_.rows; }        // rows seen in this epoch
  double seconds() const;  // since this epoch began, validation apart
  // Since fit() began, by the chief's clock (Workers::chief_time), the same on all workers that
  // train in step: for callbacks that stop or save by the time. At the end of a batch it is, with
  // several workers, that of its beginning.
  std::chrono::duration<double> elapsed() const;
  // Whose results epochs have besides the loss.
  const std::vector<metrics::Metric>& metrics() const { return stepper_.metrics(); }
  // Loss and metrics of this epoch so far.
  Logs logs() const { return stepper_.logs(totals_); }
  // What the strategy has said about the epoch; for on_epoch_end().
  const StrategyReport& report() const { return report_; }
  // What its steps have taken their time for, those of this process; for on_epoch_end().
  const StepShares& step_shares() const { return step_shares_; }

  // Ends training after the present step, whose epoch then ends as any other, or after the present
  // epoch.
  void stop(std::string reason) {
    history_.stop_reason = reason.empty() ? "stopped by a callback" : std::move(reason);
  }
  bool stopping() const { return !history_.stop_reason.empty(); }
  const std::string& stop_reason() const { return history_.stop_reason; }
  // Whether an interrupt, rather than a callback, is what ends training.
  bool interrupted() const { return interrupted_; }
  // How long to go on after a request to stop, as if it had come a step before it was seen; 0, as
  // it begins, ends training at once. It ends while there is time for another save, after the same
  // step on all workers, and with the epoch at the latest. For on_train_begin(), alike on all.
  void set_grace(std::chrono::duration<double> grace);
  // Whether a stop was asked for, and training goes on.
  bool in_grace() const { return end_by_.has_value() && !interrupted_; }

  // Keeps something alive until fit() ends, however it does; for on_train_begin().
  void keep(std::shared_ptr<const void> thing) { kept_.push_back(std::move(thing)); }

  // For callbacks that save, in step on all workers: a save has failed, and training goes on. From
  // the first one on, the results of epochs have "failed_saves", how many that were since training
  // began; add_failed_saves() brings those of an epoch up to date.
  void count_failed_save() { ++failed_saves_; }
  void add_failed_saves(Logs& logs) const;
  // For on_train_end(), of what was to be kept and is not: fit() throws the first such error where
  // it would return, after on_train_end() of all callbacks, unless an interrupt has ended training.
  // With several workers, that of one is thrown by all.
  void fail_at_end(const Error& error);
  bool fails_at_end() const { return error_at_end_.has_value(); }

  // A checkpoint of the model that also holds where training stands, and what callbacks keep, and
  // going on from its file, which gives the same bits as never having stopped, as far as
  // BackupAndRestore says. Both are for callbacks that act last, and restore() is for
  // on_train_begin(). kDataLoss when the file is not such a backup; kFailedPrecondition when it is
  // from the middle of an epoch with other metrics or more steps, or of another version. No
  // variable has changed then. From the middle of an epoch of another number of workers all goes on
  // but the epoch's data, and with them, unless there are steps_per_epoch, its steps and results:
  // these begin anew, as a line on stderr says. Where others train the same variables
  // (InputContext::independent), these are restored only if they have had fewer updates than those
  // of the file; else a line on stderr says both numbers, and of the others (is_of_each_worker)
  // those of the model are restored.
  Snapshot backup() const;
  void restore(const std::string& path);

 private:
  using Clock = std::chrono::steady_clock;
  // A place in the dataset, and the file that it is from.
  struct Place {
    std::string position, source;
  };
  // Where training stands, next to the variables.
  struct Position {
    int64_t epoch = 0, step = 0, tested = 0;
    double seconds = 0;  // that the epoch has taken
    Totals totals;
    std::optional<Place> place;
  };

  // Throws before an epoch is spent what validation would throw after it.
  void check_validation_data() const;
  void run_epoch();
  void resume_data();
  std::string save_position() const;
  // Of a text of save_position(), in the file `source`.
  Position read_position(const std::string& text, const std::string& source) const;
  // Adds this worker's of the `places` of all in the data, and where they are those of another
  // number of workers has what depends on them begin anew.
  void add_place(Position& position, const std::vector<std::string>& places,
                 const std::string& source) const;
  void go_on_from(Position position);
  // Whether the variables that others train too have had the updates of a backup, or as many.
  bool are_ahead_of(const std::string& path) const;
  void restore_callbacks(const Tensors& states, const std::string& source) const;
  // `step_before` is when the step before began, its wait for data included.
  void run_step(const data::DistributedBatch& batch, Clock::time_point step_before);
  // The next one of the epoch, or nothing.
  std::optional<data::DistributedBatch> next_batch();
  // Loss and metrics of the epoch that has ended; none where it had no rows, which is told once.
  Logs results();
  void end_epoch();
  // Adds to `logs`; false when interrupted.
  bool validate(Logs& logs);
  void warn_of_validation(double loss) const;
  void interrupt();
  // Whether all workers have the time for another step like those since the request, and what came
  // with them.
  bool has_time_for_a_step();
  // Calls f(owner, callback) for each callback that keeps something: what the names of its state
  // begin with in a backup.
  template <typename F>
  void for_each_state(const F& f) const;
  // Calls one hook of all callbacks, in order.
  template <typename... Parameters, typename... Arguments>
  void call(void (Callback::*hook)(Training&, Parameters...), Arguments&... arguments) {
    for (const CallbackPtr& callback : callbacks_) (callback.get()->*hook)(*this, arguments...);
  }

  std::vector<std::shared_ptr<const void>> kept_;
  Model model_;
  FitOptions options_;
  Stepper& stepper_;
  Feed feed_;
  std::vector<CallbackPtr> callbacks_;
  History history_;
  Totals totals_;
  StrategyReport report_;
  StepMeter step_meter_;
  StepShares step_shares_;
  BottleneckWatch bottlenecks_;
  int64_t epoch_ = 0, step_ = 0, failed_saves_ = 0;
  std::optional<int64_t> steps_;
  std::optional<Place> resume_;  // where to begin the present epoch
  bool interrupted_ = false, has_validated_ = false, has_told_of_no_rows_ = false;
  bool has_trained_ = false;  // in this call, or in that which a backup is of
  std::optional<Error> error_at_end_;
  std::chrono::nanoseconds began_{0};  // by the chief's clock
  Clock::duration grace_{0};
  std::optional<Clock::time_point> end_by_;  // once a stop was asked for
  Clock::time_point step_began_;
  Clock::duration longest_step_{0};  // since then, with its callbacks
  Clock::time_point epoch_began_;
  double seconds_before_ = 0;  // that this epoch had taken where it is gone on with
  std::optional<Clock::time_point> epoch_ended_;  // set while the end of an epoch is dealt with
};

}  // namespace cohort
