#include "strategies/parameter_server/spec_message.h"

#include <algorithm>

#include "core/base/error.h"
#include "proto/parameter_server.pb.h"

namespace cohort::parameter_server {
namespace {

DType read_dtype(int64_t number) {
  if (number < 0 || number >= kNumDTypes) invalid(number, " is not a dtype");
  return static_cast<DType>(number);
}

}  // namespace

void write_shard_spec(const ShardSpec& spec, proto::Create* out) {
  out->set_shard(spec.name);
  out->set_variable(spec.variable);
  out->set_dtype(static_cast<int>(spec.whole.dtype));
  for (const int64_t extent : spec.whole.shape) out->add_shape(extent);
  out->set_begin(spec.begin);
  out->set_rows(spec.rows);
  for (const auto& slot : spec.update.slots) {
    proto::Slot& written = *out->add_slots();
    written.set_name(slot.name);
    written.set_initial(slot.initial);
  }
  out->set_update(spec.update.dense);
  out->set_row_update(spec.update.by_rows);
  out->set_row_block(spec.update.row_block);
  if (!spec.lazy) return;
  proto::RowInitializer& lazy = *out->mutable_lazy();
  lazy.set_kind(static_cast<int>(spec.lazy->kind));
  lazy.set_a(spec.lazy->a);
  lazy.set_b(spec.lazy->b);
  lazy.set_seed(spec.lazy->seed);
  lazy.set_max_rows(spec.lazy->max_rows);
}

ShardSpec read_shard_spec(const proto::Create& in) {
  ShardSpec spec{
      .name = in.shard(),
      .variable = in.variable(),
      .whole = {read_dtype(in.dtype()),
                Shape(std::span<const int64_t>(in.shape().data(),
                                               static_cast<size_t>(in.shape_size())))},
      .begin = in.begin(),
      .rows = in.rows(),
      .update = {.dense = in.update(), .by_rows = in.row_update(), .row_block = in.row_block()}};
  for (const auto& slot : in.slots()) spec.update.slots.push_back({slot.name(), slot.initial()});
  if (in.has_lazy()) {
    if (in.lazy().kind() < 0 || in.lazy().kind() > static_cast<int>(RowInitializer::Kind::kNormal))
      invalid(in.lazy().kind(), " is no initializer of rows");
    spec.lazy = RowInitializer{.kind = static_cast<RowInitializer::Kind>(in.lazy().kind()),
                               .a = in.lazy().a(),
                               .b = in.lazy().b(),
                               .seed = in.lazy().seed(),
                               .max_rows = in.lazy().max_rows()};
  }
  return spec;
}

void require_tensor_spec(const char* what, const std::string& shard, std::span<const int64_t> said,
                         const TensorSpec& wanted) {
  if (said.empty()) return;
  const std::span<const int64_t> extents = said.subspan(1);
  if (said[0] == static_cast<int>(wanted.dtype) && std::ranges::equal(extents, wanted.shape))
    return;
  invalid(what, " shard \"", shard, "\" is ", TensorSpec{read_dtype(said[0]), Shape(extents)},
          ", and has to be ", wanted);
}

}  // namespace cohort::parameter_server
