#pragma once

#include <string>

#include "strategies/parameter_server/shard_spec.h"

namespace cohort::parameter_server {

// kInvalidArgument where a shard that is there is not the one that is wanted, with what differs of
// both: rows, slots, or rows on first use.
void require_same(const ShardSpec& present, const ShardSpec& wanted);

// kInvalidArgument where a shard that is there cannot have the values of one that was saved,
// perhaps with other rows: the variable, its slots or what initializes rows on first use differ.
// How many of these there may be is not compared, so that a snapshot fits where room has been made
// for more.
void require_same_contents(const ShardSpec& present, const ShardSpec& saved);

// kInvalidArgument where its update computes something else than the one that is wanted: then the
// optimizers have other constants, or another weight decay. `snapshot_folder` is where the present
// one may be from, empty: nowhere. The wanted one's bytes may be hostile: as import_function.
void require_same_update(const ShardSpec& present, const ShardSpec& wanted,
                         const std::string& snapshot_folder);

}  // namespace cohort::parameter_server
