#include "strategies/parameter_server/shard.h"

#include <atomic>
#include <cstring>
#include <numeric>

#include "core/base/threads.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/strategies/parameter_server/watched_rule.h"

namespace cohort::testing {
namespace {

using parameter_server::Change;
using parameter_server::IncomingPush;
using parameter_server::kTeamBytes;
using parameter_server::MemoryBudget;
using parameter_server::Shard;
using parameter_server::Start;
using parameter_server::UpdateTeam;

const TensorSpec kTwo{DType::kFloat32, {2}};

// A shard whose changes are written down, on a disk that may be full.
class Recorded : public ::testing::Test {
 protected:
  Shard::Environment environment(const ConsistencyOptions& consistency = {}) {
    return {.epoch = 1,
            .consistency = consistency,
            .awaited = [this](const auto&) { return nobody_is_awaited_ ? 0 : 1; },
            .buffers = &buffers_,
            .values = nullptr,
            .budget = nullptr,
            .record =
                [this](const Change& change) {
                  if (is_full_) fail(Code::kResourceExhausted, "the disk is full");
                  marks_ = change.marks;
                }};
  }
  static IncomingPush gradient(int worker, float value, uint64_t sequence = 1) {
    IncomingPush push;
    push.task = str("worker:", worker);
    push.mark = {.incarnation = 1, .sequence = sequence};
    push.computed_at = {1, 1};
    push.learning_rate = 1;
    push.gradient = floats({-value, value});
    return push;
  }
  parameter_server::BufferCache buffers_{0};
  bool is_full_ = false, nobody_is_awaited_ = false;
  parameter_server::Marks marks_;  // of the last change
};

TEST_F(Recorded, RefusesPushesWhileTheDiskIsFull) {
  Shard shard(whole_shard("w", kTwo), floats({0, 0}), environment());
  shard.push(gradient(0, 1));
  is_full_ = true;
  const auto marks = shard.marks();
  EXPECT_ERROR(shard.push(gradient(0, 1, 2)), Code::kResourceExhausted, "full");
  EXPECT_ERROR(shard.push(gradient(1, 1)), Code::kResourceExhausted, "full");
  EXPECT_ERROR(shard.assign({"worker:0", {1, 1}}, 0, floats({5, 5})), Code::kResourceExhausted,
               "full");
  EXPECT_EQ(shard.marks(), marks);
  EXPECT_EQ(shard.version(), 2u);
  EXPECT_EQ(values_of(shard.part(0)), (std::vector<float>{1, -1}));
  is_full_ = false;
  EXPECT_EQ(shard.push(gradient(0, 1, 2)).outcome, PushOutcome::kApplied) << "it is new still";
  EXPECT_EQ(values_of(shard.part(0)), (std::vector<float>{2, -2}));
}

// The answer to the first one may not have arrived.
TEST_F(Recorded, TellsAPushThatComesAgainWhatIsLost) {
  Shard shard(whole_shard("w", kTwo), floats({0, 0}), environment());
  const auto push = [&](uint64_t sequence) {
    IncomingPush push = gradient(0, 1, sequence);
    push.acknowledged = sequence - 1;
    return shard.push(std::move(push));
  };
  const auto first = push(5), again = push(5);
  EXPECT_EQ(first.lost, 4u);
  EXPECT_FALSE(first.again);
  EXPECT_EQ(again.outcome, PushOutcome::kRepeated);
  EXPECT_EQ(again.lost, 4u);
  EXPECT_TRUE(again.again);
  EXPECT_EQ(push(6).lost, 0u);
  EXPECT_EQ(push(6).lost, 0u);
}

// Else those that come again would find them there, with their initial values.
TEST_F(Recorded, HasNoneOfTheMissingRowsThatCannotBeWrittenDown) {
  Shard table(lazy_table(1000, 1, {}), Tensor(), environment());
  const std::vector<int64_t> rows = {5};
  float value = 7;
  is_full_ = true;
  EXPECT_ERROR(table.add_missing_rows({"worker:0", {1, 1}}, rows, reinterpret_cast<char*>(&value)),
               Code::kResourceExhausted, "full");
  EXPECT_EQ(table.rows_in_use(), 0);
  is_full_ = false;
  table.add_missing_rows({"worker:0", {1, 1}}, rows, reinterpret_cast<char*>(&value));
  value = 0;
  table.pull_rows(0, rows, reinterpret_cast<char*>(&value));
  EXPECT_EQ(value, 7);
}

// Else what somebody brings of them would be passed over.
TEST_F(Recorded, HasNoneOfTheRowsOfAPushThatCannotBeWrittenDown) {
  const auto of_row = [](int64_t row) {
    IncomingPush push = gradient(0, 1);
    push.rows = std::vector<int64_t>{row};
    push.gradient = Tensor::full(DType::kFloat32, {1, 1}, 1);
    return push;
  };
  for (const ConsistencyOptions& consistency :
       {ConsistencyOptions{}, ConsistencyOptions{.max_staleness = 0, .num_workers = 1}}) {
    Shard table(lazy_table(1000, 1, {}), Tensor(), environment(consistency));
    is_full_ = true;
    EXPECT_ERROR(table.push(of_row(5)), Code::kResourceExhausted, "full");
    EXPECT_EQ(table.rows_in_use(), 0);
    is_full_ = false;
    EXPECT_EQ(table.push(of_row(6)).outcome, PushOutcome::kApplied);
    EXPECT_EQ(table.rows_after(-1, 10), (std::vector<int64_t>{6}));
  }
}

TEST_F(Recorded, GoesOnWithARoundWhenMissingRowsCome) {
  Shard table(lazy_table(1000, 1, {}), Tensor(),
              environment({.max_staleness = 0, .num_workers = 2}));
  const auto of_row_five = [](int worker) {
    IncomingPush push = gradient(worker, 1);
    push.rows = std::vector<int64_t>{5};
    push.gradient = Tensor::full(DType::kFloat32, {1, 1}, 1);
    return push;
  };
  EXPECT_EQ(table.push(of_row_five(0)).outcome, PushOutcome::kCounted);
  const float seven = 7;
  table.add_missing_rows({"worker:1", {1, 1}}, std::vector<int64_t>{6},
                         reinterpret_cast<const char*>(&seven));
  EXPECT_EQ(table.push(of_row_five(1)).outcome, PushOutcome::kApplied);
  EXPECT_EQ(table.rows_after(-1, 10), (std::vector<int64_t>{5, 6}));
}

// What the others have brought for an update is not lost with it.
TEST_F(Recorded, KeepsARoundThatCannotBeWrittenDown) {
  Shard shard(whole_shard("w", kTwo), floats({0, 0}),
              environment({.max_staleness = 0, .num_workers = 3}));
  EXPECT_EQ(shard.push(gradient(0, 1)).outcome, PushOutcome::kCounted);
  EXPECT_EQ(shard.push(gradient(1, 2)).outcome, PushOutcome::kCounted);
  is_full_ = true;
  for (int times = 0; times < 2; ++times)
    EXPECT_ERROR(shard.push(gradient(2, 4)), Code::kResourceExhausted, "full");
  EXPECT_EQ(shard.contributors(), (std::set<std::string>{"worker:0", "worker:1"}));
  EXPECT_EQ(shard.mark_of("worker:2"), (parameter_server::Mark{}));
  is_full_ = false;
  EXPECT_EQ(shard.push(gradient(2, 4)).outcome, PushOutcome::kApplied);
  EXPECT_EQ(values_of(shard.part(0)), (std::vector<float>{7, -7}));
  EXPECT_EQ(marks_.size(), 3u) << "all of whom have made the update";
  EXPECT_EQ(shard.mark_of("worker:2"), (parameter_server::Mark{1, 1}));
}

TEST_F(Recorded, SaysWhichUpdateAPushThatIsSentAgainWaitsFor) {
  Shard shard(whole_shard("w", kTwo), floats({0, 0}),
              environment({.max_staleness = 0, .num_workers = 2}));
  EXPECT_EQ(shard.push(gradient(0, 1)).outcome, PushOutcome::kCounted);
  // The same one, and another of the same value.
  for (const uint64_t sequence : {uint64_t{1}, uint64_t{2}}) {
    const auto again = shard.push(gradient(0, 1, sequence));
    EXPECT_EQ(again.outcome, PushOutcome::kRepeated);
    EXPECT_EQ(again.version, 2u);
  }
  EXPECT_EQ(shard.push(gradient(1, 1)).outcome, PushOutcome::kApplied);
  EXPECT_EQ(shard.push(gradient(0, 1, 2)).version, 2u) << "it is there";
  EXPECT_EQ(values_of(shard.part(0)), (std::vector<float>{2, -2}));
}

// The marks know the last start alone: a push of the one before would come in as a new one, and
// then the later start's own would do so again.
TEST_F(Recorded, TakesNothingFromAStartThatIsOverBy) {
  Shard shard(whole_shard("w", kTwo), floats({0, 0}), environment());
  const auto old = std::make_shared<Start>("worker:0", 1);
  auto own = gradient(0, 1), passed_on = gradient(1, 1);
  own.start = old;
  passed_on.source = "chief:0/lane-0";
  passed_on.source_mark = {1, 1};
  passed_on.source_start = old;
  old->retired = true;
  EXPECT_ERROR(shard.push(std::move(own)), Code::kFailedPrecondition, "worker:0");
  EXPECT_ERROR(shard.push(std::move(passed_on)), Code::kFailedPrecondition, "worker:0");
  EXPECT_ERROR(shard.assign({"worker:0", {1, 1}, old}, 0, floats({5, 5})),
               Code::kFailedPrecondition, "worker:0");
  EXPECT_EQ(shard.version(), 1u);
  EXPECT_TRUE(shard.marks().empty());
}

TEST_F(Recorded, KeepsARoundOfThoseWhoAreLeft) {
  Shard shard(whole_shard("w", kTwo), floats({0, 0}),
              environment({.max_staleness = 0, .num_workers = 2}));
  shard.push(gradient(0, 3));
  nobody_is_awaited_ = true;
  is_full_ = true;
  for (int times = 0; times < 2; ++times)
    EXPECT_ERROR(shard.settle(), Code::kResourceExhausted, "full");
  is_full_ = false;
  EXPECT_TRUE(shard.settle());
  EXPECT_EQ(values_of(shard.part(0)), (std::vector<float>{6, -6})) << "one counts for two, once";
}

// Who copies the value meanwhile does not copy it in vain.
TEST_F(Recorded, HasAWholeValueWhileItIsWrittenDown) {
  constexpr int64_t kElements = 1 << 20;
  const ShardSpec spec = whole_shard("w", {DType::kFloat32, {kElements}});
  parameter_server::ValueMemory values;
  bool was_whole = false;
  const parameter_server::ValueGuard* guard = nullptr;
  uint64_t before = 0;
  Shard::Environment recording = environment();
  recording.values = &values;
  recording.record = [&](const Change&) { was_whole = guard->still(before); };
  Shard shard(spec, Tensor::zeros(DType::kFloat32, {kElements}), recording);
  const auto live = shard.live();
  ASSERT_TRUE(live);
  guard = &parameter_server::guard_of(static_cast<const char*>(live->value.raw()));
  before = live->sequence;
  auto push = gradient(0, 1);
  push.gradient = Tensor::zeros(DType::kFloat32, {kElements});
  shard.push(std::move(push));
  EXPECT_TRUE(was_whole);
  EXPECT_FALSE(guard->still(before)) << "now it has changed";
}

class LargeShards : public ::testing::Test {
 protected:
  // Some more than a multiple of what vectors and threads take.
  static constexpr int64_t kElements = kTeamBytes / sizeof(float) + 1237;

  static Tensor numbers(int64_t elements, uint32_t seed) {
    Tensor tensor(DType::kFloat32, {elements});
    for (int64_t i = 0; i < elements; ++i) {
      seed = seed * 1664525 + 1013904223;
      tensor.data<float>()[i] = static_cast<float>(seed >> 8) * 0x1p-24f - 0.5f;
    }
    return tensor;
  }
  std::unique_ptr<Shard> make(const ShardSpec& spec, UpdateTeam* team) {
    return std::make_unique<Shard>(
        spec, numbers(spec.rows, 1),
        Shard::Environment{.epoch = 1, .buffers = &buffers_, .team = team});
  }
  static void push(Shard& shard, uint64_t sequence) {
    IncomingPush push;
    push.task = "worker:0";
    push.mark = {.incarnation = 1, .sequence = sequence};
    push.learning_rate = 0.1;
    push.gradient = numbers(shard.spec().rows, 100 + static_cast<uint32_t>(sequence));
    shard.push(std::move(push));
  }

  parameter_server::BufferCache buffers_{0};
  UpdateTeam team_{3};
};

TEST_F(LargeShards, AreUpdatedByAllThreadsOfTheirServer) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer parallel regions run on one thread";
#endif
  std::atomic<int> threads_of_update = 0;
  const UpdateWatch watch([&] { threads_of_update = num_threads(); });
  for (const auto& [elements, threads] : {std::pair(kElements, 3), std::pair(int64_t{1000}, 1)}) {
    ShardSpec spec = whole_shard("w", {DType::kFloat32, {elements}});
    spec.update = trace_update(WatchedRule(), spec.spec());
    push(*make(spec, &team_), 1);
    EXPECT_EQ(threads_of_update.load(), threads) << elements << " elements";
    push(*make(spec, nullptr), 1);
    EXPECT_EQ(threads_of_update.load(), 1) << "of a server with one";
  }
}

// Bit for bit.
TEST_F(LargeShards, GetTheSameNumbersFromSeveralThreads) {
  for (const optim::Optimizer& optimizer :
       {optim::SGD(0.1, {.momentum = 0.9}), optim::Adam(0.1), optim::Lamb(0.1)}) {
    const ShardSpec spec = whole_shard("w", {DType::kFloat32, {kElements}}, optimizer);
    const auto alone = make(spec, nullptr), together = make(spec, &team_);
    for (uint64_t sequence = 1; sequence <= 3; ++sequence)
      for (Shard* shard : {alone.get(), together.get()}) push(*shard, sequence);
    for (int part = 0; part < spec.num_parts(); ++part) {
      const Tensor one = alone->part(part), other = together->part(part);
      EXPECT_EQ(std::memcmp(one.raw(), other.raw(), one.bytes()), 0)
          << "part " << part << " of " << spec.num_parts();
    }
  }
}

// What goes wrong there is told to who has pushed.
TEST_F(LargeShards, RefuseUpdatesThatAreNone) {
  ShardSpec spec = whole_shard("w", {DType::kFloat32, {kElements}});
  spec.update.dense = "rubbish";
  const Error alone = error_of([&] { make(spec, nullptr); });
  const Error together = error_of([&] { make(spec, &team_); });
  EXPECT_NE(alone.message(), "no error");
  EXPECT_EQ(together.what(), std::string(alone.what()));
}

TEST(RowsOnFirstUse, TakeNoMoreThanTheServerHas) {
  constexpr size_t kSlabs = 1 << 20;  // of a megabyte
  parameter_server::BufferCache buffers(0);
  MemoryBudget budget(3 * kSlabs + kSlabs / 2);
  const auto make = [&](const std::string& name) {
    ShardSpec spec = whole_shard(name, {DType::kFloat32, {8, 1 << 16}});
    spec.whole.shape = spec.whole.shape.with_dim(0, 1'000'000);
    spec.rows = 1'000'000;
    spec.update.dense.clear();
    spec.lazy = RowInitializer{};
    return std::make_unique<Shard>(spec, Tensor(),
                                   Shard::Environment{.buffers = &buffers, .budget = &budget});
  };
  const std::vector<int64_t> first = {0, 1, 2, 3}, second = {4, 5, 6, 7}, third = {8};
  const std::vector<float> values(4 << 16, 2);
  uint64_t writes = 0;
  const auto write = [&](Shard& shard, const std::vector<int64_t>& rows) {
    shard.assign_rows({"worker:0", {1, ++writes}}, 0, rows,
                      reinterpret_cast<const char*>(values.data()), false);
  };
  auto one = make("one"), other = make("other");
  EXPECT_GT(budget.left(), 3 * kSlabs) << "nothing is in use yet";
  write(*one, first);
  write(*other, first);
  write(*other, second);
  EXPECT_LT(budget.left(), kSlabs);
  EXPECT_ERROR(write(*one, third), Code::kResourceExhausted, "shard \"one\"");
  EXPECT_EQ(one->rows_in_use(), 4);
  write(*one, first);  // those that are there
  other = nullptr;
  write(*one, third);
  EXPECT_EQ(one->rows_in_use(), 5);
}

// Also where there is no memory for both, that which it has and that which it is to have.
TEST(RowsOnFirstUse, AreRestoredWithinWhatTheServerHas) {
  constexpr size_t kRow = 2 << 20;  // value and slot
  MemoryBudget budget(4 * kRow + kRow / 2);
  const Shard::Environment environment{.budget = &budget};
  Shard one(wide_table("one"), Tensor(), environment);
  auto other = std::make_unique<Shard>(wide_table("other"), Tensor(), environment);
  one.restore(state_with(one.spec(), {1, 2}, 5));
  other->restore(state_with(other->spec(), {1}, 5));
  const size_t left = budget.left();
  EXPECT_LT(left, 2 * kRow);
  EXPECT_ERROR(one.restore(state_with(one.spec(), {3, 4, 5, 6}, 7)), Code::kResourceExhausted,
               "shard \"one\"");
  EXPECT_EQ(one.rows_after(-1, 10), (std::vector<int64_t>{1, 2})) << "nothing has changed";
  std::vector<float> row(1 << 18);
  one.pull_rows(0, std::vector<int64_t>{2}, reinterpret_cast<char*>(row.data()));
  EXPECT_EQ(row.back(), 5);
  EXPECT_EQ(budget.left(), left);
  one.restore(state_with(one.spec(), {3, 4, 5}, 7));
  one.pull_rows(0, std::vector<int64_t>{5}, reinterpret_cast<char*>(row.data()));
  EXPECT_EQ(row.back(), 7);
  other = nullptr;
  one.restore(state_with(one.spec(), {3, 4, 5, 6}, 8));
  EXPECT_EQ(one.rows_in_use(), 4);
  one.restore(state_with(one.spec(), {6}, 9));
  EXPECT_GT(budget.left(), 3 * kRow) << "what it needs no longer is there for others";
}

// What names rows takes memory, however narrow these are.
TEST(RowsOnFirstUse, CountByTheirNumberToo) {
  parameter_server::BufferCache buffers(0);
  constexpr size_t kBytes = 1 << 20;
  MemoryBudget budget(kBytes);
  ShardSpec spec = lazy_table(int64_t{1} << 40, 1, {});
  spec.whole.shape = spec.whole.shape.with_dim(1, 0);
  spec.update = {};
  Shard shard(spec, Tensor(), {.buffers = &buffers, .budget = &budget});
  std::vector<int64_t> rows(kBytes / sizeof(int64_t));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  EXPECT_ERROR(shard.assign_rows({"worker:0", {1, 1}}, 0, rows, nullptr, false),
               Code::kResourceExhausted, "max_bytes");
  EXPECT_EQ(shard.rows_in_use(), 0);
}

// A table of two rows at most, of which row 5 is 7.
class SmallTable : public ::testing::Test {
 protected:
  SmallTable() { write({"worker:0", {1, 1}}, 5); }
  void write(const Shard::Writer& writer, int64_t row) {
    const float seven = 7;
    shard_.assign_rows(writer, 0, std::vector<int64_t>{row}, reinterpret_cast<const char*>(&seven),
                       false);
  }
  void push(const std::vector<int64_t>& rows) {
    IncomingPush push;
    push.task = "worker:0";
    push.mark = {.incarnation = 1, .sequence = ++pushes_};
    push.learning_rate = 1;
    push.gradient = Tensor::full(DType::kFloat32, {static_cast<int64_t>(rows.size()), 1}, 1);
    push.rows = rows;
    shard_.push(std::move(push));
  }
  float row(int64_t number) const {
    float value = 0;
    shard_.pull_rows(0, std::vector<int64_t>{number}, reinterpret_cast<char*>(&value));
    return value;
  }
  float row_five() const { return row(5); }

  uint64_t pushes_ = 0;
  const ShardSpec spec_ = lazy_table(1000, 1, {.max_rows = 2});
  Shard shard_{spec_, Tensor(), {}};
};

TEST_F(SmallTable, GetsNoRowsFromAPushThatIsRefused) {
  EXPECT_ERROR(push({7, 8}), Code::kResourceExhausted, "may have 2 rows");
  EXPECT_EQ(shard_.rows_in_use(), 1);
  push({8});
  EXPECT_EQ(shard_.rows_after(-1, 10), (std::vector<int64_t>{5, 8}));
}

TEST_F(SmallTable, GetsNoRowsFromAWriteThatIsNotMade) {
  write({"worker:0", {1, 1}}, 6);  // it has been made before
  const auto old = std::make_shared<Start>("worker:0", 1);
  old->retired = true;
  EXPECT_ERROR(write({"worker:0", {1, 2}, old}, 6), Code::kFailedPrecondition, "worker:0");
  EXPECT_EQ(shard_.rows_after(-1, 10), (std::vector<int64_t>{5}));
}

TEST_F(SmallTable, IsGivenTheRowsThatItDoesNotHaveAlone) {
  const std::vector<float> values = {1, 2, 3};
  const auto add = [&](uint64_t sequence, const std::vector<int64_t>& rows) {
    return shard_.add_missing_rows({"worker:1", {1, sequence}}, rows,
                                   reinterpret_cast<const char*>(values.data()));
  };
  const uint64_t version = shard_.version();
  EXPECT_ERROR(add(1, {8, 5, 9}), Code::kResourceExhausted, "may have 2 rows");
  EXPECT_EQ(shard_.rows_in_use(), 1);
  EXPECT_EQ(add(2, {5, 8}), version) << "no gradient is late for it";
  EXPECT_EQ(row(8), 2);
  EXPECT_EQ(add(3, {8, 5}), version);
  EXPECT_EQ(row(8), 2);
  EXPECT_EQ(row_five(), 7);
}

TEST_F(SmallTable, StaysAsItIsWhereASnapshotDoesNotFit) {
  EXPECT_ERROR(shard_.restore(state_with(spec_, {1, 2, 3}, 1)), Code::kResourceExhausted,
               "may have 2 rows");
  EXPECT_EQ(row_five(), 7);
  EXPECT_EQ(shard_.rows_in_use(), 1);
}

}  // namespace
}  // namespace cohort::testing
