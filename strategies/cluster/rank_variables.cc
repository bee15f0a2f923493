#include "strategies/cluster/rank_variables.h"

#include "core/base/error.h"
#include "strategies/cluster/parsing.h"

namespace cohort::config {
namespace {

// A local number that is allowed and noted where the launcher gives it.
std::optional<int> read_local(ClusterFacts& facts, const std::string& what, const std::string& name,
                              IntegerRange range, const Environment& environment) {
  const auto value = optional_integer(environment, name, range, str(range.min));
  if (value) facts.facts.push_back({what, str(*value), name});
  return value;
}

}  // namespace

ClusterFacts read_ranks(const std::string& launcher, const RankVariables& variables,
                        const Environment& environment) {
  const int size = required_integer(environment, variables.size, {.min = 1, .max = kMaxTasks}, "4");
  const int rank = required_integer(environment, variables.rank, {.min = 0, .max = size - 1}, "0");
  ClusterFacts facts{.launcher = launcher, .task_type = "worker", .task_id = rank};
  facts.facts = {{"rank", str(rank), variables.rank}, {"world size", str(size), variables.size}};
  World world{.rank = rank, .size = size};
  world.local_size =
      read_local(facts, "local size", variables.local_size, {.min = 1, .max = size}, environment);
  world.local_rank =
      read_local(facts, "local rank", variables.local_rank,
                 {.min = 0, .max = world.local_size.value_or(size) - 1}, environment);
  facts.world = world;
  facts.several_hosts = world.local_size.value_or(size) < size;
  return facts;
}

void read_master(ClusterFacts& facts, const Environment& environment, int offset) {
  const std::string host = required_text(environment, "MASTER_ADDR", "10.0.0.1");
  const int port =
      required_integer(environment, "MASTER_PORT", {.min = 1, .max = 65535 - offset}, "29500");
  facts.leader = Address::of(host, port + offset, "MASTER_ADDR");
  facts.facts.push_back({"leader", facts.leader->text(),
                         str("MASTER_ADDR, MASTER_PORT", offset ? str(" + ", offset) : "")});
}

}  // namespace cohort::config
