#include "strategies/cluster/coordination/join_message.h"

#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/cluster_difference.h"
#include "strategies/cluster/coordination/fault.h"
#include "strategies/cluster/coordination/limits.h"

namespace cohort::coordination {

void write_join(const Roster& roster, const std::string& job_id, uint64_t incarnation,
                proto::Join* join) {
  join->set_protocol(kProtocolVersion);
  join->set_job_id(job_id);
  join->set_cluster_hash(roster.cluster_hash());
  join->set_rank(roster.rank());
  join->set_size(roster.size());
  join->set_incarnation(incarnation);
}

Error read_refusal(const Roster& roster, const proto::Refused& refused) {
  Error error = read_fault(refused.fault());
  if (const auto difference = cluster_difference(roster.cluster(), refused.cluster()))
    error = error.with_context(*difference);
  return error.with_context(
      str(roster.described(roster.rank()), " is refused by the leader, ", roster.described(0)));
}

}  // namespace cohort::coordination
