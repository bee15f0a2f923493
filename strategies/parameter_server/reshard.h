#pragma once

#include <optional>
#include <vector>

#include "strategies/parameter_server/shard.h"

namespace cohort::parameter_server {

// A shard put together from those of a snapshot, whatever rows each of these has: value and slots,
// without marks, which belong to the old shards. Nothing where the snapshot lacks the variable;
// kInvalidArgument where it has another one of that name, without some rows or slots, or a table of
// rows for what is none.
std::optional<ShardState> assemble(const ShardSpec& wanted, const std::vector<ShardState>& saved);

}  // namespace cohort::parameter_server
