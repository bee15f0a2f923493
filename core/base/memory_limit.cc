#include "core/base/memory_limit.h"

#include <sys/resource.h>

#include "core/base/error.h"

namespace cohort {

// Not that of its control group: beyond that no allocation fails, but processes are killed.
std::string memory_limit() {
  rlimit space = {};
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return "";
  return str("; this process has a limit of ", space.rlim_cur,
             " bytes of address space (ulimit -v)");
}

}  // namespace cohort
