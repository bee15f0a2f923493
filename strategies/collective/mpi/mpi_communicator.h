#pragma once

#include <memory>
#include <optional>

#include "core/collective/communicator.h"
#include "core/collective/stall_warning.h"
#include "strategies/cluster/environment.h"

// Ranks that are processes of one MPI job, one rank each, over Open MPI: for clusters whose fabric
// MPI drives. Open MPI is loaded when the first communicator is made.
namespace cohort {

struct MpiOptions {
  // How long one rank may wait for another in a call before kDeadlineExceeded names the rank and
  // ends the group. In making the communicator all are waited for as long, and nobody is named; but
  // the start of MPI itself, in the first call, waits for ever. Greater than 0.
  double time_limit_seconds = 600;
  // Of a rank that waits for others to come to a call, or to a message.
  StallWarning stall = {};
};

// The communicator of all processes of the job, by their ranks in MPI_COMM_WORLD; of this process
// alone where no launcher has started it. All processes make it together, and any number of times:
// after a group has ended, a new one takes its place. As for any Communicator, and:
//
// - Results are combined in rank order, never by MPI itself, and are those of every other backend
//   to the bit.
// - Ranks move data for each other only while they are in a call.
// - The first call starts MPI unless the program has, and then finalises it at exit. A program that
//   uses MPI itself calls MPI_Init_thread with MPI_THREAD_MULTIPLE first; with
//   MPI_THREAD_SERIALIZED it must not be in MPI while a thread is in a communicator.
// - A process that dies, or exits without finalising MPI, takes the job with it: mpirun kills the
//   others (srun does with --kill-on-bad-exit). One that exits with a status other than 0 does so
//   too, once the others have had a few seconds to end by themselves; at once where its first
//   communicator could not be made.
//
// kUnavailable without Open MPI; kFailedPrecondition where MPI cannot be used as it was started;
// kDeadlineExceeded where MPI has started, but not all processes come: called again, it waits on.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options = {});

// As `whole.split(0, key)`, of a communicator made by the above, with a time limit of its own;
// errors call this rank `task`. All ranks have such a name, or it is empty for all.
std::unique_ptr<Communicator> reorder_mpi_communicator(Communicator& whole, int key,
                                                       const std::string& task,
                                                       double time_limit_seconds);

// Whether mpirun of Open MPI, or srun --mpi=pmix, has started this process, so that
// `make_mpi_communicator` finds the others. Looks at the environment alone.
bool started_by_mpi(const Environment& environment = process_environment);
// How many processes the launcher has started, as far as the environment tells, where Open MPI can
// be loaded; else nothing. Does not start MPI.
std::optional<int> mpi_world_size(const Environment& environment = process_environment);

}  // namespace cohort
