#pragma once

#include <functional>
#include <vector>

#include "strategies/parameter_server/snapshot.h"

namespace cohort::parameter_server {

// Puts a shard together from those of a snapshot, whatever rows each of these has: value and slots,
// without marks, which belong to the old shards. What is returned does so, with one of those in
// memory at a time. Null where the snapshot lacks the variable; kInvalidArgument where it has
// another one of that name, without some rows or slots, or a table of rows for what is none.
std::function<ShardState()> assemble(const ShardSpec& wanted, const std::vector<SavedShard>& saved);

}  // namespace cohort::parameter_server
