#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/environment.h"
#include "strategies/cluster/reachability.h"
#include "strategies/cluster/resolve_cluster.h"

namespace cohort {

// What was resolved, who can be reached now, and whether this task may take part at all.
struct ClusterCheck {
  struct Peer {
    std::string name;                // "worker:1", or "leader"
    std::optional<Address> address;  // of a leader that has to be there, perhaps not known
    Reachability reachability;
  };

  ResolvedCluster cluster;
  // Nothing for a parameter server, and where `refusal` says why there is no rank.
  std::optional<World> world;
  std::vector<Peer> peers;
  // The COHORT_... variables that are set. The value of COHORT_JOB_ID, which only the tasks of the
  // job have to know, is left out.
  std::vector<Fact> settings;
  // What this task would end with, whoever else can be reached: the cluster gives it no rank, its
  // traffic would go in plain text where nobody allows that, others would look for it on their own
  // hosts, or the leader, asked now, refuses it. Nothing where all is well.
  std::optional<Error> refusal;

  // For people and for programs.
  std::string table() const;
  std::string json() const;
  // Names of the peers that cannot be reached.
  std::vector<std::string> unreachable() const;
};

// Tries every task of the cluster, or the leader alone where no others are known; the leader is
// asked whether it would take this task (coordination::ask_leader()). Of this task itself it asks
// whether it could listen. A leader that other tasks need and nobody tells of cannot be reached. A
// timeout of zero tries nobody, and looks up no names. Certificates are read from where
// `environment` says: the errors of coordination::Security; and kInvalidArgument for any other
// setting there with which a program would end.
ClusterCheck check_cluster(ResolvedCluster cluster, std::chrono::milliseconds timeout,
                           const Environment& environment = process_environment);

}  // namespace cohort
