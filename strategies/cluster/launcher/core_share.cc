#include "strategies/cluster/launcher/core_share.h"

#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {
namespace {

std::vector<int> own_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    fail_system("cannot find the cores on which cohort-run may run");
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

}  // namespace

cpu_set_t core_share(int task, int tasks) {
  const std::vector<int> cores = own_cores();
  const int size = static_cast<int>(cores.size()) / tasks;
  if (size == 0) {
    invalid("--bind=cores gives each task cores of its own: expected at most ", cores.size(),
            " tasks, one for each core, found ", tasks);
  }
  cpu_set_t share;
  CPU_ZERO(&share);
  for (int i = task * size; i < (task + 1) * size; ++i)
    CPU_SET(cores[static_cast<size_t>(i)], &share);
  return share;
}

}  // namespace cohort::launcher
