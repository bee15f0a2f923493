#include "core/train/training.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/distribute/own_devices.h"
#include "core/train/callbacks.h"

namespace cohort {
namespace {

using Json = nlohmann::json;

void check_at_least(int64_t least, std::string_view name, std::optional<int64_t> value) {
  if (value && *value < least)
    invalid("fit: ", name, " must be at least ", least, ", got ", *value);
}

FitOptions checked(const FitOptions& options) {
  check_at_least(0, "epochs", options.epochs);
  check_at_least(0, "initial_epoch", options.initial_epoch);
  check_at_least(1, "steps_per_epoch", options.steps_per_epoch);
  check_at_least(1, "validation_freq", options.validation_freq);
  check_at_least(1, "validation_steps", options.validation_steps);
  check_at_least(1, "validation_batch_size", options.validation_batch_size);
  for (const CallbackPtr& callback : options.callbacks) {
    if (!callback) invalid("fit: one of the callbacks is null");
  }
  return options;
}

// What workers that train together are given alike and nothing else compares: the step after which
// an epoch ends, and weights that become part of the data.
std::string common_options(const FitOptions& options) {
  Json common = {{"epochs", options.epochs},
                 {"initial_epoch", options.initial_epoch},
                 {"validation_freq", options.validation_freq}};
  if (options.steps_per_epoch) common["steps_per_epoch"] = *options.steps_per_epoch;
  if (options.validation_steps) common["validation_steps"] = *options.validation_steps;
  if (!options.class_weight.empty()) common["class_weight"] = options.class_weight;
  return common.dump();
}

std::vector<CallbackPtr> in_turn(std::vector<CallbackPtr> callbacks) {
  std::stable_partition(callbacks.begin(), callbacks.end(),
                        [](const CallbackPtr& each) { return !each->acts_last(); });
  return callbacks;
}

// Sums of all rows, so that all workers that train together see the same.
void require_finite(double loss, int64_t epoch) {
  if (!std::isfinite(loss))
    fail(Code::kOutOfRange, "fit: epoch ", epoch, ": the loss is ", loss,
         "; TerminateOnNaN tells after which step, and allow_nan_loss trains on");
}

// Where all train together, what has rows on none of them is no step: this one trains on its own.
void tell_of_no_rows(const Strategy& strategy, int64_t epoch) {
  const Workers& workers = strategy.workers();
  print_notice(str(
      "warning: fit: ", workers.name(workers.rank()), " had no rows in epoch ", epoch,
      ", so it has no loss and no metrics of it: ", strategy.input_context().num_input_pipelines,
      " workers divide the dataset, and its share had none\n"));
}

}  // namespace

Training::Training(const Model& model, const data::Dataset& dataset, const FitOptions& options)
    : model_(model),
      options_(checked(options)),
      stepper_(model_.stepper()),
      feed_(model_.strategy(), dataset, options.steps_per_epoch, "steps_per_epoch",
            {.auto_shard = options.auto_shard}),
      callbacks_(in_turn(options.callbacks)),
      epoch_(options.initial_epoch),
      steps_(feed_.steps()) {
  if (options.verbose == Verbose::kAuto) callbacks_.push_back(callbacks::ProgressBar());
  if (options_.validation_data) check_validation_data();
  Workers& workers = model_.strategy().workers();
  workers.exchange("training with " + common_options(options_), "");
  began_ = workers.chief_time();
}

void Training::check_validation_data() const {
  try {
    const Feed feed = model_.evaluation_feed(
        options_.validation_data->batches(options_.validation_batch_size),
        options_.validation_steps, options_.validation_auto_shard, "validation_steps");
    if (feed.steps() == 0) invalid("the dataset is empty");
  } catch (const Error& error) {
    throw error.with_context("fit: validation_data");
  }
}

bool Training::leaves_to_chief() const {
  const Strategy& strategy = model_.strategy();
  return strategy.input_context().independent && !strategy.is_chief();
}

History Training::run() {
  if (&model_.strategy() == &default_strategy()) note_own_devices("fit() without a strategy");
  model_.build_for(feed_, epoch_);
  const CatchTermination catch_termination;
  const struct Ending {
    Strategy& strategy;
    ~Ending() { strategy.end_training(); }
  } ending{model_.strategy()};
  step_began_ = Clock::now();
  stepper_.begin();
  call(&Callback::on_train_begin);
  while (epoch_ < options_.epochs && !stopping()) {
    run_epoch();
    if (!interrupted_ && step_ > 0) end_epoch();
  }
  // An interrupted one is to go on from what was trained. Without a step weights stay as they are.
  if (!interrupted_ && has_trained_)
    model_.optimizer().finalize_variable_values(model_.trainable_variables());
  call(&Callback::on_train_end);
  if (interrupted_)
    fail(Code::kCancelled, "fit: interrupted in epoch ", epoch_ + 1, " after step ", step_);
  if (error_at_end_)
    throw error_at_end_->with_context("fit: training is complete, and its files are not");
  // Where the others throw what one of them has to.
  model_.strategy().workers().exchange("the end of training", "");
  return history_;
}

void Training::run_epoch() {
  epoch_began_ = Clock::now();
  feed_.begin_epoch(epoch_, step_);
  if (resume_) resume_data();
  call(&Callback::on_epoch_begin);
  try {
    while (!stopping()) {
      const auto step_before = std::exchange(step_began_, Clock::now());
      const auto batch = next_batch();
      if (!batch) break;
      run_step(*batch, step_before);
    }
  } catch (const Error& error) {
    // One that another worker has told may have it already.
    const std::string place = str("fit: epoch ", epoch_ + 1, ", step ", step_ + 1);
    throw error.message().starts_with(place) ? error : error.with_context(place);
  }
  if (in_grace() && !stopping()) interrupt();
}

void Training::resume_data() {
  const Place place = *std::exchange(resume_, std::nullopt);
  try {
    feed_.restore(place.position);
  } catch (const Error& error) {
    throw error.with_context(place.source);
  }
}

std::optional<data::DistributedBatch> Training::next_batch() {
  const auto begin = StepMeter::now(model_.strategy());
  auto batch = feed_.next();
  if (batch) step_meter_.add_input(begin, StepMeter::now(model_.strategy()));
  return batch;
}

void Training::run_step(const data::DistributedBatch& batch, Clock::time_point step_before) {
  call(&Callback::on_batch_begin);
  const auto begin = StepMeter::now(model_.strategy());
  stepper_.train(batch, options_.class_weight, totals_);
  has_trained_ = true;
  step_meter_.add_run(begin, StepMeter::now(model_.strategy()));
  ++step_;
  if (!end_by_ && model_.strategy().workers().stop_requested()) {
    end_by_ = step_before + grace_;
    if (grace_ == Clock::duration::zero()) interrupt();
  }
  call(&Callback::on_batch_end);
  if (in_grace() && !stopping() && !has_time_for_a_step()) interrupt();
}

void Training::add_failed_saves(Logs& logs) const {
  if (failed_saves_ > 0) logs["failed_saves"] = static_cast<double>(failed_saves_);
}

void Training::fail_at_end(const Error& error) {
  if (!error_at_end_) error_at_end_ = error;
}

void Training::set_grace(std::chrono::duration<double> grace) {
  grace_ = std::chrono::duration_cast<Clock::duration>(grace);
}

bool Training::has_time_for_a_step() {
  const auto now = Clock::now();
  longest_step_ = std::max(longest_step_, now - step_began_);
  // A person who interrupts does not mean to wait.
  const bool fits = stop_request() != StopRequest::kInterrupt &&
                    now + longest_step_ + longest_step_ / 4 < *end_by_;
  const auto all = model_.strategy().workers().exchange("whether there is time for another step",
                                                        fits ? "yes" : "no");
  return std::all_of(all.begin(), all.end(), [](const auto& each) { return each == "yes"; });
}

void Training::interrupt() {
  interrupted_ = true;
  stop("interrupted");
}

bool Training::validate(Logs& logs) {
  if (!options_.validation_data || interrupted_ || (epoch_ + 1) % options_.validation_freq != 0)
    return true;
  const int64_t tested_before = stepper_.tested();
  try {
    call(&Callback::on_validation_begin);
    const auto tested = model_.test(
        options_.validation_data->batches(options_.validation_batch_size),
        {.steps = options_.validation_steps, .auto_shard = options_.validation_auto_shard});
    call(&Callback::on_validation_end);
    if (!tested) {
      stepper_.continue_tests_at(tested_before);
      return false;
    }
    for (const auto& [name, value] : tested->logs) logs[str(kValidationPrefix, name)] = value;
    warn_of_validation(tested->logs.at("loss"));
    if (!std::exchange(has_validated_, true))
      warn_of_end(model_.strategy(), "fit", "validation_steps", options_.validation_steps,
                  tested->batches);
    return true;
  } catch (const Error& error) {
    throw error.with_context(str("fit: epoch ", epoch_ + 1, ", validation"));
  }
}

// Training may recover, and its own loss says so where it does not.
void Training::warn_of_validation(double loss) const {
  if (!options_.allow_nan_loss && !std::isfinite(loss) && model_.strategy().is_chief())
    print_notice(
        str("warning: fit: epoch ", epoch_ + 1, ": the loss of validation is ", loss, '\n'));
}

Logs Training::results() {
  if (totals_.rows == 0) {
    if (!std::exchange(has_told_of_no_rows_, true)) tell_of_no_rows(model_.strategy(), epoch_ + 1);
    return {};
  }
  Logs logs = this->logs();
  if (!options_.allow_nan_loss) require_finite(logs.at("loss"), epoch_ + 1);
  return logs;
}

void Training::end_epoch() {
  epoch_ended_ = Clock::now();
  if (!stopping()) steps_ = step_;
  Logs logs = results();
  step_shares_ = std::exchange(step_meter_, {}).shares();
  const auto warning = bottlenecks_.add_epoch(epoch_, step_shares_);
  if (warning && model_.strategy().is_chief()) print_notice(*warning);
  report_ = model_.strategy().take_report();
  for (const auto& [name, value] : report_.numbers) logs[name] = value;
  add_failed_saves(logs);
  if (!validate(logs)) {
    epoch_ended_.reset();  // whoever goes on from here validates again
    return interrupt();
  }
  call(&Callback::on_epoch_end, logs);
  history_.epochs.push_back(epoch_);
  for (const auto& [name, value] : logs) history_.results[name].push_back(value);
  epoch_ended_.reset();
  ++epoch_;
  step_ = 0;
  totals_ = {};
  seconds_before_ = 0;
}

std::chrono::duration<double> Training::elapsed() const {
  return model_.strategy().workers().chief_time() - began_;
}

double Training::seconds() const {
  const auto now = epoch_ended_.value_or(Clock::now());
  return seconds_before_ + std::chrono::duration<double>(now - epoch_began_).count();
}

}  // namespace cohort
