#pragma once

#include <string>
#include <vector>

#include "strategies/parameter_server/shard.h"

// Shards on disk. A snapshot is a folder with a file "shards-<n>.safetensors" of all tensors and a
// file "snapshot.json" that names it, with its size and the CRC-32C of each tensor, and says all
// else about each shard: which rows of which variable it has, its update, version and marks. The
// latter is replaced last, so that a folder always has a whole snapshot: the new one or the one
// before.
namespace cohort::parameter_server {

inline constexpr char kSnapshotFile[] = "snapshot.json";

void write_snapshot(const std::string& folder, const std::vector<ShardState>& shards);

// kNotFound where the folder has none; kDataLoss naming the file, and the tensor, that is not as it
// was written. The contents may be hostile.
std::vector<ShardState> read_snapshot(const std::string& folder);

// Those of all folders in a folder, such as one for each server. kInvalidArgument, naming both,
// where two have the same row of a variable: one of them is from another time.
std::vector<ShardState> read_snapshots(const std::string& folder);

// Removes the snapshot in a folder, and then the folder if it has nothing else. Whether there was
// one that could be removed.
bool remove_snapshot(const std::string& folder);

}  // namespace cohort::parameter_server
