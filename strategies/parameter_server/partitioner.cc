#include "strategies/parameter_server/partitioner.h"

#include <algorithm>

#include "core/base/error.h"

namespace cohort {
namespace {

constexpr int64_t kMaxShards = 1 << 20;

void require_positive(const char* partitioner, const char* argument, int64_t value) {
  if (value < 1) invalid(partitioner, ": ", argument, " must be at least 1, got ", value);
}

// Of one of the `extent` slices of `spec` along an axis; 2^63 - 1 for more, which no limit exceeds.
int64_t slice_bytes_of(const TensorSpec& spec, int64_t extent) {
  const auto item_bytes = static_cast<int64_t>(dtype_size(spec.dtype));
  int64_t bytes = 0;
  const bool overflows =
      __builtin_mul_overflow(spec.shape.num_elements() / extent, item_bytes, &bytes);
  return overflows ? std::numeric_limits<int64_t>::max() : bytes;
}

// Parts along `axis`, computed from its extent and the bytes of one slice of it.
template <typename F>
Partitioner along_axis(F parts) {
  return [parts](const TensorSpec& spec, int axis) {
    std::vector<int64_t> result(static_cast<size_t>(spec.shape.rank()), 1);
    if (result.empty()) return result;
    const int along = spec.shape.normalize_axis(axis);
    const int64_t extent = spec.shape[along];
    if (extent == 0) return result;
    result[static_cast<size_t>(along)] =
        std::clamp<int64_t>(parts(extent, slice_bytes_of(spec, extent)), 1, extent);
    return result;
  };
}

int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

std::string in_words(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) text += str(text.size() > 1 ? ", " : "", number);
  return text + "]";
}

}  // namespace

Partitioner FixedShardsPartitioner(int64_t num_shards) {
  require_positive("FixedShardsPartitioner", "num_shards", num_shards);
  return along_axis([=](int64_t, int64_t) { return num_shards; });
}

Partitioner MinSizePartitioner(int64_t min_shard_bytes, int64_t max_shards) {
  require_positive("MinSizePartitioner", "min_shard_bytes", min_shard_bytes);
  require_positive("MinSizePartitioner", "max_shards", max_shards);
  return along_axis([=](int64_t extent, int64_t slice_bytes) {
    if (slice_bytes == 0) return int64_t{1};
    // The smallest part has at least extent / parts slices.
    return std::min(max_shards, extent / divide_up(min_shard_bytes, slice_bytes));
  });
}

Partitioner MaxSizePartitioner(int64_t max_shard_bytes, int64_t max_shards) {
  require_positive("MaxSizePartitioner", "max_shard_bytes", max_shard_bytes);
  require_positive("MaxSizePartitioner", "max_shards", max_shards);
  return along_axis([=](int64_t extent, int64_t slice_bytes) {
    if (slice_bytes == 0) return int64_t{1};
    const int64_t slices = std::max<int64_t>(1, max_shard_bytes / slice_bytes);
    return std::min(max_shards, divide_up(extent, slices));
  });
}

int64_t num_shards(const Partitioner& partitioner, const TensorSpec& variable) {
  if (!partitioner || variable.shape.rank() == 0) return 1;
  const std::vector<int64_t> parts = partitioner(variable, 0);
  const bool fits = parts.size() == static_cast<size_t>(variable.shape.rank()) && parts[0] > 0 &&
                    std::all_of(parts.begin() + 1, parts.end(), [](int64_t n) { return n == 1; });
  if (!fits)
    invalid("the partitioner returned ", in_words(parts), " for a variable ", variable,
            "; it has to return a number for each axis: the first positive, all others 1");
  const int64_t shards = std::max<int64_t>(1, std::min(parts[0], variable.shape[0]));
  if (shards > kMaxShards)
    invalid("the partitioner cuts a variable ", variable, " into ", shards, " shards, and ",
            kMaxShards, " are allowed");
  return shards;
}

std::vector<RowRange> shard_rows(int64_t rows, int64_t num_shards) {
  if (rows < 0 || num_shards < 1) invalid("cannot cut ", rows, " rows into ", num_shards, " parts");
  std::vector<RowRange> parts;
  for (int64_t i = 0; i < num_shards; ++i) parts.push_back(shard_rows(rows, num_shards, i));
  return parts;
}

RowRange shard_rows(int64_t rows, int64_t num_shards, int64_t shard) {
  const int64_t small = rows / num_shards, larger_parts = rows % num_shards;
  const int64_t begin = shard * small + std::min(shard, larger_parts);
  return {begin, begin + small + (shard < larger_parts ? 1 : 0)};
}

int64_t shard_of_row(int64_t rows, int64_t num_shards, int64_t row) {
  const int64_t small = rows / num_shards, larger_parts = rows % num_shards;
  const int64_t larger = small + (larger_parts > 0 ? 1 : 0), in_larger = larger_parts * larger;
  return row < in_larger ? row / larger : larger_parts + (row - in_larger) / small;
}

}  // namespace cohort
