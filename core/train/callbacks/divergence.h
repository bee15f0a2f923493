#pragma once

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

  // Whether there is nothing worth saving: the loss has diverged, or the weights have, which the
  // loss shows in the next step only. The chief looks, and says so on standard error when it is the
  // first time in a row. All workers call it, and get the same answer.
  bool refuses(Training& training);
  // What the last call has returned.
  bool refused() const { return refused_; }

 private:
  std::string callback_;
  bool refused_ = false;
};

}  // namespace cohort::callbacks
