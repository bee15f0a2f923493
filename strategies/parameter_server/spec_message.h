#pragma once

#include <span>
#include <string>

#include "strategies/parameter_server/shard_spec.h"

namespace cohort::parameter_server::proto {
class Create;
}  // namespace cohort::parameter_server::proto

namespace cohort::parameter_server {

// Shards as messages. Reading checks numbers and shapes; ShardSpec::check() the rest.
void write_shard_spec(const ShardSpec& spec, proto::Create* out);
ShardSpec read_shard_spec(const proto::Create& in);

// What a message with tensors of this spec says of them.
template <typename Message>
void write_tensor_spec(const TensorSpec& spec, Message* out) {
  out->add_spec(static_cast<int>(spec.dtype));
  for (const int64_t extent : spec.shape) out->add_spec(extent);
}
// kInvalidArgument where a message says so of tensors that have to be `wanted`, with both specs.
// `what` shard they are: "the gradient for". May be hostile; one that says nothing may be anything.
void require_tensor_spec(const char* what, const std::string& shard, std::span<const int64_t> said,
                         const TensorSpec& wanted);
template <typename Message>
void require_tensor_spec(const char* what, const std::string& shard, const Message& in,
                         const TensorSpec& wanted) {
  const std::span said(in.spec().data(), static_cast<size_t>(in.spec_size()));
  require_tensor_spec(what, shard, said, wanted);
}

}  // namespace cohort::parameter_server
