#include "strategies/multi_worker/shared_cores.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "core/base/cores.h"
#include "core/base/error.h"
#include "core/base/notice.h"

namespace cohort {

void warn_of_shared_cores(const ClusterResolver& resolver, int threads) {
  const int tasks = resolver.tasks_on_host().value_or(1);
  if (std::getenv("OMP_NUM_THREADS") != nullptr || !may_use_every_core()) return;
  const std::string warning = warning_of_shared_cores(tasks, threads, available_cores());
  if (warning.empty()) return;
  static std::once_flag warned;
  std::call_once(warned, [&] { print_notice(warning + "\n"); });
}

std::string warning_of_shared_cores(int tasks, int threads, int cores) {
  const int share = std::max(cores / tasks, 1);
  if (tasks == 1 || threads <= share) return "";
  return str("warning: ", tasks, " tasks on this host share ", cores, " cores, and each computes ",
             "with ", threads, " threads, which take turns: set OMP_NUM_THREADS=", share,
             " for all, or have the launcher give each task cores of its own");
}

}  // namespace cohort
