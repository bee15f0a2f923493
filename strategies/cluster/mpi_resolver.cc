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

struct RunPort {
  int number;
  std::string source;
};

// The port at which all ranks of a run expect its leader.
RunPort port_of_run(const Environment& environment) {
  // Open MPI's namespace follows from mpirun's process id, which containers that share a network
  // may share as well; its key of the run is random.
  for (const char* name :
       {"OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE", "PMI_JOBID"}) {
    const auto run = environment(name);
    // Below the ports that systems hand out for outgoing connections.
    if (run) return {static_cast<int>(10000 + crc32c(*run) % 20000), str("ports of ", name)};
  }
  return {29500, "port 29500"};
}

void read_leader(ClusterFacts& facts, const Environment& environment, const RankHost& host_of) {
  const RunPort port = port_of_run(environment);
  const bool one_host = facts.world->local_size == facts.world->size;
  try {
    facts.leader =
        Address::of(one_host ? "127.0.0.1" : host_of(0), port.number, "the host of rank 0");
    facts.facts.push_back({"leader", facts.leader->text(),
                           str(one_host ? "one host, " : "rank 0's host by PMIx, ", port.source)});
  } catch (const Error& error) {
    facts.facts.push_back(
        {"leader", "not known", str("MASTER_ADDR is not set, and ", error.message())});
  }
}

ClusterFacts read(const Environment& environment, const RankHost& host_of) {
  const Family family = find_family(environment);
  ClusterFacts facts = config::read_ranks(family.launcher, family.variables, environment);
  if (environment("MASTER_ADDR") || environment("MASTER_PORT")) {
    config::read_master(facts, environment);
  } else {
    read_leader(facts, environment, host_of);
  }
  return facts;
}

}  // namespace

MpiResolver::MpiResolver(const Environment& environment, const RankHost& host_of)
    : ClusterResolver(read(environment, host_of)) {}

}  // namespace cohort
