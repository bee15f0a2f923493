#include "strategies/parameter_server/reshard.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "strategies/parameter_server/partitioner.h"
#include "strategies/parameter_server/same_shard.h"
#include "strategies/parameter_server/variable_rows.h"

namespace cohort::parameter_server {
namespace {

// Whether they have rows in common.
bool overlap(const ShardSpec& a, const ShardSpec& b) {
  return std::max(a.begin, b.begin) < std::min(a.begin + a.rows, b.begin + b.rows);
}

// The rows of a wanted shard, by the numbers that a saved one gives its own.
RowRange range_in(const ShardSpec& saved, const ShardSpec& wanted) {
  const int64_t begin = wanted.begin - saved.begin;
  return {begin, begin + wanted.rows};
}

// Of a table: which of a saved shard's rows in use, `ids`, the wanted one has.
RowRange in_use_of(const ShardSpec& wanted, const ShardSpec& saved,
                   const std::vector<int64_t>& ids) {
  const auto [begin, end] = within(ids, range_in(saved, wanted));
  return {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
}

// How many these are in all.
int64_t count_rows(const ShardSpec& wanted, const std::vector<SavedShard>& saved) {
  int64_t count = 0;
  for (const SavedShard& one : saved)
    count += in_use_of(wanted, one.about.spec, one.load_row_ids()).rows();
  return count;
}

// Some of those that `from` has in use; they are `to`'s from `place` on.
void read_rows(const SavedShard& from, const RowRange& rows, ShardState& to, int64_t place) {
  const size_t before = static_cast<size_t>(place) * to.spec.row_bytes();
  for (int part = 0; part < to.spec.num_parts(); ++part)
    from.read_rows(part, rows,
                   static_cast<char*>(to.parts[static_cast<size_t>(part)].raw()) + before);
}

// Those that both have: there are some.
void read_common_rows(const SavedShard& from, ShardState& to) {
  const ShardSpec& saved = from.about.spec;
  const RowRange wanted = range_in(saved, to.spec);
  const RowRange rows{std::max<int64_t>(wanted.begin, 0), std::min(wanted.end, saved.rows)};
  read_rows(from, rows, to, rows.begin - wanted.begin);
}

// The same of a table, where there may be none in use.
void append_rows(const SavedShard& from, ShardState& to) {
  const std::vector<int64_t> ids = from.load_row_ids();
  const RowRange rows = in_use_of(to.spec, from.about.spec, ids);
  read_rows(from, rows, to, static_cast<int64_t>(to.row_ids->size()));
  const int64_t first = range_in(from.about.spec, to.spec).begin;
  for (int64_t i = rows.begin; i < rows.end; ++i)
    to.row_ids->push_back(ids[static_cast<size_t>(i)] - first);
}

// `rows` in use, from those that overlap with it, one after the other.
ShardState load_rows(ShardState to, int64_t rows, const std::vector<SavedShard>& saved) {
  const bool lazy = to.spec.lazy.has_value();
  const TensorSpec part = lazy ? to.spec.rows_spec(rows) : to.spec.spec();
  for (int i = 0; i < to.spec.num_parts(); ++i) to.parts.emplace_back(part.dtype, part.shape);
  if (lazy) to.row_ids.emplace();
  for (const SavedShard& one : saved) {
    if (lazy)
      append_rows(one, to);
    else
      read_common_rows(one, to);
  }
  return to;
}

// kInvalidArgument unless the saved shards have every row of the wanted one. They are in order.
void require_cover(const ShardSpec& wanted, const std::vector<SavedShard>& saved) {
  int64_t covered = wanted.begin;
  for (const SavedShard& one : saved)
    if (one.about.spec.begin <= covered)
      covered = std::max(covered, one.about.spec.begin + one.about.spec.rows);
  if (covered < wanted.begin + wanted.rows)
    invalid("the snapshot lacks row ", covered, " of variable \"", wanted.variable, '"');
}

}  // namespace

std::optional<AssembledShard> assemble(const ShardSpec& wanted,
                                       const std::vector<SavedShard>& saved) {
  bool is_there = false;
  std::vector<SavedShard> sources;
  ShardState result{.spec = wanted};
  for (const SavedShard& one : saved) {
    const ShardSpec& spec = one.about.spec;
    if (spec.variable != wanted.variable) continue;
    if (spec.whole != wanted.whole || spec.lazy.has_value() != wanted.lazy.has_value())
      invalid("variable \"", wanted.variable, "\" is ", wanted.whole,
              wanted.lazy ? " with rows on first use" : "", ", in the snapshot ", spec.whole,
              spec.lazy ? " with rows on first use" : "");
    is_there = true;
    result.version = std::max(result.version, one.about.version);
    result.updates = std::max(result.updates, one.about.updates);
    if (!overlap(spec, wanted)) continue;
    require_same_contents(wanted, spec);
    sources.push_back(one);
  }
  if (!is_there) return std::nullopt;
  std::ranges::sort(sources, {}, [](const SavedShard& one) { return one.about.spec.begin; });
  require_cover(wanted, sources);
  const int64_t rows = wanted.lazy ? count_rows(wanted, sources) : wanted.rows;
  return AssembledShard{.rows = rows,
                        .load = [result = std::move(result), rows, sources = std::move(sources)] {
                          return load_rows(result, rows, sources);
                        }};
}

}  // namespace cohort::parameter_server
