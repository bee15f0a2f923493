#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort {

// Into how many parts a variable is cut along each axis: an entry for each, all but one of them 1.
// Variables are cut along axis 0 only; `axis` is there for who asks what a rule would do. May be a
// function of the user's own.
using Partitioner = std::function<std::vector<int64_t>(const TensorSpec& variable, int axis)>;

// `num_shards` parts, or as many as there are rows. kInvalidArgument below 1, as for all numbers
// here.
Partitioner FixedShardsPartitioner(int64_t num_shards);

// As many parts as there can be with at least `min_shard_bytes` each, at most `max_shards`.
Partitioner MinSizePartitioner(int64_t min_shard_bytes = 256 << 10, int64_t max_shards = 1);

// As few parts as there can be with at most `max_shard_bytes` each, or a row where one is larger;
// at most `max_shards`, which goes first.
Partitioner MaxSizePartitioner(int64_t max_shard_bytes,
                               int64_t max_shards = std::numeric_limits<int64_t>::max());

// How many parts of axis 0 `partitioner` makes of a variable: 1 for scalars and empty partitioners,
// and never more than there are rows. kInvalidArgument, naming what it returned, unless that has an
// entry for each axis, the first positive and all others 1; and for more parts than 2^20, which is
// what a server holds.
int64_t num_shards(const Partitioner& partitioner, const TensorSpec& variable);

// Rows [begin, end) of axis 0.
struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t rows() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

// The parts of `rows` rows in order: sizes differ by one at most, larger ones first. 13 rows in 5
// are 3, 3, 3, 2, 2.
std::vector<RowRange> shard_rows(int64_t rows, int64_t num_shards);
// One of them: 0 <= shard < num_shards.
RowRange shard_rows(int64_t rows, int64_t num_shards, int64_t shard);
// Which of these parts has `row`: 0 <= row < rows.
int64_t shard_of_row(int64_t rows, int64_t num_shards, int64_t row);

}  // namespace cohort
