#include "strategies/parameter_server/same_shard.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

// So that numbers that differ look different.
std::string exact(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

std::string rows_of(const ShardSpec& spec) {
  return str("rows ", spec.begin, " to ", spec.begin + spec.rows, " of \"", spec.variable, "\" ",
             spec.whole);
}

std::string slots_of(const ShardSpec& spec) {
  std::string text = "slots";
  for (const auto& slot : spec.update.slots)
    text += str(" \"", slot.name, "\" of ", exact(slot.initial));
  return spec.update.slots.empty() ? "no slots" : text;
}

std::string first_use_of(const ShardSpec& spec) {
  if (!spec.lazy) return "all rows from the beginning";
  const RowInitializer& lazy = *spec.lazy;
  return str("rows on first use, ", lazy.max_rows, " at most, from initializer ",
             static_cast<int>(lazy.kind), " of ", exact(lazy.a), " and ", exact(lazy.b),
             " with seed ", lazy.seed);
}

bool same_rows(const ShardSpec& a, const ShardSpec& b) {
  return std::tie(a.variable, a.begin, a.rows) == std::tie(b.variable, b.begin, b.rows) &&
         a.whole == b.whole;
}

bool same_slots(const ShardSpec& a, const ShardSpec& b) {
  return std::ranges::equal(a.update.slots, b.update.slots, [](const auto& x, const auto& y) {
    return x.name == y.name && x.initial == y.initial;
  });
}

bool same_initializer(const ShardSpec& a, const ShardSpec& b) {
  if (!a.lazy || !b.lazy) return a.lazy.has_value() == b.lazy.has_value();
  const RowInitializer &x = *a.lazy, &y = *b.lazy;
  return std::tie(x.kind, x.a, x.b, x.seed) == std::tie(y.kind, y.a, y.b, y.seed);
}

[[noreturn]] void refuse(const ShardSpec& present, const std::string& was, const std::string& is) {
  invalid("shard \"", present.name, "\" has been created with ", was, ", now with ", is);
}

// The spec of the parts that an update by rows changes.
TensorSpec block_of(const ShardSpec& spec) {
  return {spec.whole.dtype, spec.whole.shape.with_dim(0, spec.update.row_block)};
}

bool same_updates(const ShardSpec& a, const ShardSpec& b) {
  return a.update.row_block == b.update.row_block &&
         same_update(a.update.dense, b.update.dense, a.spec()) &&
         (a.update.by_rows == b.update.by_rows ||
          same_update(a.update.by_rows, b.update.by_rows, block_of(a)));
}

}  // namespace

void require_same(const ShardSpec& present, const ShardSpec& wanted) {
  if (!same_rows(present, wanted)) refuse(present, rows_of(present), rows_of(wanted));
  if (!same_slots(present, wanted)) refuse(present, slots_of(present), slots_of(wanted));
  if (present.lazy != wanted.lazy) refuse(present, first_use_of(present), first_use_of(wanted));
}

void require_same_contents(const ShardSpec& present, const ShardSpec& saved) {
  if (present.variable != saved.variable || present.whole != saved.whole)
    refuse(present, rows_of(present), rows_of(saved));
  if (!same_slots(present, saved)) refuse(present, slots_of(present), slots_of(saved));
  if (!same_initializer(present, saved))
    refuse(present, first_use_of(present), first_use_of(saved));
}

void require_same_update(const ShardSpec& present, const ShardSpec& wanted,
                         const std::string& snapshot_folder) {
  if (same_updates(present, wanted)) return;
  const bool was_trained = !present.update.dense.empty() || !present.update.by_rows.empty(),
             is_trained = !wanted.update.dense.empty() || !wanted.update.by_rows.empty();
  if (was_trained != is_trained)
    refuse(present, was_trained ? "an update" : "no update", is_trained ? "one" : "none");
  invalid(
      "the optimizer that moves shard \"", present.name,
      "\" has other constants than the one that it has been created with, such as a momentum, "
      "a beta, an epsilon or a weight decay: give it the same in all workers",
      snapshot_folder.empty()
          ? std::string()
          : str(", and where the shard is from the snapshot in ", snapshot_folder,
                ", the same as then, or another folder, into which a checkpoint can be loaded"));
}

}  // namespace cohort::parameter_server
