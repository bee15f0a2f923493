#pragma once

#include <string>

namespace cohort {

// The host on which a rank of this process's job runs, as the launcher calls it: the name in
// --host, in the file of hosts or in the batch system's list, and for the host of mpirun itself its
// own name without the domain. From PMIx, by which Open MPI's mpirun, prun and srun --mpi=pmix tell
// each process of the whole job when it starts: nobody else is asked, and nothing waited for.
//
// The first call connects to the launcher's server on this host (libpmix.so.2, the same that MPI
// uses), until the process exits: such a process must end by exit() or return from main, for
// mpirun takes the job of one that ends by _exit() for failed. kUnavailable, with the reason,
// without such a launcher, without the library, and where they do not know. Thread-safe.
std::string pmix_host(int rank);

}  // namespace cohort
