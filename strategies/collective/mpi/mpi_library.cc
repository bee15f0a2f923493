#include "strategies/collective/mpi/mpi_library.h"

#include <dlfcn.h>

#include "core/base/error.h"

namespace cohort::mpi {
namespace {

// Of Open MPI 3 to 5.
constexpr char kName[] = "libmpi.so.40";

// Global, because Open MPI's own plugins look for its symbols there.
void* open() {
  void* const handle = dlopen(kName, RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr)
    fail(Code::kUnavailable, "Open MPI cannot be loaded: ", dlerror(),
         "; the Debian package openmpi-bin brings it");
  return handle;
}

void* find(void* handle, const char* name) {
  void* const symbol = dlsym(handle, name);
  if (symbol == nullptr)
    fail(Code::kUnavailable, kName, " has no ", name, "; Open MPI 4 is needed");
  return symbol;
}

Library load() {
  void* const handle = open();
  const auto function = [&](const char* name, auto& pointer) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(find(handle, name));
  };
  const auto object = [&](const char* name, auto& pointer) {
    pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(find(handle, name));
  };
  Library mpi{};
  function("MPI_Abort", mpi.abort);
  function("MPI_Cancel", mpi.cancel);
  function("MPI_Comm_create_keyval", mpi.comm_create_keyval);
  function("MPI_Comm_get_attr", mpi.comm_get_attr);
  function("MPI_Comm_idup", mpi.comm_idup);
  function("MPI_Comm_rank", mpi.comm_rank);
  function("MPI_Comm_set_attr", mpi.comm_set_attr);
  function("MPI_Comm_set_errhandler", mpi.comm_set_errhandler);
  function("MPI_Comm_size", mpi.comm_size);
  function("MPI_Error_string", mpi.error_string);
  function("MPI_Finalize", mpi.finalize);
  function("MPI_Finalized", mpi.finalized);
  function("MPI_Get_count", mpi.get_count);
  function("MPI_Init_thread", mpi.init_thread);
  function("MPI_Initialized", mpi.initialized);
  function("MPI_Irecv", mpi.irecv);
  function("MPI_Isend", mpi.isend);
  function("MPI_Query_thread", mpi.query_thread);
  function("MPI_Test", mpi.test);
  function("MPI_Testsome", mpi.testsome);
  object("ompi_mpi_comm_world", mpi.world);
  object("ompi_mpi_comm_self", mpi.self);
  object("ompi_mpi_byte", mpi.byte);
  object("ompi_mpi_errors_return", mpi.errors_return);
  object("ompi_request_null", mpi.no_request);
  return mpi;
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  library().error_string(code, text, &length);
  return text;
}

void check(int code, const std::string& doing) {
  if (code != MPI_SUCCESS) fail(Code::kUnavailable, "MPI: ", error_text(code), ", ", doing);
}

}  // namespace cohort::mpi
