// Of a server variable, its pulls and pushes in calls to the servers, and what they bring.
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "strategies/parameter_server/server_variable.h"
#include "strategies/parameter_server/variable_rows.h"

namespace cohort {
namespace {

using parameter_server::refuse_row;
using parameter_server::rows_of;
using parameter_server::within;

// Adds what goes to a shard's server to its call, and says which one it is there.
template <typename T>
int add_to_call(std::vector<T>& calls, T item) {
  calls.push_back(std::move(item));
  return static_cast<int>(calls.size()) - 1;
}

// Some rows of `whole`, one after the other.
Tensor rows_at(const Tensor& whole, const std::vector<int64_t>& places) {
  Tensor rows(whole.dtype(), whole.shape().with_dim(0, static_cast<int64_t>(places.size())));
  if (places.empty()) return rows;
  const size_t row_bytes = rows.bytes() / places.size();
  auto* to = static_cast<char*>(rows.raw());
  for (const int64_t place : places) {
    std::memcpy(to, static_cast<const char*>(whole.raw()) + static_cast<size_t>(place) * row_bytes,
                row_bytes);
    to += row_bytes;
  }
  return rows;
}

}  // namespace

ShardPull ServerVariable::pull_of(const ServerVariableInfo& info, const ShardState& state,
                                  size_t shard, Calls& calls) {
  calls[static_cast<size_t>(info.servers[shard])].awaited_epochs.push_back(state.last.epoch);
  return {.shard = info.shard_name(shard), .target = {}, .at_least = state.awaited};
}

ServerVariable::Places ServerVariable::add_pull(Calls& calls, const std::vector<int64_t>& rows,
                                                const Tensor& target) {
  const InfoPtr info = make_shards();
  const std::vector<ShardState> states = this->states();
  Places places(num_shards(), -1);
  for (size_t i = 0; i < num_shards(); ++i) {
    const RowRange range = info->shard_range(i);
    const auto [begin, end] = within(rows, range);
    // What moves all rows, or counts everywhere, has to be computed from the present value where
    // no row is looked up, too.
    if (begin == end && info->by_rows && !session_->consistency().synchronous()) continue;
    ShardPull pull = pull_of(*info, states[i], i, calls);
    pull.rows.emplace();
    for (size_t at = begin; at < end; ++at) pull.rows->push_back(rows[at] - range.begin);
    pull.target = target.slice_rows(static_cast<int64_t>(begin), static_cast<int64_t>(end));
    places[i] = add_to_call(calls[static_cast<size_t>(servers_[i])].pulls, std::move(pull));
  }
  return places;
}

ServerVariable::Places ServerVariable::add_pull(Calls& calls) {
  const InfoPtr info = make_shards();
  const std::vector<ShardState> states = this->states();
  const Tensor target = whole_storage();
  Places places(num_shards(), -1);
  for (size_t i = 0; i < num_shards(); ++i) {
    ShardPull pull = pull_of(*info, states[i], i, calls);
    pull.target = rows_of(target, info->shard_range(i));
    pull.at_hand = states[i].in_storage;
    places[i] = add_to_call(calls[static_cast<size_t>(servers_[i])].pulls, std::move(pull));
  }
  return places;
}

void ServerVariable::pulled(const Places& places, const std::vector<UpdateResult>& results,
                            bool into_storage) {
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] < 0) continue;
      const UpdateResult& result = results[static_cast<size_t>(servers_[i])];
      states_[i].last = result.pulled[static_cast<size_t>(places[i])].version;
      states_[i].awaited = 0;
      if (!into_storage) continue;
      states_[i].in_storage = states_[i].last;
      parts_are_current_ &= result.pulled[static_cast<size_t>(places[i])].was_current;
    }
    if (!into_storage || !parts_ || std::exchange(parts_are_current_, true)) return;
  }
  parts_->divide(whole_storage());
}

ServerVariable::Places ServerVariable::add_push(Calls& calls, const Tensor& gradient,
                                                const std::optional<Tensor>& indices,
                                                const PushOptions& options) {
  const InfoPtr info = present_info();
  const std::vector<ShardState> states = this->states();
  Places places(num_shards(), -1);
  const bool is_exact =
      info->update == ServerVariableInfo::Update::kAdd || !is_floating(spec().dtype);
  const auto push = [&](size_t shard, Tensor part, std::optional<std::vector<int64_t>> rows) {
    places[shard] = add_to_call(calls[static_cast<size_t>(servers_[shard])].pushes,
                                ShardPush{.shard = info->shard_name(shard),
                                          .gradient = std::move(part),
                                          .learning_rate = options.learning_rate,
                                          .step = options.step,
                                          .weight = options.weight,
                                          .rows = std::move(rows),
                                          .computed_at = states[shard].last,
                                          .exact = is_exact});
  };
  if (!indices) {
    for (size_t i = 0; i < num_shards(); ++i) push(i, rows_of(gradient, info->shard_range(i)), {});
    return places;
  }
  const auto shard_count = static_cast<int64_t>(num_shards());
  const std::vector<RowRange> ranges = shard_rows(num_rows(), shard_count);
  const Tensor numbers = indices->cast(DType::kInt64);
  std::vector<std::vector<int64_t>> rows(num_shards()), sources(num_shards());
  for (int64_t i = 0; i < numbers.num_elements(); ++i) {
    const int64_t row = numbers.data<int64_t>()[i];
    if (row == -1) continue;
    if (row < 0 || row >= num_rows()) refuse_row(*this, row, 0, ", and -1 for none");
    const auto shard = static_cast<size_t>(shard_of_row(num_rows(), shard_count, row));
    rows[shard].push_back(row - ranges[shard].begin);
    sources[shard].push_back(i);
  }
  for (size_t s = 0; s < num_shards(); ++s) {
    // What may be done again counts for all shards, also where it has other rows then.
    const bool everywhere = session_->consistency().synchronous() || session_->marks_pushes();
    if (rows[s].empty() && !everywhere) continue;
    push(s, rows_at(gradient, sources[s]), std::move(rows[s]));
  }
  return places;
}

void ServerVariable::pushed(const Places& places, const std::vector<UpdateResult>& results) {
  if (!session_->consistency().synchronous() || takes_sums()) return;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0) continue;
    const ShardPushed& pushed =
        results[static_cast<size_t>(servers_[i])].pushed[static_cast<size_t>(places[i])];
    const uint64_t ahead = pushed.outcome == PushOutcome::kCounted ? 1 : 0;
    states_[i].awaited = pushed.outcome == PushOutcome::kLate ? 0 : pushed.version + ahead;
  }
}

void ServerVariable::storage_written() {
  const std::lock_guard lock(mutex_);
  parts_are_current_ = false;
  if (parts_) return;  // the storage is as it was pulled
  for (ShardState& state : states_) state.in_storage = {};
}

}  // namespace cohort
