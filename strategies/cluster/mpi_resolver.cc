#include "strategies/cluster/mpi_resolver.h"

#include <string>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "strategies/cluster/parsing.h"
#include "strategies/cluster/rank_variables.h"

namespace cohort {
namespace {

struct Family {
  std::string launcher;
  config::RankVariables variables;
};

Family find_family(const Environment& environment) {
  const Family families[] = {
      {"Open MPI",
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {"PMI", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
      {"PMIx", {"PMIX_RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}},
  };
  for (const Family& family : families) {
    if (environment(family.variables.rank)) return family;
  }
  config::refuse("MPI", "none of the variables of its launchers",
                 "OMPI_COMM_WORLD_RANK, PMI_RANK or PMIX_RANK", "mpirun -np 2 PROGRAM");
}

// A leader for ranks that all run here.
void read_local_leader(ClusterFacts& facts, const Environment& environment) {
  // Open MPI's namespace follows from mpirun's process id, which containers that share a network
  // may share as well; its key of the run is random.
  for (const char* name :
       {"OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE", "PMI_JOBID"}) {
    const auto run = environment(name);
    if (!run) continue;
    // Below the ports that systems hand out for outgoing connections.
    facts.leader = Address::of("127.0.0.1", 10000 + crc32c(*run) % 20000);
    facts.facts.push_back({"leader", facts.leader->text(), str("one host, ports of ", name)});
    return;
  }
  facts.leader = Address::of("127.0.0.1", 29500);
  facts.facts.push_back({"leader", facts.leader->text(), "one host, port 29500"});
}

ClusterFacts read(const Environment& environment) {
  const Family family = find_family(environment);
  ClusterFacts facts = config::read_ranks(family.launcher, family.variables, environment);
  if (environment("MASTER_ADDR") || environment("MASTER_PORT")) {
    config::read_master(facts, environment);
  } else if (facts.world->local_size == facts.world->size) {
    read_local_leader(facts, environment);
  } else {
    facts.facts.push_back({"leader", "not known", "neither MASTER_ADDR nor MASTER_PORT is set"});
  }
  return facts;
}

}  // namespace

MpiResolver::MpiResolver(const Environment& environment) : ClusterResolver(read(environment)) {}

}  // namespace cohort
