#pragma once

#include "strategies/cluster/environment.h"

namespace cohort {

// Throws the kInvalidArgument with which a group of ranks would end that is connected in this
// environment: for a COHORT_COLLECTIVE_BACKEND, COHORT_STALL_WARNING_SECONDS,
// COHORT_FLIGHT_RECORDER_SIZE or COHORT_TCP_CHECK_PAYLOADS that is none.
void check_collective_settings(const Environment& environment = process_environment);

}  // namespace cohort
