#pragma once

#include "core/collective/stall_warning.h"
#include "strategies/cluster/environment.h"

namespace cohort {

// What COHORT_STALL_WARNING_SECONDS asks for, by default 60, to standard error. kInvalidArgument
// for what is no number of seconds.
StallWarning stall_warning_asked_for(const Environment& environment = process_environment);

}  // namespace cohort
