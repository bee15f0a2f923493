#pragma once

#include "strategies/cluster/environment.h"

namespace cohort::tcp {

// Whether COHORT_TCP_CHECK_PAYLOADS is 1 rather than 0, as by default; kInvalidArgument for another
// value.
bool payload_checks_asked_for(const Environment& environment);

}  // namespace cohort::tcp
