#pragma once

#include <string>
#include <string_view>

#include "strategies/cluster/environment.h"

namespace cohort::coordination {

// An id that somebody has given a job; kInvalidArgument that names `source` where it is none: at
// most kMaxJobIdBytes printable characters without spaces.
std::string checked_job_id(std::string id, std::string_view source);

// COHORT_JOB_ID, checked; "" where it is not set.
std::string given_job_id(const Environment& environment);

}  // namespace cohort::coordination
