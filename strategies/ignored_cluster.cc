// Where a program of several tasks trains on the devices of each alone, every task trains the whole
// model: that looks like a success, and is said in a line.
#include <atomic>
#include <memory>
#include <string_view>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/distribute/own_devices.h"
#include "strategies/cluster/resolve_cluster.h"

namespace cohort {
namespace {

// How many tasks there are of which this is the first; else 1. A mistake in what describes them is
// told to those who use it.
int tasks_led() {
  try {
    const World world = resolve_cluster().resolver->world();
    return world.rank == 0 ? world.size : 1;
  } catch (const Error&) {
    return 1;
  }
}

void warn_of_ignored_cluster(std::string_view who) {
  static std::atomic<bool> told = false;
  if (told || has_used_cluster()) return;
  const int tasks = tasks_led();
  if (tasks == 1 || told.exchange(true)) return;
  print_notice(str("warning: ", who, " trains on the devices of this process alone, and ignores ",
                   "that the environment describes ", tasks, " tasks (", resolve_cluster().reason,
                   "): each trains the whole model; MultiWorkerMirroredStrategy trains one on all ",
                   "(TF_CONFIG='{}' says that each is meant to train alone)\n"));
}

[[maybe_unused]] const bool is_listening = [] {
  set_own_devices_listener(warn_of_ignored_cluster);
  return true;
}();

}  // namespace
}  // namespace cohort
