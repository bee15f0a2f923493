#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/train/training.h"

namespace cohort::callbacks {

// Whether the loss of the epoch so far is no number any more. Nor are the weights then.
bool has_diverged(const Training& training);

// Keeps weights that are no numbers from taking the place of those that were saved before.
class SaveGuard {
 public:
  // `callback` is who saves.
  explicit SaveGuard(std::string callback) : callback_(std::move(callback)) {}

  // When training begins: nothing was rejected yet.
  void begin() { rejected_ = false; }
  // What `take` returns, which is then saved as it is. Nothing where it is not worth saving: where
  // the loss has diverged, or weights of the snapshot have, which the loss shows in the next step
  // only. The chief looks, and says so on standard error when it is the first time in a row. All
  // workers call it, and get the same answer.
  std::optional<Snapshot> accept(Training& training, const std::function<Snapshot()>& take);
  // Whether the last call has returned nothing.
  bool rejected() const { return rejected_; }

 private:
  std::string callback_;
  bool rejected_ = false;
};

}  // namespace cohort::callbacks
