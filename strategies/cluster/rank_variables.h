#pragma once

#include <string>

#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/environment.h"

namespace cohort::config {

// The variables in which a launcher tells ranks; the last two need not be set.
struct RankVariables {
  std::string rank, size, local_rank, local_size;
};

// A worker for each rank, and whatever the variables say. Where fewer ranks are on this host than
// there are, the others are on further hosts.
ClusterFacts read_ranks(const std::string& launcher, const RankVariables& variables,
                        const Environment& environment);

// The leader's address: MASTER_ADDR, and MASTER_PORT plus `offset`. Both must be set.
void read_master(ClusterFacts& facts, const Environment& environment, int offset = 0);

}  // namespace cohort::config
