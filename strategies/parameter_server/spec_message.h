#pragma once

#include "strategies/parameter_server/shard_spec.h"

namespace cohort::parameter_server::proto {
class Create;
}  // namespace cohort::parameter_server::proto

namespace cohort::parameter_server {

// Shards as messages. Reading checks numbers and shapes; ShardSpec::check() the rest.
void write_shard_spec(const ShardSpec& spec, proto::Create* out);
ShardSpec read_shard_spec(const proto::Create& in);

}  // namespace cohort::parameter_server
