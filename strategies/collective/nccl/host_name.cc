#include "strategies/collective/nccl/host_name.h"

#include <cstdlib>
#include <unistd.h>

namespace cohort {

std::string nccl_host_name() {
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && id[0] != '\0') return id;
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace cohort
