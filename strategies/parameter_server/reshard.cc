#include "strategies/parameter_server/reshard.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

// Which part of `saved` is slot `name`; part 0 is the value.
size_t part_named(const ShardState& saved, const ShardSpec& wanted, int part) {
  if (part == 0) return 0;
  const std::string& name = wanted.update.slots[static_cast<size_t>(part - 1)].name;
  const auto& slots = saved.spec.update.slots;
  const auto found = std::ranges::find(slots, name, &optim::UpdateRule::Slot::name);
  if (found == slots.end())
    invalid("the snapshot has no slot \"", name, "\" of variable \"", wanted.variable, '"');
  return static_cast<size_t>(found - slots.begin()) + 1;
}

void copy_rows(const ShardState& from, ShardState& to) {
  const ShardSpec& wanted = to.spec;
  const int64_t begin = std::max(from.spec.begin, wanted.begin),
                end = std::min(from.spec.begin + from.spec.rows, wanted.begin + wanted.rows);
  if (begin >= end) return;
  const size_t row = wanted.row_bytes();
  for (int part = 0; part < wanted.num_parts(); ++part) {
    const Tensor& source = from.parts[part_named(from, wanted, part)];
    std::memcpy(
        static_cast<char*>(to.parts[static_cast<size_t>(part)].raw()) +
            static_cast<size_t>(begin - wanted.begin) * row,
        static_cast<const char*>(source.raw()) + static_cast<size_t>(begin - from.spec.begin) * row,
        static_cast<size_t>(end - begin) * row);
  }
}

// A row that is in use: where it lies in the snapshot.
struct Source {
  int64_t row;  // of the wanted shard
  const ShardState* state;
  size_t place;
};

void collect_rows(const std::vector<const ShardState*>& saved, ShardState& to) {
  std::vector<Source> sources;
  for (const ShardState* state : saved)
    for (size_t i = 0; i < state->row_ids->size(); ++i) {
      const int64_t row = (*state->row_ids)[i] + state->spec.begin - to.spec.begin;
      if (row >= 0 && row < to.spec.rows) sources.push_back({row, state, i});
    }
  std::ranges::sort(sources, {}, &Source::row);
  to.row_ids.emplace();
  for (const Source& source : sources) to.row_ids->push_back(source.row);
  const Shape shape = to.spec.whole.shape.with_dim(0, static_cast<int64_t>(sources.size()));
  const size_t bytes = to.spec.row_bytes();
  for (int part = 0; part < to.spec.num_parts(); ++part) {
    Tensor values(to.spec.whole.dtype, shape);
    auto* target = static_cast<char*>(values.raw());
    for (const Source& source : sources) {
      const Tensor& from = source.state->parts[part_named(*source.state, to.spec, part)];
      std::memcpy(target, static_cast<const char*>(from.raw()) + source.place * bytes, bytes);
      target += bytes;
    }
    to.parts.push_back(std::move(values));
  }
}

// kInvalidArgument unless the saved shards have every row of the wanted one.
void require_cover(const ShardSpec& wanted, std::vector<const ShardState*> saved) {
  std::ranges::sort(saved, {}, [](const ShardState* s) { return s->spec.begin; });
  int64_t covered = wanted.begin;
  for (const ShardState* state : saved)
    if (state->spec.begin <= covered)
      covered = std::max(covered, state->spec.begin + state->spec.rows);
  if (covered < wanted.begin + wanted.rows)
    invalid("the snapshot lacks row ", covered, " of variable \"", wanted.variable, '"');
}

}  // namespace

std::optional<ShardState> assemble(const ShardSpec& wanted, const std::vector<ShardState>& saved) {
  std::vector<const ShardState*> parts;
  ShardState result{.spec = wanted};
  for (const ShardState& state : saved) {
    if (state.spec.variable != wanted.variable) continue;
    if (state.spec.whole != wanted.whole || state.spec.lazy.has_value() != wanted.lazy.has_value())
      invalid("variable \"", wanted.variable, "\" is ", wanted.whole,
              wanted.lazy ? " with rows on first use" : "", ", in the snapshot ", state.spec.whole,
              state.spec.lazy ? " with rows on first use" : "");
    parts.push_back(&state);
    result.version = std::max(result.version, state.version);
    result.updates = std::max(result.updates, state.updates);
  }
  if (parts.empty()) return std::nullopt;
  require_cover(wanted, parts);
  if (wanted.lazy) {
    collect_rows(parts, result);
    return result;
  }
  for (int part = 0; part < wanted.num_parts(); ++part)
    result.parts.emplace_back(wanted.whole.dtype, wanted.spec().shape);
  for (const ShardState* state : parts) copy_rows(*state, result);
  return result;
}

}  // namespace cohort::parameter_server
