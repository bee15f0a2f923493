#include "strategies/collective/mpi/mpi_process.h"

#include <cstdlib>

#include "core/base/error.h"

namespace cohort::mpi {
namespace {

// For the others to end too when this process fails.
constexpr std::chrono::seconds kLeave{5};

// Outlives all static objects, whose destructors may still use it.
struct Process {
  std::mutex mutex;
  std::shared_ptr<Transport> transport;
};
Process& process() {
  static Process& only = *new Process;
  return only;
}

bool is_finalized() {
  int finalized = 0;
  library().finalized(&finalized);
  return finalized != 0;
}

// When the process exits. Must not throw.
void end(int status, void* /*unused*/) {
  if (is_finalized()) return;
  try {
    const auto& transport = process().transport;
    if (transport == nullptr) {  // its start was refused, and nobody hears of this end
      if (status != 0) library().abort(library().world, status);
    } else if (status == 0) {
      transport->leave(Clock::now());
    } else if (!transport->leave(Clock::now() + kLeave)) {
      transport->close();
      library().abort(library().world, status);
    }
  } catch (const Error&) {  // MPI itself has failed
    library().abort(library().world, status == 0 ? EXIT_FAILURE : status);
  }
  library().finalize();
}

// MPI calls it at the beginning of MPI_Finalize.
int close(MPI_Comm /*self*/, int /*key*/, void* /*value*/, void* /*extra*/) {
  try {
    if (process().transport != nullptr) process().transport->close();
  } catch (const Error&) {
    return MPI_ERR_OTHER;
  }
  return MPI_SUCCESS;
}

void start() {
  const Library& mpi = library();
  int initialized = 0, level = MPI_THREAD_SINGLE;
  check(mpi.initialized(&initialized), "asking whether MPI has started");
  if (is_finalized())
    fail(Code::kFailedPrecondition, "MPI has been finalised, and cannot start again");
  if (initialized) {
    check(mpi.query_thread(&level), "asking for the thread level");
    if (level < MPI_THREAD_SERIALIZED)
      fail(Code::kFailedPrecondition, "the program has started MPI for one thread; call ",
           "MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave the start to Cohort");
    return;
  }
  // More than is needed here, for a program that uses MPI as well.
  check(mpi.init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "starting MPI");
  on_exit(end, nullptr);
  if (level < MPI_THREAD_SERIALIZED)
    fail(Code::kFailedPrecondition, "this Open MPI was built for programs of one thread");
}

void close_with_mpi() {
  const Library& mpi = library();
  int key = MPI_KEYVAL_INVALID;
  const auto keep = [](MPI_Comm, int, void*, void*, void*, int* flag) {
    *flag = 0;
    return static_cast<int>(MPI_SUCCESS);
  };
  check(mpi.comm_create_keyval(keep, close, &key, nullptr), "preparing the end of MPI");
  check(mpi.comm_set_attr(mpi.self, key, nullptr), "preparing the end of MPI");
}

// A launcher of another MPI leaves each process alone in a world of its own. Launchers run inside
// each other, as all do in a step of Slurm: the first of these is of the one that counts.
void check_size() {
  const Library& mpi = library();
  int size = 0;
  check(mpi.comm_size(mpi.world, &size), "asking for the number of ranks");
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* const text = std::getenv(name);
    if (text == nullptr) continue;
    if (std::atoi(text) == size) return;
    fail(Code::kFailedPrecondition, "Open MPI sees ", size, " processes, but ", name, " is ", text,
         "; start the program by Open MPI's mpirun, or by srun --mpi=pmix");
  }
}

}  // namespace

std::shared_ptr<Transport> process_transport(Clock::duration limit) {
  Process& own = process();
  const std::lock_guard lock(own.mutex);
  if (own.transport == nullptr) {
    start();
    check_size();
    close_with_mpi();
    own.transport = std::make_shared<Transport>(limit);
  }
  if (own.transport->closed()) fail(Code::kUnavailable, "MPI has been finalised");
  return own.transport;
}

}  // namespace cohort::mpi
