#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/train/callbacks.h"
#include "core/train/callbacks/state.h"
#include "core/train/training.h"

namespace cohort::callbacks {

// When training begins: the chief warns on standard error, naming the `callback`, when epochs will
// not have a result that it needs.
void warn_if_missing(Training& training, std::string_view callback, std::string_view result);

// Watches one result of the epochs for its best value.
class Monitor {
 public:
  // `threshold`: what the first best value has to be better than.
  Monitor(std::string name, Mode mode, double min_delta = 0,
          std::optional<double> threshold = std::nullopt);

  // When training begins: finds out what Mode::kAuto is. kInvalidArgument, naming the `callback`,
  // where that is not known.
  void begin(const Training& training, std::string_view callback);

  // The value in `logs`; nothing where the epoch was not validated, or had no rows to be trained
  // on, and this is a result of that. kInvalidArgument, listing what there is, when no epoch will
  // ever have it.
  std::optional<double> find(const Training& training, const Logs& logs) const;
  // Whether `value` is better than `other` by more than min_delta. NaN never is.
  bool beats(double value, double other) const;
  // Whether `value` is better than the best so far, before the first one than the threshold.
  bool is_better(double value) const;
  // The same, and it is then the best.
  bool improves(double value);

  const std::optional<double>& best() const { return best_; }

  // The best so far, for Callback::state() and restore().
  CallbackState state() const;
  void restore(const CallbackState& state);

 private:
  std::string name_;
  Mode mode_;
  double min_delta_;
  std::optional<double> threshold_, best_;
};

}  // namespace cohort::callbacks
