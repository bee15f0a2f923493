// Of a shard, what is read of it, and what is written to it without a gradient.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "core/base/error.h"
#include "strategies/parameter_server/finite.h"
#include "strategies/parameter_server/shard.h"

namespace cohort::parameter_server {
namespace {

// Whether nobody reads the memory any more. Counting one more owner puts the last access of another
// thread before ours, which reading the count does not.
bool is_free(const Tensor& tensor) {
  if (!tensor.defined() || tensor.use_count() > 1) return false;
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the owner that is counted
  [[maybe_unused]] const Tensor owner = tensor;
  return true;
}

// Whether an optimizer moves it. What is only added up may overflow, and nothing is trained by it.
bool is_trained(const ShardSpec& spec) {
  const bool has_update = !spec.update.dense.empty() || !spec.update.by_rows.empty();
  return has_update && !only_adds(spec.update, spec.spec());
}

// Whether rows that are made on first use are finite, where it makes such.
bool makes_finite_rows(const ShardSpec& spec) {
  return !spec.lazy || (std::isfinite(spec.lazy->a) && std::isfinite(spec.lazy->b));
}

}  // namespace

ShardValue Shard::pull(const std::string& task) {
  if (table_)
    invalid("shard \"", spec_.name, "\" makes its rows on first use: pull the rows you need");
  const std::lock_guard lock(mutex_);
  if (published_.version != version_) {
    const TensorSpec spec = spec_.spec();
    if (!is_free(published_.value))
      published_.value = Tensor(spec.dtype, spec.shape, environment_.buffers->take(spec.bytes()));
    if (spec.bytes() > 0) std::memcpy(published_.value.raw(), storage(0).raw(), spec.bytes());
    published_.version = version_;
  }
  if (compensates_) pulled_[task] = published_;
  return published_;
}

std::optional<LiveValue> Shard::live() const {
  if (guard_ == nullptr || compensates_) return std::nullopt;
  const std::shared_lock lock(mutex_);
  return LiveValue{.value = storage(0), .sequence = guard_->sequence(), .version = version_};
}

uint64_t Shard::pull_into(int part, const std::string& task, void* target) {
  if (part == 0 && compensates_) {
    const ShardValue published = pull(task);
    std::memcpy(target, published.value.raw(), published.value.bytes());
    return published.version;
  }
  if (table_)
    invalid("shard \"", spec_.name, "\" makes its rows on first use: pull the rows you need");
  const std::shared_lock lock(mutex_);
  std::memcpy(target, storage(require_part(part)).raw(), spec_.spec().bytes());
  return version_;
}

Tensor Shard::part(int part) const {
  if (table_) invalid("shard \"", spec_.name, "\" makes its rows on first use");
  const std::shared_lock lock(mutex_);
  return storage(require_part(part)).clone();
}

void Shard::read_row(int part, int64_t row, char* target) const {
  if (table_)
    table_->read(part, row, target);
  else
    std::memcpy(target,
                static_cast<const char*>(storage(part).raw()) +
                    static_cast<size_t>(row) * spec_.row_bytes(),
                spec_.row_bytes());
}

void Shard::forget_pulled(const std::string& task) {
  if (!compensates_) return;
  const std::lock_guard lock(mutex_);
  pulled_.erase(task);
}

uint64_t Shard::pull_rows(int part, std::span<const int64_t> rows, char* target) const {
  require_rows(rows);
  require_part(part);
  const std::shared_lock lock(mutex_);
  for (const int64_t row : rows) {
    read_row(part, row, target);
    target += spec_.row_bytes();
  }
  return version_;
}

bool Shard::is_due(const Writer& writer) const {
  refuse_if_retired(writer.start);
  return is_new(writer.task + kWrites, writer.mark);
}

template <typename What>
void Shard::begin_write(const Writer& writer, const What& what) {
  Marks mark = {{writer.task + kWrites, writer.mark}};
  record(mark, what);
  set_marks(std::move(mark));
}

void Shard::require_value(const Tensor& value) const {
  if (table_)
    invalid("shard \"", spec_.name, "\" makes its rows on first use, and cannot be assigned");
  if (!(value.spec() == spec_.spec()))
    invalid("shard \"", spec_.name, "\" is ", spec_.spec(), ", got ", value.spec());
}

void Shard::overwrite(const AssignedPart& assigned) {
  const ValueWriting writing(guard_);
  storage(assigned.part).assign(assigned.value);
  if (assigned.part > 0) updates_ = 0;
  drop_round();
  ++version_;
}

uint64_t Shard::assign(const Writer& writer, int part, const Tensor& value) {
  const AssignedPart assigned{.part = require_part(part), .value = value};
  require_value(value);
  const std::lock_guard lock(mutex_);
  if (!is_due(writer)) return version_;
  begin_write(writer, assigned);
  overwrite(assigned);
  return version_;
}

void Shard::require_table() const {
  if (!spec_.lazy)
    invalid("shard \"", spec_.name, "\" has all its rows: it is read and assigned whole");
}

std::vector<int64_t> Shard::rows_after(int64_t after, size_t most) const {
  require_table();
  const std::shared_lock lock(mutex_);
  return table_->ids(after, most);
}

uint64_t Shard::assign_rows(const Writer& writer, int part, std::span<const int64_t> rows,
                            const char* values, bool reset) {
  return write(writer, {.part = part,
                        .reset = reset,
                        .rows = rows,
                        .values = values,
                        .value_bytes = rows.size() * spec_.row_bytes()});
}

uint64_t Shard::add_missing_rows(const Writer& writer, std::span<const int64_t> rows,
                                 const char* values) {
  return write(writer, {.only_missing = true,
                        .rows = rows,
                        .values = values,
                        .value_bytes = rows.size() * spec_.row_bytes()});
}

uint64_t Shard::write(const Writer& writer, const AssignedRows& assigned) {
  require_table();
  require_part(assigned.part);
  require_rows(assigned.rows);
  const std::lock_guard lock(mutex_);
  if (!is_due(writer)) return version_;
  const std::vector<int64_t> made = table_->make(assigned.rows);  // what may fail comes first
  or_forget(made, [&] { begin_write(writer, assigned); });
  overwrite(assigned, made);
  return version_;
}

void Shard::overwrite(const AssignedRows& assigned, std::span<const int64_t> made) {
  const auto& [part, reset, only_missing, rows, values, bytes] = assigned;
  if (reset) table_->reset(part);
  for (size_t i = 0; i < rows.size(); ++i)
    if (!only_missing || std::ranges::binary_search(made, rows[i]))
      std::memcpy(table_->at(part, rows[i]), values + i * spec_.row_bytes(), spec_.row_bytes());
  if (only_missing) return;
  if (part > 0) updates_ = 0;
  drop_round();
  ++version_;
}

void Shard::make_room(int64_t rows) {
  const std::lock_guard lock(mutex_);
  if (table_) table_->make_room(rows);
}

void Shard::drop_room() {
  const std::lock_guard lock(mutex_);
  if (table_) table_->drop_room();
}

void Shard::restore(ShardState state) {
  const bool finite = is_finite(state.parts[0]);
  const std::lock_guard lock(mutex_);
  if (table_) {
    const std::vector<int64_t>& rows = *state.row_ids;
    table_->replace(rows);  // what may fail comes first
    for (int part = 0; part < spec_.num_parts(); ++part) {
      const auto* source = static_cast<const char*>(state.parts[static_cast<size_t>(part)].raw());
      for (size_t i = 0; i < rows.size(); ++i)
        std::memcpy(table_->at(part, rows[i]), source + i * spec_.row_bytes(), spec_.row_bytes());
    }
  } else {
    const ValueWriting writing(guard_);
    for (int part = 0; part < spec_.num_parts(); ++part)
      storage(part).assign(state.parts[static_cast<size_t>(part)]);
  }
  // A version that was seen here must not come again with another value.
  version_ = std::max(version_ + 1, state.version);
  was_finite_ = finite;
  updates_ = state.updates;
  marks_ = std::move(state.marks);
  drop_round();
  published_.version = 0;
  pulled_.clear();
}

ShardState Shard::state() const {
  const std::shared_lock lock(mutex_);
  ShardState state{
      .spec = spec_, .birth = birth_, .version = version_, .updates = updates_, .marks = marks_};
  // Gradients that wait for others are not part of it.
  for (const auto& [task, before] : round_.tasks()) {
    if (before)
      state.marks[task] = *before;
    else
      state.marks.erase(task);
  }
  if (!table_) {
    for (int part = 0; part < spec_.num_parts(); ++part)
      state.parts.push_back(storage(part).clone());
    return state;
  }
  state.row_ids = table_->ids();
  const auto rows = static_cast<int64_t>(state.row_ids->size());
  for (int part = 0; part < spec_.num_parts(); ++part) {
    Tensor values(spec_.whole.dtype, spec_.whole.shape.with_dim(0, rows));
    auto* target = static_cast<char*>(values.raw());
    for (const int64_t row : *state.row_ids) {
      table_->read(part, row, target);
      target += spec_.row_bytes();
    }
    state.parts.push_back(std::move(values));
  }
  return state;
}

bool Shard::has_diverged(const ShardState& state) {
  if (is_finite(state.parts[0])) {
    was_finite_ = true;
    return false;
  }
  return was_finite_ && is_trained(spec_) && makes_finite_rows(spec_);
}

}  // namespace cohort::parameter_server
