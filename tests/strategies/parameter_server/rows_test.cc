#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/base/random.h"
#include "strategies/parameter_server/memory_budget.h"
#include "strategies/parameter_server/row_gradient.h"
#include "strategies/parameter_server/row_table.h"
#include "strategies/parameter_server/shard.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

using Rows = std::vector<int64_t>;

Tensor rows_of(const std::vector<float>& values, int64_t columns) {
  const auto rows = static_cast<int64_t>(values.size()) / columns;
  return Tensor::from(values, {rows, columns});
}

Tensor pull_rows(ParameterClient& client, const ShardSpec& spec, const Rows& rows, int part = 0) {
  Tensor target(spec.whole.dtype, spec.whole.shape.with_dim(0, static_cast<int64_t>(rows.size())));
  client.pull({.shard = spec.name, .target = target, .rows = rows, .part = part});
  return target;
}

TEST(RowsOfAShard, ArePulledAlone) {
  TestServer server;
  const auto client = server.client();
  const ShardSpec spec = whole_shard("table", {DType::kFloat32, {5, 2}});
  client->create(spec, [] { return rows_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2); });
  const uint64_t before = server->statistics().sent_bytes;
  EXPECT_EQ(values_of(pull_rows(*client, spec, {0, 3, 4, 3})),
            (std::vector<float>{1, 2, 7, 8, 9, 10, 7, 8}));
  EXPECT_EQ(server->statistics().sent_bytes - before, 4 * 2 * sizeof(float));
  EXPECT_EQ(pull_rows(*client, spec, {}).num_elements(), 0);
  EXPECT_ERROR(pull_rows(*client, spec, {5}), Code::kOutOfRange, "row 5");
  EXPECT_ERROR(pull_rows(*client, spec, {-1}), Code::kOutOfRange, "row -1");
}

TEST(RowsOfAShard, OnFirstUseAreNotUpdatedAllAtOnce) {
  ShardSpec spec = whole_shard("table", {DType::kFloat32, {8, 2}});
  spec.lazy = RowInitializer{};
  EXPECT_ERROR(spec.check(1 << 20), Code::kInvalidArgument, "clear update.dense");
}

// As many bytes make neither the rows nor the value.
TEST(RowsOfAShard, AreOfItsDtypeAndItsColumns) {
  TestServer server;
  const auto client = server.client();
  const Rows rows = {0, 1, 2, 3};
  const ShardSpec dense = whole_shard("w", {DType::kFloat32, {4, 2}}), lazy = lazy_table(8, 2, {});
  client->create(dense, [] { return Tensor::zeros(DType::kFloat32, {4, 2}); });
  client->create(lazy, [] { return Tensor(); });
  for (const TensorSpec& other :
       {TensorSpec{DType::kInt32, {4, 2}}, TensorSpec{DType::kFloat64, {4, 1}}}) {
    const Tensor zeros = Tensor::zeros(other.dtype, other.shape);
    const std::string both = str(other, ", and has to be float32[4,2]");
    for (const std::string shard : {"w", "table"}) {
      EXPECT_ERROR(
          client->push({.shard = shard, .gradient = zeros, .learning_rate = 1, .rows = rows}),
          Code::kInvalidArgument, str("the gradient for shard \"", shard, "\" is ", both));
      EXPECT_ERROR(client->pull({.shard = shard, .target = zeros, .rows = rows}),
                   Code::kInvalidArgument, str("the target of shard \"", shard, "\" is ", both));
    }
    EXPECT_ERROR(client->assign_rows("table", rows, zeros, 0, false), Code::kInvalidArgument, both);
    EXPECT_ERROR(client->add_missing_rows("table", rows, zeros), Code::kInvalidArgument, both);
  }
  for (const TensorSpec& other :
       {TensorSpec{DType::kInt32, {4, 2}}, TensorSpec{DType::kFloat32, {2, 4}},
        TensorSpec{DType::kFloat64, {2, 2}}, TensorSpec{DType::kFloat32, {8}}}) {
    const Tensor zeros = Tensor::zeros(other.dtype, other.shape);
    const std::string both = str(other, ", and has to be float32[4,2]");
    EXPECT_ERROR(client->push({.shard = "w", .gradient = zeros, .learning_rate = 1}),
                 Code::kInvalidArgument, both);
    EXPECT_ERROR(client->pull({.shard = "w", .target = zeros}), Code::kInvalidArgument, both);
    EXPECT_ERROR(client->assign("w", zeros), Code::kInvalidArgument, both);
  }
  EXPECT_EQ(server->statistics().pushes_applied, 0u);
  EXPECT_EQ(client->rows_in_use("table"), Rows());
}

struct Rule {
  std::string name;
  optim::Optimizer optimizer;
};

class RowUpdate : public ::testing::TestWithParam<int> {
 protected:
  static Rule rule() {
    switch (GetParam()) {
      case 0:
        return {"SGD", optim::SGD(0.5)};
      case 1:
        return {"Adagrad", optim::Adagrad(0.5)};
      default:
        return {"LazyAdam", optim::Adam(0.5, {.lazy = true})};
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Rules, RowUpdate, ::testing::Values(0, 1, 2));

// The named rows become what the dense update of a gradient that is zero elsewhere makes of them;
// all others stay, slots too. More rows than a block has, some of them twice.
TEST_P(RowUpdate, MovesTheNamedRowsAsADenseOneWould) {
  TestServer server;
  const auto client = server.client();
  constexpr int64_t kRows = 3000, kColumns = 24;
  constexpr uint64_t kSeed = 7;
  const optim::Optimizer optimizer = rule().optimizer;
  const TensorSpec table{DType::kFloat32, {kRows, kColumns}};
  const ShardSpec sparse = whole_shard("sparse", table, optimizer),
                  dense = whole_shard("dense", table, optimizer);
  const auto initial = [&] { return Tensor::full(table.dtype, table.shape, 1); };
  client->create(sparse, initial);
  client->create(dense, initial);
  RandomStream random(kSeed);
  for (int step = 0; step < 3; ++step) {
    Rows rows;
    for (int i = 0; i < 2000; ++i) rows.push_back(static_cast<int64_t>(random.below(kRows / 2)));
    Tensor values(DType::kFloat32, {2000, kColumns}), sum = Tensor::zeros(table.dtype, table.shape);
    for (int64_t i = 0; i < 2000 * kColumns; ++i) {
      const auto x = static_cast<float>(random.uniform() - 0.5);
      values.data<float>()[i] = x;
      sum.data<float>()[rows[i / kColumns] * kColumns + i % kColumns] += x;
    }
    client->push({.shard = "sparse", .gradient = values, .learning_rate = 0.5, .rows = rows});
    // For Adam a dense update moves all rows; only rows that come in every step can be compared.
    client->push({.shard = "dense", .gradient = sum, .learning_rate = 0.5});
    const auto a = values_of(fetch(*client, sparse)), b = values_of(fetch(*client, dense));
    if (step == 0 || GetParam() != 2) {
      const std::set<int64_t> named(rows.begin(), rows.end());
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t c = 0; c < kColumns; ++c) {
          const int64_t i = row * kColumns + c;
          if (!named.contains(row) && GetParam() == 2) continue;
          ASSERT_NEAR(a[i], b[i], 1e-4) << rule().name;
        }
    }
    for (int64_t i = kRows / 2 * kColumns; i < kRows * kColumns; ++i) ASSERT_EQ(a[i], 1.0f);
  }
  for (int part = 1; part < sparse.num_parts(); ++part) {
    const auto slot = values_of(fetch(*client, sparse, part));
    const auto untouched = static_cast<float>(sparse.update.slots[part - 1].initial);
    for (int64_t i = kRows / 2 * kColumns; i < kRows * kColumns; ++i) ASSERT_EQ(slot[i], untouched);
  }
}

TEST(RowsOfAShard, NeedARuleThatLeavesOthersAlone) {
  TestServer server;
  const auto client = server.client();
  const ShardSpec spec = whole_shard("table", {DType::kFloat32, {5, 2}}, optim::Adam(0.1));
  client->create(spec, [] { return Tensor::zeros(DType::kFloat32, {5, 2}); });
  EXPECT_ERROR(
      client->push(
          {.shard = "table", .gradient = rows_of({1, 1}, 2), .learning_rate = 1, .rows = Rows{0}}),
      Code::kInvalidArgument, "moves all rows");
}

TEST(LazyRows, TakeMemoryWhenTheyArePushedTo) {
  TestServer server;
  const auto client = server.client();
  constexpr int64_t kVocabulary = int64_t{1} << 40;
  const ShardSpec spec = lazy_table(
      kVocabulary, 4,
      {.kind = RowInitializer::Kind::kUniform, .a = -0.1, .b = 0.1, .seed = 3, .max_rows = 10});
  EXPECT_TRUE(client->create(spec, [] { return Tensor(); }));
  const Rows rows = {0, kVocabulary - 1, 123456789012};
  const auto before = values_of(pull_rows(*client, spec, rows));
  for (const float x : before) EXPECT_TRUE(x >= -0.1f && x <= 0.1f) << x;
  EXPECT_EQ(std::set(before.begin(), before.end()).size(), before.size());
  EXPECT_EQ(server->statistics().rows, 0u);
  EXPECT_EQ(values_of(pull_rows(*client, spec, rows)), before);

  client->push({.shard = "table",
                .gradient = rows_of({1, 1, 1, 1}, 4),
                .learning_rate = 0.5,
                .rows = Rows{kVocabulary - 1}});
  EXPECT_EQ(server->statistics().rows, 1u);
  const auto after = values_of(pull_rows(*client, spec, rows));
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_NEAR(after[i], before[i] - (i / 4 == 1 ? 0.5 / std::sqrt(1.1) : 0), 1e-5);
  EXPECT_EQ(values_of(pull_rows(*client, spec, {kVocabulary - 1}, 1)),
            (std::vector<float>(4, 1.1f)));
}

TEST(LazyRows, AreNoMoreThanAllowed) {
  TestServer server;
  const auto client = server.client();
  const ShardSpec spec = lazy_table(1000, 4, {.max_rows = 2});
  client->create(spec, [] { return Tensor(); });
  const auto push = [&](const Rows& rows) {
    client->push(
        {.shard = "table",
         .gradient = Tensor::full(DType::kFloat32, {static_cast<int64_t>(rows.size()), 4}, 1),
         .learning_rate = 1,
         .rows = rows});
  };
  push({5, 7, 5});
  EXPECT_ERROR(push({5, 8}), Code::kResourceExhausted,
               "of variable \"table\" may have 2 rows (RowInitializer::max_rows)");
  EXPECT_EQ(server->statistics().rows, 2u);
  EXPECT_ERROR(fetch(*client, whole_shard("table", {DType::kFloat32, {1, 4}})),
               Code::kInvalidArgument, "first use");
}

TEST(LazyRows, AreWrittenOnceByEachRequest) {
  parameter_server::Shard shard(lazy_table(1000, 1, {.max_rows = 4}), Tensor(), {});
  const auto write = [&](uint64_t sequence, float value, bool reset) {
    shard.assign_rows({"worker:0", {.incarnation = 1, .sequence = sequence}}, 0, Rows{5},
                      reinterpret_cast<const char*>(&value), reset);
    float found = 0;
    shard.pull_rows(0, Rows{5}, reinterpret_cast<char*>(&found));
    return found;
  };
  EXPECT_EQ(write(1, 1, true), 1);
  EXPECT_EQ(write(2, 2, false), 2);
  EXPECT_EQ(write(1, 1, true), 2);
}

TEST(LazyRows, KeepTheRoomThatIsMadeForMoreWhateverReplacesThemMeanwhile) {
  constexpr int64_t kMany = 20'000;  // of several slabs
  const ShardSpec spec = lazy_table(1 << 20, 1, {.max_rows = kMany});
  parameter_server::MemoryBudget budget(size_t{1} << 26);
  parameter_server::RowTable table(spec, &budget);
  table.make_room(kMany);
  table.replace(Rows{1, 2});
  budget.take(budget.left(), "another");
  Rows many(kMany);
  std::iota(many.begin(), many.end(), int64_t{0});
  table.replace(many);
  EXPECT_EQ(table.rows_in_use(), kMany);
  table.replace(Rows{1, 2});
  EXPECT_EQ(budget.left(), 0u);
  table.drop_room();
  EXPECT_GT(budget.left(), 0u) << "what two rows do not need";
  EXPECT_EQ(table.ids(), (Rows{1, 2}));
}

TEST(LazyRows, AreNormalWhereAsked) {
  TestServer server;
  const auto client = server.client();
  const ShardSpec spec =
      lazy_table(10'000, 8, {.kind = RowInitializer::Kind::kNormal, .a = 1, .b = 2, .seed = 9});
  client->create(spec, [] { return Tensor(); });
  Rows rows(2000);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  double sum = 0, squares = 0;
  const auto values = values_of(pull_rows(*client, spec, rows));
  for (const float x : values) {
    sum += x;
    squares += (x - 1.0) * (x - 1.0);
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 1, 0.05);
  EXPECT_NEAR(squares / count, 4, 0.15);
}

TEST(CombineRows, AddsUpRowsThatComeTwice) {
  const RowGradient combined = combine_rows(
      {.rows = {4, 1, 4, 2, 1}, .values = rows_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2)});
  EXPECT_EQ(combined.rows, (Rows{1, 2, 4}));
  EXPECT_EQ(values_of(combined.values), (std::vector<float>{12, 14, 7, 8, 6, 8}));
}

TEST(CombineRows, RoundsTheirSumOnce) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const RowGradient combined =
        combine_rows({.rows = Rows(2080, 3), .values = Tensor::full(dtype, {2080, 1}, 1)});
    EXPECT_EQ(combined.rows, (Rows{3}));
    EXPECT_EQ(combined.values.cast(DType::kFloat64).item(), 2080) << dtype;
  }
}

}  // namespace
}  // namespace cohort::testing
