#include "core/train/callbacks/save_interval.h"

namespace cohort::callbacks {

SaveInterval::SaveInterval(std::string_view callback, const Length& length) : length_(length) {
  if (length && !(length->count() > 0))
    invalid(callback, ": save_interval must be more than 0 s, got ", length->count());
}

bool SaveInterval::is_over(const Training& training) const {
  return length_ && training.elapsed() - began_ >= *length_;
}

}  // namespace cohort::callbacks
