#pragma once

#include <string>

#include "strategies/parameter_server/shard_spec.h"

namespace cohort::parameter_server {

// kInvalidArgument where a shard that is there is not the one that is wanted, with what differs of
// both: rows, slots, or rows on first use.
void require_same(const ShardSpec& present, const ShardSpec& wanted);

// kInvalidArgument where its update computes something else than the one that is wanted: then the
// optimizers have other constants, or another weight decay. `snapshot_folder` is where the present
// one may be from, empty: nowhere. The wanted one's bytes may be hostile: as import_function.
void require_same_update(const ShardSpec& present, const ShardSpec& wanted,
                         const std::string& snapshot_folder);

}  // namespace cohort::parameter_server
