#pragma once

#include <cmath>

#include "core/train/training.h"

namespace cohort::callbacks {

// Whether the loss of the epoch so far is no number any more. Nor are the weights then, which must
// not take the place of those that were saved before.
inline bool has_diverged(const Training& training) {
  const Logs logs = training.logs();
  const auto loss = logs.find("loss");
  return loss != logs.end() && !std::isfinite(loss->second);
}

}  // namespace cohort::callbacks
