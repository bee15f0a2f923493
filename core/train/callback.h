#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/tensor/tensor.h"

namespace cohort {

class Training;

// Named numbers about an epoch: "loss", "accuracy", "val_loss", ...
using Logs = std::map<std::string, double>;

// What the names of results of validation begin with.
constexpr std::string_view kValidationPrefix = "val_";

// What a callback keeps from one epoch to the next, by names of its own choice.
using CallbackState = std::map<std::string, Tensor>;

// What fit() calls at certain moments, on the thread that called fit(). Derive from it to log,
// save, stop early and so on; an exception ends fit(). `training` tells where training stands and
// can end it.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(Training& /*training*/) {}
  // Also after stop() and after an interrupt, but not after an error. Weights are their averages by
  // now, where the optimizer has them (optim::EmaOptions), unless fit() was interrupted or has
  // taken no step.
  virtual void on_train_end(Training& /*training*/) {}
  // Also when an epoch is gone on with in its middle: training.step() is not 0 then.
  virtual void on_epoch_begin(Training& /*training*/) {}
  // With the results of the epoch and of its validation. A callback may add to them for those after
  // it. An epoch that is stopped before its first step has none, and does not count; on a worker on
  // its own (InputContext::independent) whose share had no rows it has neither loss nor metrics.
  virtual void on_epoch_end(Training& /*training*/, Logs& /*logs*/) {}
  // Around each validation of fit(), before on_epoch_end(); what changes variables for it, as to
  // their averages, puts them back at its end. That comes as well where an interrupt ends
  // validation, but not after an error.
  virtual void on_validation_begin(Training& /*training*/) {}
  virtual void on_validation_end(Training& /*training*/) {}
  virtual void on_batch_begin(Training& /*training*/) {}
  virtual void on_batch_end(Training& /*training*/) {}

  // Whether at each of these moments its turn is after that of the others, wherever it stands in
  // the list: because it saves what they have changed.
  virtual bool acts_last() const { return false; }

  // What backups hold of it, and going on from there: after on_train_begin() of all callbacks that
  // do not act last, before the variables are set; what it throws rejects the backup. With several
  // workers, all call them; the chief's state is saved, and all get it. It belongs to the callback
  // of the same name, which has to be the same on all workers, wherever that stands in the list; of
  // several in their order. Without a name, as here, nothing is saved.
  virtual std::string state_name() const { return ""; }
  virtual CallbackState state() const { return {}; }
  virtual void restore(const CallbackState& /*state*/) {}
};

using CallbackPtr = std::shared_ptr<Callback>;

}  // namespace cohort
