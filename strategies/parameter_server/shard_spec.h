#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "strategies/parameter_server/update_function.h"

namespace cohort {

// The initial values of rows that are made on first use: a pure function of seed, row and column,
// so that a row is the same wherever and whenever it is made. Tables of one seed begin with the
// same numbers.
struct RowInitializer {
  enum class Kind : int { kConstant = 0, kUniform = 1, kNormal = 2 };
  Kind kind = Kind::kConstant;
  // Of random numbers both are finite, and so is their difference.
  double a = 0;  // the constant; the lower bound; the mean
  double b = 0;  // the upper bound; the standard deviation
  uint64_t seed = 0;
  // That a shard may hold; more shards of a variable hold more.
  int64_t max_rows = int64_t{1} << 24;
  bool operator==(const RowInitializer&) const = default;
};

// A shard: rows [begin, begin + rows) of a variable, or all of one.
struct ShardSpec {
  std::string name;  // unique on its server: "embedding/part_0"
  std::string variable;
  TensorSpec whole;  // the variable
  int64_t begin = 0;
  int64_t rows = 0;  // of a scalar, 1
  ServerUpdate update = {};
  // Present: no memory for rows that nobody has pushed to yet. Its update has no `dense`.
  std::optional<RowInitializer> lazy = {};

  // What this shard holds.
  TensorSpec spec() const {
    return whole.shape.rank() == 0 ? whole : TensorSpec{whole.dtype, whole.shape.with_dim(0, rows)};
  }
  // What so many rows of it are. REQUIRES: it has rows.
  TensorSpec rows_spec(int64_t count) const {
    return {whole.dtype, whole.shape.with_dim(0, count)};
  }
  // Elements of a row.
  int64_t columns() const {
    return whole.shape.rank() == 0 ? 1 : whole.shape.count(1, whole.shape.rank());
  }
  size_t row_bytes() const { return static_cast<size_t>(columns()) * dtype_size(whole.dtype); }
  // 1 + the number of slots.
  int num_parts() const { return 1 + static_cast<int>(update.slots.size()); }
  // kInvalidArgument for what cannot be, such as rows outside the variable, and kResourceExhausted
  // for more than `max_bytes` of memory, slots included.
  void check(size_t max_bytes) const;
};

}  // namespace cohort
