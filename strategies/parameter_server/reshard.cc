#include "strategies/parameter_server/reshard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "strategies/parameter_server/same_shard.h"

namespace cohort::parameter_server {
namespace {

// Those that both have: there are some.
void copy_rows(const ShardState& from, ShardState& to) {
  const ShardSpec& wanted = to.spec;
  const int64_t begin = std::max(from.spec.begin, wanted.begin),
                end = std::min(from.spec.begin + from.spec.rows, wanted.begin + wanted.rows);
  const size_t row = wanted.row_bytes();
  for (int part = 0; part < wanted.num_parts(); ++part) {
    const Tensor& source = from.parts[static_cast<size_t>(part)];
    std::memcpy(
        static_cast<char*>(to.parts[static_cast<size_t>(part)].raw()) +
            static_cast<size_t>(begin - wanted.begin) * row,
        static_cast<const char*>(source.raw()) + static_cast<size_t>(begin - from.spec.begin) * row,
        static_cast<size_t>(end - begin) * row);
  }
}

// Whether they have rows in common.
bool overlap(const ShardSpec& a, const ShardSpec& b) {
  return std::max(a.begin, b.begin) < std::min(a.begin + a.rows, b.begin + b.rows);
}

// The number in `to` of a row of `from`; nothing where it has no such row.
std::optional<int64_t> moved(int64_t row, const ShardSpec& from, const ShardSpec& to) {
  const int64_t number = row + from.begin - to.begin;
  return number < 0 || number >= to.rows ? std::nullopt : std::optional(number);
}

// Of a table: those that are in use.
int64_t count_rows(const ShardSpec& wanted, const std::vector<SavedShard>& saved) {
  int64_t count = 0;
  for (const SavedShard& one : saved)
    count += std::ranges::count_if(one.load_row_ids(), [&](int64_t row) {
      return moved(row, one.about.spec, wanted).has_value();
    });
  return count;
}

// The same, themselves.
void append_rows(const ShardState& from, ShardState& to) {
  const size_t bytes = to.spec.row_bytes();
  for (size_t i = 0; i < from.row_ids->size(); ++i) {
    const auto row = moved((*from.row_ids)[i], from.spec, to.spec);
    if (!row) continue;
    const size_t place = to.row_ids->size();
    to.row_ids->push_back(*row);
    for (size_t part = 0; part < to.parts.size(); ++part)
      std::memcpy(static_cast<char*>(to.parts[part].raw()) + place * bytes,
                  static_cast<const char*>(from.parts[part].raw()) + i * bytes, bytes);
  }
}

// From those that overlap with it, one after the other.
ShardState load_rows(ShardState to, const std::vector<SavedShard>& saved) {
  const TensorSpec& whole = to.spec.whole;
  int64_t most = 0;
  for (const SavedShard& one : saved) most += one.rows;
  const Shape shape = to.spec.lazy ? whole.shape.with_dim(0, most) : to.spec.spec().shape;
  for (int part = 0; part < to.spec.num_parts(); ++part) to.parts.emplace_back(whole.dtype, shape);
  if (to.spec.lazy) to.row_ids.emplace();
  for (const SavedShard& one : saved) {
    if (to.spec.lazy)
      append_rows(one.load(), to);
    else
      copy_rows(one.load(), to);
  }
  if (!to.spec.lazy) return to;
  const auto rows = static_cast<int64_t>(to.row_ids->size());
  for (Tensor& part : to.parts) part = part.slice_rows(0, rows);
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
                        .load = [result = std::move(result), sources = std::move(sources)] {
                          return load_rows(result, sources);
                        }};
}

}  // namespace cohort::parameter_server
