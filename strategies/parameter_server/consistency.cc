#include "strategies/parameter_server/consistency.h"

#include <cmath>

#include "core/base/error.h"

namespace cohort {

void ConsistencyOptions::check() const {
  if (max_staleness.value_or(0) < 0)
    invalid("max_staleness must not be negative, got ", *max_staleness);
  if (num_workers < 1) invalid("num_workers must be at least 1, got ", num_workers);
  if (backup_workers < 0 || backup_workers >= num_workers)
    invalid("backup_workers must be from 0 to ", num_workers - 1, " for ", num_workers,
            " workers, got ", backup_workers);
  if (backup_workers > 0 && !synchronous())
    invalid("backup workers are for synchronous training: set max_staleness to 0");
  if (!(delay_compensation >= 0 && std::isfinite(delay_compensation)))
    invalid("delay_compensation must be finite and not negative, got ", delay_compensation);
  if (synchronous() && (scale_learning_rate || delay_compensation > 0))
    invalid(
        "synchronous gradients are never stale: leave scale_learning_rate and "
        "delay_compensation out");
}

}  // namespace cohort
