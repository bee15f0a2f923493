#pragma once

#include "strategies/collective/tcp/tcp_communicator.h"
#include "tests/collective/ranks.h"

namespace cohort::testing {

// The ranks of a new group, made by threads of this process.
Group make_tcp_group(int size, const TcpOptions& options = {});

}  // namespace cohort::testing
