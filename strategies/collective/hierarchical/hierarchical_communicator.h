#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/collective/communicator.h"
#include "strategies/collective/host/shared_memory_communicator.h"

namespace cohort {

// Of a call over TCP for which there is no limit: more than any job takes.
inline constexpr std::chrono::hours kNoTimeLimit{24 * 365};

// What the communicator of one rank on one of several hosts is made of.
struct HierarchicalParts {
  // Of all ranks, made by make_tcp_communicator with the timeout kNoTimeLimit.
  std::unique_ptr<Communicator> tcp;
  // Of the ranks of this host, in the order of their ranks among all.
  std::unique_ptr<HostCommunicator> host;
  // hosts[r] is the host of rank r, of which there are two or more, in any numbers.
  std::vector<int> hosts;
  // How long a rank waits for the others in a call; for ever without one. Then it asks where all
  // are, for two seconds at most, and names those that do not answer or have not made the call.
  std::optional<std::chrono::milliseconds> limit;
  // Asked while the group forms, on a thread of its own: what it throws ends that. Ranks wait for
  // each other meanwhile, without a limit, and for one that is stopped in vain.
  std::function<void()> check = {};
};

// The communicator of one rank of a group that spans hosts of which some have several ranks. All
// ranks call it together.
//
// Reductions, broadcasts, all-gathers and barriers go through shared memory within a host and over
// TCP between hosts, on as many connections as the largest host has ranks, so that all ranks work
// and everything crosses between two hosts once. A reduction combines the ranks of each host in
// their order, then the hosts: all ranks get the same bits, and the same in every group of this
// shape, but not those of a backend of one level. All other calls and all messages go over TCP.
// Every two ranks have two TCP communicators in common, for these and for the end of the group.
//
// What goes wrong on one level ends the group on both, and for all ranks, with one error that calls
// ranks by their numbers in the group.
std::unique_ptr<Communicator> make_hierarchical_communicator(HierarchicalParts parts);

}  // namespace cohort
