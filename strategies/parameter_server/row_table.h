#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/tensor/tensor.h"
#include "strategies/parameter_server/memory_budget.h"
#include "strategies/parameter_server/shard_spec.h"

namespace cohort::parameter_server {

// Rows of a value and its slots that are made on first use. Memory grows with the rows in use,
// never with the vocabulary. Not synchronised.
class RowTable {
 public:
  // `budget` is what its memory is taken of; null: nobody counts.
  explicit RowTable(const ShardSpec& spec, MemoryBudget* budget);

  int64_t rows_in_use() const { return static_cast<int64_t>(places_.size()); }
  size_t bytes() const;
  // The numbers of the rows in use, ascending; or the first `most` of those after `after`.
  std::vector<int64_t> ids() const;
  std::vector<int64_t> ids(int64_t after, size_t most) const;

  // Makes those of the rows that are not there, which may come more than once, and returns them,
  // ascending. kResourceExhausted beyond the spec's number of rows, and beyond the budget: then
  // none is made.
  std::vector<int64_t> make(std::span<const int64_t> rows);
  // Takes back what make() has returned last; their memory is kept for others.
  void forget(std::span<const int64_t> made) noexcept;
  // Takes memory for so many rows in all, with which replace() does not fail until drop_room(),
  // which gives back what the rows in use do not need. Throws as make does.
  void make_room(int64_t rows);
  void drop_room();
  // Has these rows and no others from now on, in the memory of those before; what is in them is for
  // the caller to write. Where it throws, as make does, all is as it was.
  void replace(std::span<const int64_t> rows);
  // Where a part of a row lies, which must be there. Stays until replace(), or the table goes.
  char* at(int part, int64_t row);
  // Copies a part of a row, or the value that it would start with.
  void read(int part, int64_t row, char* target) const;
  // Gives all rows in use the initial value of a part.
  void reset(int part);
  // Writes the initial value of a part of a row.
  void initial(int part, int64_t row, char* target) const;

 private:
  // Throws as make does unless the spec allows a table of `rows`.
  void require_room(int64_t rows) const;
  size_t slabs_for(int64_t rows) const;
  // Of the budget, for a slab of each part and the places in it.
  size_t slab_cost() const;
  // Makes memory for so many rows in all.
  void add_slabs(int64_t rows);
  // Gives back the memory that so many rows, and those that room was made for, do not need.
  void drop_slabs(int64_t rows);
  char* address(int part, int64_t place) const;

  const ShardSpec& spec_;
  const int64_t slab_rows_;
  std::unordered_map<int64_t, int64_t> places_;  // by row
  std::vector<std::vector<Tensor>> slabs_;       // by part; each has slab_rows_ rows
  int64_t reserved_ = 0;                         // rows that room was made for
  size_t paid_ = 0;     // slabs of each part that memory_ is for: also those that could not be made
  BudgetShare memory_;  // of the slabs, and of the places in them
};

}  // namespace cohort::parameter_server
