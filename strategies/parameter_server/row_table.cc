#include "strategies/parameter_server/row_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "core/base/error.h"
#include "core/base/random.h"

namespace cohort::parameter_server {
namespace {

// Of memory that is made at once.
constexpr size_t kSlabBytes = 1 << 20;
constexpr int64_t kMaxSlabRows = 4096;
// What a row takes beside its numbers: a node of the map, and the list's share of it. It counts,
// else narrow rows would take many times the memory that the server may have.
constexpr size_t kPlaceBytes = 48;

// The number at one place of the table.
double draw(const RowInitializer& init, int64_t row, int64_t column) {
  constexpr double kUnit = 0x1p-53;  // of 53 random bits
  const auto at = static_cast<uint64_t>(row), in = static_cast<uint64_t>(column);
  const double u = static_cast<double>(mix(init.seed, at, in) >> 11) * kUnit;
  switch (init.kind) {
    case RowInitializer::Kind::kConstant:
      return init.a;
    case RowInitializer::Kind::kUniform:
      return init.a + (init.b - init.a) * u;
    case RowInitializer::Kind::kNormal:
      break;
  }
  // Box and Muller; the second number has a key of its own.
  const double v = static_cast<double>(mix(~init.seed, at, in) >> 11) * kUnit;
  return init.a + init.b * std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * v);
}

template <typename F>
void fill(DType dtype, int64_t count, char* target, const F& value_of) {
  dispatch(FloatTypes{}, dtype, "a table of rows", [&]<typename T>() {
    for (int64_t i = 0; i < count; ++i) {
      const T value(
          static_cast<T>(static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(value_of(i))));
      std::memcpy(target + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    }
  });
}

}  // namespace

RowTable::RowTable(const ShardSpec& spec, MemoryBudget* budget)
    : spec_(spec),
      slab_rows_(std::clamp<int64_t>(
          static_cast<int64_t>(kSlabBytes / std::max<size_t>(spec.row_bytes(), 1)), 1,
          kMaxSlabRows)),
      memory_(budget) {
  slabs_.resize(static_cast<size_t>(spec.num_parts()));
}

size_t RowTable::bytes() const {
  return slabs_.size() * slabs_[0].size() * static_cast<size_t>(slab_rows_) * spec_.row_bytes();
}

std::vector<int64_t> RowTable::ids() const {
  std::vector<int64_t> ids;
  ids.reserve(places_.size());
  for (const auto& [row, place] : places_) ids.push_back(row);
  std::ranges::sort(ids);
  return ids;
}

std::vector<int64_t> RowTable::ids(int64_t after, size_t most) const {
  std::vector<int64_t> ids;
  for (const auto& [row, place] : places_)
    if (row > after) ids.push_back(row);
  if (ids.size() > most) {
    std::ranges::nth_element(ids, ids.begin() + static_cast<std::ptrdiff_t>(most));
    ids.resize(most);
  }
  std::ranges::sort(ids);
  return ids;
}

void RowTable::reset(int part) {
  for (const auto& [row, place] : places_) initial(part, row, address(part, place));
}

char* RowTable::address(int part, int64_t place) const {
  const Tensor& slab = slabs_[static_cast<size_t>(part)][static_cast<size_t>(place / slab_rows_)];
  return const_cast<char*>(static_cast<const char*>(slab.raw())) +
         static_cast<size_t>(place % slab_rows_) * spec_.row_bytes();
}

void RowTable::require_room(int64_t rows) const {
  if (rows > spec_.lazy->max_rows)
    fail(Code::kResourceExhausted, "shard \"", spec_.name, "\" of variable \"", spec_.variable,
         "\" may have ", spec_.lazy->max_rows, " rows (RowInitializer::max_rows), has ",
         rows_in_use(), ", and would have ", rows);
}

std::vector<int64_t> RowTable::make(std::span<const int64_t> rows) {
  std::vector<int64_t> fresh;
  for (const int64_t row : rows)
    if (!places_.contains(row)) fresh.push_back(row);
  if (fresh.empty()) return fresh;
  std::ranges::sort(fresh);
  fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
  const int64_t wanted = rows_in_use() + static_cast<int64_t>(fresh.size());
  require_room(wanted);
  add_slabs(wanted);
  try {
    for (const int64_t row : fresh) {
      const int64_t place = rows_in_use();
      for (int part = 0; part < spec_.num_parts(); ++part) initial(part, row, address(part, place));
      places_.emplace(row, place);
    }
  } catch (...) {
    forget(fresh);
    throw;
  }
  return fresh;
}

// They have the last places.
void RowTable::forget(std::span<const int64_t> made) noexcept {
  for (const int64_t row : made) places_.erase(row);
}

void RowTable::make_room(int64_t rows) {
  require_room(rows);
  add_slabs(rows);
  reserved_ = rows;
}

void RowTable::drop_room() {
  reserved_ = 0;
  drop_slabs(rows_in_use());
}

void RowTable::replace(std::span<const int64_t> rows) {
  std::unordered_map<int64_t, int64_t> places;
  for (const int64_t row : rows) places.emplace(row, static_cast<int64_t>(places.size()));
  const auto wanted = static_cast<int64_t>(places.size());
  require_room(wanted);
  add_slabs(wanted);  // the last that may fail
  places_ = std::move(places);
  drop_slabs(wanted);
}

size_t RowTable::slabs_for(int64_t rows) const {
  return static_cast<size_t>((rows + slab_rows_ - 1) / slab_rows_);
}

size_t RowTable::slab_cost() const {
  return static_cast<size_t>(slab_rows_) * (slabs_.size() * spec_.row_bytes() + kPlaceBytes);
}

// All of the budget is taken before any of the memory.
void RowTable::add_slabs(int64_t rows) {
  const size_t wanted = slabs_for(rows);
  if (wanted > paid_) {
    memory_.add((wanted - paid_) * slab_cost(), spec_.name);
    paid_ = wanted;
  }
  for (auto& slabs : slabs_)
    while (slabs.size() < wanted)
      slabs.emplace_back(spec_.whole.dtype, spec_.whole.shape.with_dim(0, slab_rows_));
}

void RowTable::drop_slabs(int64_t rows) {
  const size_t wanted = slabs_for(std::max(rows, reserved_));
  for (auto& slabs : slabs_) slabs.resize(std::min(slabs.size(), wanted));
  memory_.give_back((paid_ - wanted) * slab_cost());
  paid_ = wanted;
}

char* RowTable::at(int part, int64_t row) { return address(part, places_.at(row)); }

void RowTable::read(int part, int64_t row, char* target) const {
  const auto found = places_.find(row);
  if (found == places_.end()) return initial(part, row, target);
  std::memcpy(target, address(part, found->second), spec_.row_bytes());
}

void RowTable::initial(int part, int64_t row, char* target) const {
  if (part > 0) {
    const double value = spec_.update.slots[static_cast<size_t>(part - 1)].initial;
    return fill(spec_.whole.dtype, spec_.columns(), target, [&](int64_t) { return value; });
  }
  // By its number in the whole table: the same however that is cut into shards.
  const int64_t number = spec_.begin + row;
  fill(spec_.whole.dtype, spec_.columns(), target,
       [&](int64_t column) { return draw(*spec_.lazy, number, column); });
}

}  // namespace cohort::parameter_server
