#pragma once

#include <memory>

#include "strategies/collective/mpi/transport.h"

namespace cohort::mpi {

// This process's transport. The first call, which all processes have to make, starts MPI, unless
// the program has, and sees to its end:
// - When the program exits with status 0, MPI is finalised, which waits for all processes.
// - With another status, the others have a few seconds to end as well, and are then ended by MPI;
//   at once where this process has not come to have a transport.
// - When the program finalises MPI itself, every later use of the transport is kUnavailable.
// kUnavailable without Open MPI; kFailedPrecondition where the program has started MPI without
// MPI_THREAD_SERIALIZED, or where MPI does not see the processes that the launcher has started.
std::shared_ptr<Transport> process_transport(Clock::duration limit);

}  // namespace cohort::mpi
