#pragma once

#include <memory>

#include "strategies/collective/host/host_group.h"
#include "strategies/collective/host/shared_memory_communicator.h"

namespace cohort {

// The group of make_shared_memory_communicators, which says the rest.
std::shared_ptr<HostGroup> join_host_group(KeyValueStore& store,
                                           const SharedMemoryOptions& options);

// The part of a group that this rank goes to, and its rank there. Null for a negative color.
struct HostPart {
  std::shared_ptr<HostGroup> group;
  int rank = 0;
};
// A collective call of `communicator`, whose group is `whole`. What keeps one rank from joining its
// part is thrown by all.
HostPart split_host_group(Communicator& communicator, const HostGroup& whole, int color, int key);

}  // namespace cohort
