#include "core/train/callbacks/moment.h"

namespace cohort::callbacks {

std::string moment(const Training& training) {
  return training.step() == 0
             ? str("after epoch ", training.epoch())
             : str("in epoch ", training.epoch() + 1, " after step ", training.step());
}

}  // namespace cohort::callbacks
