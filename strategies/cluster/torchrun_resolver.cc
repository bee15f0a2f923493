#include "strategies/cluster/torchrun_resolver.h"

#include "strategies/cluster/rank_variables.h"

namespace cohort {
namespace {

ClusterFacts read(const Environment& environment) {
  ClusterFacts facts = config::read_ranks(
      "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, environment);
  const bool port_taken = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  config::read_master(facts, environment, port_taken ? 1 : 0);
  return facts;
}

}  // namespace

TorchrunResolver::TorchrunResolver(const Environment& environment)
    : ClusterResolver(read(environment)) {}

}  // namespace cohort
