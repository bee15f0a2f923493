#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "strategies/parameter_server/snapshot.h"

namespace cohort::parameter_server {

// A shard that is put together from those of a snapshot.
struct AssembledShard {
  int64_t rows = 0;  // that it has in use
  // Does so. No other rows are read.
  std::function<ShardState()> load;
};

// From those of a snapshot, whatever rows each of these has: value and slots, without marks, which
// belong to the old shards. Nothing where the snapshot lacks the variable; kInvalidArgument where
// it has another one of that name, without some rows, with other slots or another initializer of
// rows on first use (require_same_contents), or a table of rows for what is none.
std::optional<AssembledShard> assemble(const ShardSpec& wanted,
                                       const std::vector<SavedShard>& saved);

}  // namespace cohort::parameter_server
