#pragma once

#include <optional>
#include <string>

#include "core/train/callbacks.h"
#include "core/train/training.h"

namespace cohort::callbacks {

// Watches one result of the epochs for its best value.
class Monitor {
 public:
  Monitor(std::string name, Mode mode, double min_delta = 0);

  // The value in `logs`; nothing where the epoch was not validated. kInvalidArgument, listing what
  // there is, when no epoch will ever have it.
  std::optional<double> find(const Training& training, const Logs& logs) const;
  // Whether `value` is better than the best so far by more than min_delta; it is then the best. NaN
  // never is.
  bool improves(double value);

 private:
  std::string name_;
  bool higher_is_better_;
  double min_delta_;
  std::optional<double> best_;
};

}  // namespace cohort::callbacks
