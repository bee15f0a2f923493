#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/base/flags.h"
#include "strategies/cluster/address.h"

namespace cohort::launcher {

// What the command line says of a job on several hosts.
struct NodeOptions {
  using Seconds = std::chrono::duration<double>;

  int min_nodes = 1, max_nodes = 1;
  int rank = -1;       // --node_rank; -1 without it
  Address rendezvous;  // where the nodes meet
  std::string host;    // by which others reach this node; "": that by which it reaches them
  std::string job_id;
  Seconds join_timeout{600};     // for enough nodes to come
  Seconds last_call{30};         // for further ones
  Seconds node_timeout{10};      // a node that is silent for so long is lost
  int node_failures = 0;         // in a row, after which a node leaves; 0: it never does
  bool allow_plaintext = false;  // --allow_plaintext
};

// Nothing when the job is on this host alone: without --nnodes, or with --nnodes=1 and no
// --rendezvous; the other flags are checked all the same. Errors are kInvalidArgument; flags of
// nodes without --nnodes are one.
std::optional<NodeOptions> parse_node_options(Flags& flags);

}  // namespace cohort::launcher
