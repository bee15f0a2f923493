#include "strategies/collective/host/host_rank.h"

#include "core/base/error.h"

namespace cohort {

void refuse_peer(const HostRank& host, int rank) {
  const Error error(Code::kDataLoss,
                    str(host.meeting.name(rank),
                        " names memory that is not there, or not as large as its call says"),
                    host.meeting.peer(rank));
  host.meeting.lose(error);
  throw error;
}

}  // namespace cohort
