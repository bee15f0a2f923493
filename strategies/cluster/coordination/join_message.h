#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "strategies/cluster/coordination/roster.h"

namespace cohort::proto {
class Join;
class Refused;
}  // namespace cohort::proto

namespace cohort::coordination {

// What a task says to join.
void write_join(const Roster& roster, const std::string& job_id, uint64_t incarnation,
                proto::Join* join);
// What it gets when the leader refuses that. Names both, and where their clusters differ.
Error read_refusal(const Roster& roster, const proto::Refused& refused);

}  // namespace cohort::coordination
