#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/variable.h"
#include "strategies/parameter_server/partitioner.h"
#include "strategies/parameter_server/placement.h"

namespace cohort::parameter_server {

// Into how many shards new variables are cut, and which servers get these. Every worker that makes
// the same variables in the same order finds the same servers. Thread-safe.
class VariablePlacement {
 public:
  using Load = std::function<ShardLoad(const std::string& name, const TensorSpec& spec)>;

  // Both may be empty: ParameterServerStrategy::Options says what counts then.
  VariablePlacement(Partitioner partitioner, Load load, int num_servers);

  // The server of each shard: of one alone where there is a `neighbour`, on whose server it goes.
  // `lazy`: a table whose rows are made on first use.
  std::vector<int> place(const VariableOptions& variable, bool lazy, std::optional<int> neighbour);
  // The same for a variable that may never get there, and must not move others.
  std::vector<int> by_name(const VariableOptions& variable) const;

 private:
  Partitioner partitioner_for(bool lazy) const;
  int64_t shards_of(const VariableOptions& variable, bool lazy) const;
  // Of all shards of a variable together.
  ShardLoad load_of(const VariableOptions& variable, int64_t bytes) const;

  const Partitioner partitioner_;
  const Load load_;
  const int num_servers_;
  std::mutex mutex_;  // guards the next
  Placement placement_;
};

}  // namespace cohort::parameter_server
