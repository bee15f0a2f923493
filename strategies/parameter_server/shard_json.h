#pragma once

#include <nlohmann/json.hpp>

#include "strategies/parameter_server/shard.h"

// What the manifest of a snapshot says of a shard, all but where its tensors are.
namespace cohort::parameter_server {

nlohmann::json json_of(const ShardState& state);

// The shard without its parts, and the rows in use. What is no such description is an Error, or an
// exception of the JSON library.
ShardState shard_in(const nlohmann::json& json);

}  // namespace cohort::parameter_server
