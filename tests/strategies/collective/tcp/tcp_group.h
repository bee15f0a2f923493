#pragma once

#include "strategies/collective/tcp/tcp_communicator.h"
#include "tests/collective/ranks.h"

namespace cohort::testing {

// The ranks of a new group, made by threads of this process.
Group make_tcp_group(int size, const TcpOptions& options = {});

// How many times the bytes of the value are sent over TCP in a call of all ranks, which are those
// of this process, when it is made for the second time.
double times_sent(const Group& group, int64_t bytes, const RankWork& call);

}  // namespace cohort::testing
