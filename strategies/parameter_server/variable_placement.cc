#include "strategies/parameter_server/variable_placement.h"

#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

constexpr int64_t kMinShardBytes = 256 << 10;
// What a shard of a table whose rows are made on first use counts for, where shards are placed.
constexpr int64_t kLazyShardBytes = 1 << 20;

}  // namespace

VariablePlacement::VariablePlacement(Partitioner partitioner, Load load, int num_servers)
    : partitioner_(std::move(partitioner)),
      load_(std::move(load)),
      num_servers_(num_servers),
      placement_(num_servers) {}

Partitioner VariablePlacement::partitioner_for(bool lazy) const {
  if (partitioner_) return partitioner_;
  return lazy ? FixedShardsPartitioner(num_servers_)
              : MinSizePartitioner(kMinShardBytes, num_servers_);
}

int64_t VariablePlacement::shards_of(const VariableOptions& variable, bool lazy) const {
  try {
    return num_shards(partitioner_for(lazy), variable.spec);
  } catch (const Error& error) {
    throw error.with_context(str("variable \"", variable.name, '"'));
  }
}

ShardLoad VariablePlacement::load_of(const VariableOptions& variable, int64_t bytes) const {
  if (!load_) return {.bytes = bytes, .traffic = bytes};
  const ShardLoad load = load_(variable.name, variable.spec);
  if (load.bytes < 0 || load.traffic < 0)
    invalid("Options::load says of variable \"", variable.name, "\" ", load.bytes, " bytes and ",
            load.traffic, " of traffic; both are 0 at least");
  return load;
}

std::vector<int> VariablePlacement::by_name(const VariableOptions& variable) const {
  const int64_t first = crc32c(variable.name), shards = shards_of(variable, false);
  std::vector<int> servers;
  for (int64_t i = 0; i < shards; ++i)
    servers.push_back(static_cast<int>((first + i) % num_servers_));
  return servers;
}

std::vector<int> VariablePlacement::place(const VariableOptions& variable, bool lazy,
                                          std::optional<int> neighbour) {
  const int64_t shards = neighbour ? 1 : shards_of(variable, lazy);
  const ShardLoad all = load_of(
      variable, lazy ? shards * kLazyShardBytes : static_cast<int64_t>(variable.spec.bytes()));
  const ShardLoad each{.bytes = all.bytes / shards, .traffic = all.traffic / shards};
  const std::lock_guard lock(mutex_);
  if (neighbour) {
    placement_.add(*neighbour, each);
    return {*neighbour};
  }
  std::vector<int> servers;
  for (int64_t i = 0; i < shards; ++i) servers.push_back(placement_.place(each));
  return servers;
}

}  // namespace cohort::parameter_server
