#include "strategies/parameter_server/partitioner.h"

#include <limits>
#include <numeric>

#include "strategies/parameter_server/placement.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort {
namespace {

using Parts = std::vector<int64_t>;

TensorSpec float32(std::initializer_list<int64_t> dims) { return {DType::kFloat32, Shape(dims)}; }

int64_t along(const Partitioner& partitioner, const TensorSpec& spec, int axis = 0) {
  const Parts parts = partitioner(spec, axis);
  EXPECT_EQ(parts.size(), static_cast<size_t>(spec.shape.rank()));
  for (size_t i = 0; i < parts.size(); ++i)
    EXPECT_TRUE(parts[i] == 1 || static_cast<int>(i) == axis);
  return parts[static_cast<size_t>(axis)];
}

TEST(FixedShardsPartitioner, CutsIntoThatMany) {
  EXPECT_EQ(FixedShardsPartitioner(2)(float32({10, 3}), 0), (Parts{2, 1}));
  EXPECT_EQ(FixedShardsPartitioner(2)(float32({10, 3}), 1), (Parts{1, 2}));
  EXPECT_EQ(along(FixedShardsPartitioner(4), float32({3})), 3);
}

TEST(MinSizePartitioner, CutsIntoAsManyAsKeepTheMinimum) {
  EXPECT_EQ(along(MinSizePartitioner(4, 2), float32({6, 1})), 2);
  EXPECT_EQ(along(MinSizePartitioner(4, 10), float32({6, 1})), 6);
  EXPECT_EQ(along(MinSizePartitioner(2 << 10, 100), float32({2048})), 4);
  const TensorSpec matrix = float32({2048, 1024});
  EXPECT_EQ(along(MinSizePartitioner(256 << 10, 100), matrix), 32);
  EXPECT_EQ(along(MinSizePartitioner(256 << 10, 16), matrix), 16);
  EXPECT_EQ(along(MinSizePartitioner(256 << 10, 1), matrix), 1);
  EXPECT_EQ(along(MinSizePartitioner(128 << 10, 100), matrix), 64);
  EXPECT_EQ(along(MinSizePartitioner(512 << 10, 100), matrix), 16);
  EXPECT_EQ(along(MinSizePartitioner(256 << 10, 100), float32({64, 1024, 1, 3}), 3), 3);
  EXPECT_EQ(along(MinSizePartitioner(256 << 10, 100), float32({16, 128, 1024})), 16);
  EXPECT_EQ(along(MinSizePartitioner(256 << 10, 100), float32({4, 512, 1024})), 4);
  EXPECT_EQ(along(MinSizePartitioner(), matrix), 1);
}

// Rounding up would make parts that are smaller than the minimum.
TEST(MinSizePartitioner, NeverMakesASmallerPart) {
  EXPECT_EQ(along(MinSizePartitioner(8, 10), float32({3})), 1);
  EXPECT_EQ(along(MinSizePartitioner(256 << 10, 100), float32({64, 1024, 1, 3}), 1), 2);
  for (int64_t rows = 1; rows < 70; ++rows)
    for (int64_t min = 1; min < 300; min += 7) {
      const TensorSpec spec = float32({rows, 3});
      const int64_t parts = along(MinSizePartitioner(min, 1000), spec);
      for (const RowRange& part : shard_rows(rows, parts))
        ASSERT_TRUE(parts == 1 || part.rows() * 12 >= min) << rows << " rows, at least " << min;
      ASSERT_TRUE(parts == rows || rows / (parts + 1) * 12 < min) << "could be more parts";
    }
}

TEST(MaxSizePartitioner, CutsIntoAsFewAsKeepTheMaximum) {
  EXPECT_EQ(along(MaxSizePartitioner(4), float32({6, 1})), 6);
  EXPECT_EQ(along(MaxSizePartitioner(4, 2), float32({6, 1})), 2);
  EXPECT_EQ(along(MaxSizePartitioner(1024), float32({6, 1})), 1);
  const TensorSpec spec = float32({4, 8, 16, 32});
  EXPECT_EQ(along(MaxSizePartitioner(131072), spec, 0), 1);
  EXPECT_EQ(along(MaxSizePartitioner(65536), spec, 1), 1);
  EXPECT_EQ(along(MaxSizePartitioner(32768), spec, 2), 2);
  EXPECT_EQ(along(MaxSizePartitioner(2048), spec, 3), 32);
  EXPECT_EQ(along(MaxSizePartitioner(1024), spec, 3), 32);
  EXPECT_EQ(along(MaxSizePartitioner(1024, 33), spec, 3), 32);
  EXPECT_EQ(along(MaxSizePartitioner(1024, 2), spec, 3), 2);
}

// More bytes than an int64 counts, as tables whose rows are made on first use may have.
TEST(Partitioners, CutVariablesOfAnySize) {
  constexpr int64_t kMany = int64_t{1} << 61, kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t rows : {kMany, 2 * kMany, kMost}) {
    const TensorSpec column = float32({rows});
    EXPECT_EQ(along(MinSizePartitioner(256 << 10, 4), column), 4) << rows;
    EXPECT_EQ(along(MinSizePartitioner(kMost, 1000), column), rows / kMany) << rows;
    EXPECT_EQ(along(MaxSizePartitioner(1 << 20, 4), column), 4) << rows;
    EXPECT_EQ(along(MaxSizePartitioner(1 << 20), column), (rows - 1) / (1 << 18) + 1) << rows;
  }
  const TensorSpec long_rows = {DType::kFloat64, {3, kMost / 3}};
  EXPECT_EQ(along(MinSizePartitioner(kMost, 4), long_rows), 3);
  EXPECT_EQ(along(MaxSizePartitioner(kMost), long_rows), 3);
  EXPECT_EQ(num_shards(MaxSizePartitioner(kMost), float32({kMost, 1})), 5);
}

TEST(Partitioners, RefuseNumbersBelowOne) {
  for (const int64_t bad : {0, -1}) {
    EXPECT_ERROR(FixedShardsPartitioner(bad), Code::kInvalidArgument, "num_shards");
    EXPECT_ERROR(MinSizePartitioner(bad), Code::kInvalidArgument, "min_shard_bytes");
    EXPECT_ERROR(MinSizePartitioner(1, bad), Code::kInvalidArgument, "max_shards");
    EXPECT_ERROR(MaxSizePartitioner(bad), Code::kInvalidArgument, "max_shard_bytes");
    EXPECT_ERROR(MaxSizePartitioner(1, bad), Code::kInvalidArgument, "max_shards");
  }
}

TEST(NumShards, RefusesWhatAPartitionerMustNotReturn) {
  const auto returning = [](Parts parts) {
    return [parts](const TensorSpec&, int) { return parts; };
  };
  const TensorSpec spec = float32({10, 3});
  for (const Parts& bad :
       {Parts{}, Parts{0, 1}, Parts{0, 1, 1}, Parts{2, 2}, Parts{2}, Parts{-1, 1}})
    EXPECT_ERROR(num_shards(returning(bad), spec), Code::kInvalidArgument,
                 "the partitioner returned");
  EXPECT_EQ(num_shards(returning({3, 1}), spec), 3);
  EXPECT_EQ(num_shards(returning({30, 1}), spec), 10);
}

TEST(NumShards, NeverCutsScalars) {
  EXPECT_EQ(num_shards(FixedShardsPartitioner(4), float32({})), 1);
  EXPECT_EQ(num_shards(FixedShardsPartitioner(4), float32({0, 3})), 1);
  EXPECT_EQ(num_shards(nullptr, float32({8})), 1);
}

TEST(ShardRows, PutsLargerPartsFirst) {
  std::vector<int64_t> sizes;
  for (const RowRange& part : shard_rows(13, 5)) sizes.push_back(part.rows());
  EXPECT_EQ(sizes, (std::vector<int64_t>{3, 3, 3, 2, 2}));
  EXPECT_EQ(shard_rows(10, 4), (std::vector<RowRange>{{0, 3}, {3, 6}, {6, 8}, {8, 10}}));
  EXPECT_EQ(shard_rows(5, 2), (std::vector<RowRange>{{0, 3}, {3, 5}}));
}

TEST(ShardRows, OfOnePartNeedNoneOfTheOthers) {
  for (int64_t rows = 0; rows < 20; ++rows)
    for (int64_t n = 1; n <= 20; ++n) {
      const auto parts = shard_rows(rows, n);
      for (int64_t part = 0; part < n; ++part)
        ASSERT_EQ(shard_rows(rows, n, part), parts[static_cast<size_t>(part)])
            << rows << " rows in " << n;
    }
  constexpr int64_t kMany = int64_t{1} << 40;
  EXPECT_EQ(shard_rows(3 * kMany + 1, kMany, kMany - 1), (RowRange{3 * kMany - 2, 3 * kMany + 1}));
}

TEST(ShardOfRow, FindsThePartOfEachRow) {
  for (int64_t rows = 1; rows < 40; ++rows)
    for (int64_t n = 1; n <= rows; ++n) {
      const auto parts = shard_rows(rows, n);
      for (int64_t part = 0; part < n; ++part)
        for (int64_t row = parts[part].begin; row < parts[part].end; ++row)
          ASSERT_EQ(shard_of_row(rows, n, row), part) << rows << " rows in " << n;
    }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t n : {int64_t{1}, int64_t{2}, kMost})
    EXPECT_EQ(shard_of_row(kMost, n, kMost - 1), n - 1);
}

TEST(Placement, GoesRoundWhereAllShardsAreAlike) {
  Placement placement(3);
  std::vector<int> servers;
  for (int i = 0; i < 7; ++i) servers.push_back(placement.place({100, 100}));
  EXPECT_EQ(servers, (std::vector<int>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(Placement, CountsWhatItHasNotChosen) {
  Placement placement(2);
  placement.add(0, {100, 100});
  EXPECT_EQ(placement.place({60, 60}), 1);
  EXPECT_EQ(placement.place({60, 60}), 1);
  EXPECT_EQ(placement.place({60, 60}), 0);
  EXPECT_EQ(placement.loads()[0].traffic, 160);
}

TEST(Placement, LooksAtSizeAndTraffic) {
  Placement placement(2);
  EXPECT_EQ(placement.place({1000, 10}), 0);  // a large table of which a step moves little
  EXPECT_EQ(placement.place({100, 100}), 1);
  EXPECT_EQ(placement.place({100, 5}), 1);  // memory is short on 0
  Placement sizes(2);
  for (const int64_t bytes : {90, 10, 10, 10, 10, 50}) sizes.place({bytes, bytes});
  EXPECT_EQ(sizes.loads()[0].bytes, 90);
  EXPECT_EQ(sizes.loads()[1].bytes, 90);
  EXPECT_ERROR(Placement(0), Code::kInvalidArgument, "at least 1");
}

}  // namespace
}  // namespace cohort
