#pragma once

#include <string_view>

#include "strategies/cluster/environment.h"

namespace cohort {

// How the processes of a group talk to each other.
enum class CommunicationBackend {
  // Shared memory inside a host, TCP between hosts, or both; MPI in place of them where several
  // hosts were started by an MPI launcher. What cannot be had is replaced by TCP, with a warning.
  kAuto,
  kSharedMemory,  // kUnavailable or kPermissionDenied where they have no memory in common
  kTcp,           // also inside a host
  kMpi            // one rank for each process, started by mpirun or srun --mpi
};

// "auto", "shm", "tcp" or "mpi".
std::string_view backend_name(CommunicationBackend backend);

// What is asked for: `backend`, or, where that is kAuto, COHORT_COLLECTIVE_BACKEND, one of the
// names. kInvalidArgument for another value.
CommunicationBackend backend_asked_for(CommunicationBackend backend,
                                       const Environment& environment = process_environment);

}  // namespace cohort
