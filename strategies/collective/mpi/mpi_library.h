#pragma once

#include <mpi.h>
#include <string>

namespace cohort::mpi {

// The functions and objects of Open MPI that this backend uses, from a library that is loaded when
// first asked for: mpi.h names the objects as symbols of the library, which a program that is not
// linked with it cannot have.
struct Library {
  decltype(&::MPI_Abort) abort;
  decltype(&::MPI_Cancel) cancel;
  decltype(&::MPI_Comm_create_keyval) comm_create_keyval;
  decltype(&::MPI_Comm_get_attr) comm_get_attr;
  decltype(&::MPI_Comm_idup) comm_idup;
  decltype(&::MPI_Comm_rank) comm_rank;
  decltype(&::MPI_Comm_set_attr) comm_set_attr;
  decltype(&::MPI_Comm_set_errhandler) comm_set_errhandler;
  decltype(&::MPI_Comm_size) comm_size;
  decltype(&::MPI_Error_string) error_string;
  decltype(&::MPI_Finalize) finalize;
  decltype(&::MPI_Finalized) finalized;
  decltype(&::MPI_Get_count) get_count;
  decltype(&::MPI_Init_thread) init_thread;
  decltype(&::MPI_Initialized) initialized;
  decltype(&::MPI_Irecv) irecv;
  decltype(&::MPI_Isend) isend;
  decltype(&::MPI_Query_thread) query_thread;
  decltype(&::MPI_Test) test;
  decltype(&::MPI_Testsome) testsome;

  MPI_Comm world, self;
  MPI_Datatype byte;
  MPI_Errhandler errors_return;
  MPI_Request no_request;
};

// kUnavailable where Open MPI is not installed. Thread-safe.
const Library& library();

// Throws kUnavailable, with what MPI says, unless `code` is success. `doing` is what was tried:
// "sending to rank 3".
void check(int code, const std::string& doing);
std::string error_text(int code);

}  // namespace cohort::mpi
