#include "strategies/collective/nccl/host_name.h"

#include <cstdlib>
#include <fstream>

#include "core/base/host_name.h"

namespace cohort {

NcclHostName nccl_host_name() {
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && id[0] != '\0') return {id, ""};
  NcclHostName host{host_name(""), ""};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> host.boot;
  return host;
}

}  // namespace cohort
