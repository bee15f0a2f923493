#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "strategies/cluster/reachability.h"
#include "strategies/cluster/resolve_cluster.h"

namespace cohort {

// What was resolved, and who can be reached now.
struct ClusterCheck {
  struct Peer {
    std::string name;                // "worker:1", or "leader"
    std::optional<Address> address;  // of a leader that has to be there, perhaps not known
    Reachability reachability;
  };

  ResolvedCluster cluster;
  std::vector<Peer> peers;

  // For people and for programs.
  std::string table() const;
  std::string json() const;
  // Names of the peers that cannot be reached.
  std::vector<std::string> unreachable() const;
};

// Tries every task of the cluster, or the leader alone where no others are known. Of this task
// itself it asks whether it could listen. A leader that other tasks need and nobody tells of cannot
// be reached. A timeout of zero tries nobody.
ClusterCheck check_cluster(ResolvedCluster cluster, std::chrono::milliseconds timeout);

}  // namespace cohort
