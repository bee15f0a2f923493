#pragma once

#include <chrono>
#include <string>

#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/coordination/security.h"

namespace cohort::coordination {

// Asks the leader whether it would take this task now: as one that joins does, but for joining. The
// job does not notice. Returns what it says to one that it would take, for people. Throws what
// Membership::join() would throw at once, and kUnavailable with the reason where that would try
// again, or nobody has answered by `deadline`.
std::string ask_leader(const Roster& roster, const std::string& job_id, const Security& security,
                       std::chrono::steady_clock::time_point deadline);

}  // namespace cohort::coordination
