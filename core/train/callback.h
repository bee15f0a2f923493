#pragma once

#include <map>
#include <memory>
#include <string>

namespace cohort {

class Training;

// Named numbers about an epoch: "loss", "accuracy", "val_loss", ...
using Logs = std::map<std::string, double>;

// What fit() calls at certain moments, on the thread that called fit(). Derive from it to log,
// save, stop early and so on; an exception ends fit(). `training` tells where training stands and
// can end it.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(Training& /*training*/) {}
  // Also after stop() and after an interrupt, but not after an error.
  virtual void on_train_end(Training& /*training*/) {}
  virtual void on_epoch_begin(Training& /*training*/) {}
  // With the results of the epoch and of its validation. A callback may add to them for those after
  // it.
  virtual void on_epoch_end(Training& /*training*/, Logs& /*logs*/) {}
  virtual void on_batch_begin(Training& /*training*/) {}
  virtual void on_batch_end(Training& /*training*/) {}
};

using CallbackPtr = std::shared_ptr<Callback>;

}  // namespace cohort
