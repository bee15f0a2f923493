#include "strategies/cluster/torchrun_resolver.h"

#include <string>

#include "strategies/cluster/rank_variables.h"

namespace cohort {
namespace {

// Whether only ranks of the same host find it there.
bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

ClusterFacts read(const Environment& environment) {
  ClusterFacts facts = config::read_ranks(
      "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, environment);
  const bool port_taken = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  config::read_master(facts, environment, port_taken ? 1 : 0);
  // Of several agents on one host, each has counted its own ranks.
  if (is_loopback(facts.leader->host())) facts.several_hosts = false;
  return facts;
}

}  // namespace

TorchrunResolver::TorchrunResolver(const Environment& environment)
    : ClusterResolver(read(environment)) {}

}  // namespace cohort
