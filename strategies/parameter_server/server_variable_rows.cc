// Of a server variable, its rows by their numbers, outside functions: looked up, listed, assigned
// and taken over from other shards.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "strategies/parameter_server/server_variable.h"
#include "strategies/parameter_server/variable_rows.h"

namespace cohort {
namespace {

using parameter_server::refuse_row;
using parameter_server::within;

// Of rows that are read and written at once.
constexpr int64_t kBlockBytes = 16 << 20;

// So many rows of such a variable.
int64_t block_rows(const TensorSpec& variable) {
  const auto bytes =
      static_cast<int64_t>(TensorSpec{variable.dtype, variable.shape.with_dim(0, 1)}.bytes());
  return std::max<int64_t>(kBlockBytes / std::max<int64_t>(bytes, 1), 1);
}

}  // namespace

Tensor ServerVariable::slice(const RowSlice& rows) const {
  std::vector<int64_t> numbers;
  try {
    numbers = rows.rows(num_rows());
  } catch (const Error& error) {
    throw error.with_context(str("variable \"", name(), '"'));
  }
  return lookup(numbers);
}

Tensor ServerVariable::row(int64_t number) const {
  if (spec().shape.rank() == 0)
    fail(Code::kOutOfRange, "row ", number, " of variable \"", name(), "\" ", spec(),
         ", which has no rows");
  const int64_t rows = num_rows(), place = number < 0 ? number + rows : number;
  if (place < 0 || place >= rows) refuse_row(*this, number, -rows);
  return lookup({place}).reshape(spec().shape.without_axis(0));
}

Tensor ServerVariable::lookup(const std::vector<int64_t>& numbers, int part) const {
  if (spec().shape.rank() == 0)
    invalid("variable \"", name(), "\" ", spec(), " has no rows to be looked up");
  std::vector<int64_t> rows;
  for (const int64_t number : numbers) {
    if (number < -1 || number >= num_rows()) refuse_row(*this, number, 0, ", and -1 for zeros");
    if (number >= 0) rows.push_back(number);
  }
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  const Tensor found(spec().dtype, spec().shape.with_dim(0, static_cast<int64_t>(rows.size())));
  pull_rows(*make_shards(), rows, found, part);
  Tensor result =
      Tensor::zeros(spec().dtype, spec().shape.with_dim(0, static_cast<int64_t>(numbers.size())));
  if (result.bytes() == 0) return result;
  const size_t row_bytes = result.bytes() / numbers.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 0) continue;
    const auto place =
        static_cast<size_t>(std::ranges::lower_bound(rows, numbers[i]) - rows.begin());
    std::memcpy(static_cast<char*>(result.raw()) + i * row_bytes,
                static_cast<const char*>(found.raw()) + place * row_bytes, row_bytes);
  }
  return result;
}

void ServerVariable::pull_rows(const ServerVariableInfo& info, const std::vector<int64_t>& rows,
                               const Tensor& target, int part) const {
  const auto count = static_cast<int64_t>(rows.size()), block = block_rows(spec());
  for (int64_t from = 0; from < count; from += block) {
    const int64_t until = std::min(count, from + block);
    const std::vector<int64_t> some(rows.begin() + from, rows.begin() + until);
    const Tensor values = target.slice_rows(from, until);
    std::vector<ServerSession::Call> calls(static_cast<size_t>(session_->num_servers()));
    for (size_t i = 0; i < num_shards(); ++i) {
      const RowRange range = info.shard_range(i);
      const auto [begin, end] = within(some, range);
      if (begin == end) continue;
      ShardPull pull{
          .shard = info.shard_name(i),
          .target = values.slice_rows(static_cast<int64_t>(begin), static_cast<int64_t>(end)),
          .rows = std::vector<int64_t>(),
          .part = part};
      for (size_t at = begin; at < end; ++at) pull.rows->push_back(some[at] - range.begin);
      calls[static_cast<size_t>(servers_[i])].pulls.push_back(std::move(pull));
    }
    session_->update(calls);
  }
}

VariableRows ServerVariable::rows_in_use(int part) const {
  const InfoPtr info = make_shards();
  std::vector<int64_t> rows;
  for (size_t i = 0; i < num_shards(); ++i) {
    const int64_t begin = info->shard_range(i).begin;
    for (const int64_t row : session_->client(servers_[i]).rows_in_use(info->shard_name(i)))
      rows.push_back(begin + row);
  }
  const auto count = static_cast<int64_t>(rows.size());
  const Tensor values(spec().dtype, spec().shape.with_dim(0, count));
  pull_rows(*info, rows, values, part);
  return {Tensor::from(rows, {count}), values};
}

void ServerVariable::assign_rows(const VariableRows& rows, int part) {
  const InfoPtr info = make_shards();
  const auto numbers = rows.numbers.values<int64_t>();
  const std::vector<int64_t> all(numbers.begin(), numbers.end());
  if (!std::ranges::is_sorted(all, std::less_equal<>()) ||
      (!all.empty() && (all.front() < 0 || all.back() >= num_rows())))
    fail(Code::kOutOfRange, "the rows of variable \"", name(), "\" ", spec(),
         " are numbered from 0, and given in order, each once");
  const int64_t block = block_rows(spec());
  for (size_t i = 0; i < num_shards(); ++i) {
    const RowRange range = info->shard_range(i);
    const auto [first, last] = within(all, range);
    const auto end = static_cast<int64_t>(last);
    auto begin = static_cast<int64_t>(first);
    bool reset = true;
    do {
      const int64_t until = std::min(end, begin + block);
      std::vector<int64_t> some;
      for (int64_t at = begin; at < until; ++at)
        some.push_back(all[static_cast<size_t>(at)] - range.begin);
      session_->client(servers_[i])
          .assign_rows(info->shard_name(i), some, rows.values.slice_rows(begin, until), part,
                       std::exchange(reset, false));
      begin = until;
    } while (begin < end);
  }
  await_nothing();
}

void ServerVariable::take_over_rows(const ServerVariableInfo& info, size_t shard) const {
  ParameterClient& client = session_->client(servers_[shard]);
  const std::string name = info.shard_name(shard);
  ServerVariableInfo before = info;
  before.key = rows_of_;
  const std::string from = before.shard_name(shard);
  // Others may copy at the same time, or have broken off: each brings what is missing before it
  // trains, and what has been trained since stays.
  const std::vector<int64_t> all = client.rows_in_use(from), present = client.rows_in_use(name);
  std::vector<int64_t> missing;
  std::ranges::set_difference(all, present, std::back_inserter(missing));
  const auto count = static_cast<int64_t>(missing.size()), block = block_rows(spec());
  for (int64_t begin = 0; begin < count; begin += block) {
    const std::vector<int64_t> rows(missing.begin() + begin,
                                    missing.begin() + std::min(count, begin + block));
    const Tensor values(spec().dtype, spec().shape.with_dim(0, static_cast<int64_t>(rows.size())));
    client.pull({.shard = from, .target = values, .rows = rows});
    client.add_missing_rows(name, rows, values);
  }
}

}  // namespace cohort
