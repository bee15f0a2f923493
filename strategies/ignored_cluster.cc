// Where a program of several tasks trains on the devices of each alone, every task trains the whole
// model: that looks like a success, and is said in a line.
#include <atomic>
#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/distribute/own_devices.h"
#include "strategies/cluster/resolve_cluster.h"

namespace cohort {
namespace {

// The cluster of several tasks of which this is the first, if it is. A mistake in what describes
// one is told to those who use it.
std::optional<ResolvedCluster> led_cluster() {
  try {
    ResolvedCluster cluster = resolve_cluster();
    const World world = cluster.resolver->world();
    if (world.rank == 0 && world.size > 1) return cluster;
  } catch (const Error&) {  // theirs to tell
  }
  return std::nullopt;
}

void warn_of_ignored_cluster(std::string_view who) {
  static std::atomic<bool> told = false;
  if (told || has_used_cluster()) return;
  const std::optional<ResolvedCluster> cluster = led_cluster();
  if (!cluster || told.exchange(true)) return;
  print_notice(str("warning: ", who, " trains on the devices of this process alone, and ignores ",
                   "that the environment describes ", cluster->resolver->world().size, " tasks (",
                   cluster->reason, "): each trains the whole model; MultiWorkerMirroredStrategy ",
                   "trains one on all (TF_CONFIG='{}' says that each is meant to train alone)\n"));
}

[[maybe_unused]] const bool is_listening = [] {
  set_own_devices_listener(warn_of_ignored_cluster);
  return true;
}();

}  // namespace
}  // namespace cohort
