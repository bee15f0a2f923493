#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "strategies/central_storage_strategy.h"
#include "strategies/mirrored_strategy.h"
#include "strategies/one_device_strategy.h"

namespace cohort {
namespace {

constexpr int kMaxReplicas = 7;

enum class Kind { kOneDevice, kMirrored, kCentral };
struct Case {
  Kind kind;
  int replicas;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  const char* names[] = {"OneDevice", "Mirrored", "Central"};
  return out << names[static_cast<int>(c.kind)] << c.replicas;
}

std::unique_ptr<Strategy> make_strategy(const Case& c) {
  std::vector<std::string> devices;
  for (int r = 0; r < c.replicas; ++r) devices.push_back(str("cpu:", r));
  if (c.kind == Kind::kMirrored)
    return std::make_unique<MirroredStrategy>(MirroredStrategy::Options{.devices = devices});
  if (c.kind == Kind::kCentral)
    return std::make_unique<CentralStorageStrategy>(
        CentralStorageStrategy::Options{.compute_devices = devices});
  return OneDeviceStrategy("cpu:1");
}

// The error that `f` throws, which has to have this code.
std::string error_of(Code code, const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<double> to_doubles(const Tensor& tensor) {
  const Tensor wide = tensor.cast(DType::kFloat64);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

using VariablePtr = std::shared_ptr<Variable>;

struct Kept {
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kNone;
};

VariablePtr make_variable(const Tensor& initial, const Kept& kept) {
  return create_variable({.name = "v",
                          .spec = initial.spec(),
                          .initial_value = [initial] { return initial; },
                          .trainable = false,
                          .synchronization = kept.synchronization,
                          .aggregation = kept.aggregation});
}

VariablePtr on_write(const Tensor& initial, Aggregation aggregation) {
  return make_variable(initial, {Synchronization::kOnWrite, aggregation});
}

VariablePtr on_read(const Tensor& initial, Aggregation aggregation) {
  return make_variable(initial, {Synchronization::kOnRead, aggregation});
}

Tensor number(double value, DType dtype = DType::kFloat32) {
  return Tensor::full(dtype, {}, value);
}

constexpr Aggregation kAggregations[] = {Aggregation::kNone, Aggregation::kSum, Aggregation::kMean,
                                         Aggregation::kOnlyFirstReplica};

class VariablesTest : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(kMaxReplicas, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }

  std::unique_ptr<Strategy> strategy_ = make_strategy(GetParam());
  const int n_ = GetParam().replicas;
  Strategy::Scope scope_ = strategy_->scope();

  // f(r) for each replica.
  PerReplica<Tensor> each(const std::function<double(int)>& f,
                          DType dtype = DType::kFloat32) const {
    PerReplica<Tensor> values(static_cast<size_t>(n_));
    for (int r = 0; r < n_; ++r) values[static_cast<size_t>(r)] = number(f(r), dtype);
    return values;
  }
  PerReplica<Tensor> ids() const {
    return each([](int r) { return r; });
  }

  template <typename Step, typename... Arguments>
  auto run(Step step, const Arguments&... arguments) {
    return strategy_->run(strategy_->function(std::move(step)), arguments...);
  }

  static std::vector<double> results(const PerReplica<Tensor>& values) {
    std::vector<double> all;
    for (const Tensor& value : values) all.push_back(value.item());
    return all;
  }

  // The values that replicas see.
  std::vector<double> copies(const VariablePtr& v) const {
    std::vector<double> all;
    for (int r = 0; r < n_; ++r) {
      const auto values = to_doubles(v->storage(r));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  std::vector<double> n_times(const std::vector<double>& values) const {
    std::vector<double> all;
    for (int r = 0; r < n_; ++r) all.insert(all.end(), values.begin(), values.end());
    return all;
  }
  std::vector<double> n_times(double value) const { return n_times(std::vector{value}); }

  // What an aggregation makes of x(r).
  double combined(Aggregation aggregation, const std::function<double(int)>& x) const {
    if (aggregation == Aggregation::kOnlyFirstReplica || n_ == 1) return x(0);
    double sum = 0;
    for (int r = 0; r < n_; ++r) sum += x(r);
    return aggregation == Aggregation::kSum ? sum : sum / n_;
  }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases = {{Kind::kOneDevice, 1}};
  for (const int replicas : {1, 2, 3, 4, kMaxReplicas})
    for (const Kind kind : {Kind::kMirrored, Kind::kCentral}) cases.push_back({kind, replicas});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, VariablesTest, testing::ValuesIn(all_cases()));

// --- Synchronised on write, inside replicas

TEST_P(VariablesTest, WritesOfReplicasAreAggregated) {
  const auto x = [](int r) { return 4.0 * r * r - 3; };
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32})
    for (const Aggregation aggregation :
         {Aggregation::kSum, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
      if (!is_floating(dtype) && aggregation == Aggregation::kMean) continue;
      SCOPED_TRACE(str(dtype, " aggregation ", static_cast<int>(aggregation)));
      const auto v = on_write(number(15, dtype), aggregation);
      const double change = number(combined(aggregation, x), dtype).item();

      auto seen = run([&](Value value) { return v->assign(value); }, each(x, dtype));
      EXPECT_EQ(results(seen), n_times(change));
      EXPECT_EQ(copies(v), n_times(change));

      v->assign(number(15, dtype));
      seen = run([&](Value value) { return v->assign_add(value); }, each(x, dtype));
      EXPECT_EQ(results(seen), n_times(number(15 + change, dtype).item()));
      EXPECT_EQ(copies(v), results(seen));

      seen = run([&](Value value) { return v->assign_sub(value); }, each(x, dtype));
      EXPECT_EQ(results(seen), copies(v));
      EXPECT_NEAR(v->value().item(), 15, 1e-5);
    }
}

TEST_P(VariablesTest, AWriteTakesEffectWhereItStands) {
  const auto v = on_write(number(1), Aggregation::kMean);
  const auto seen = run(
      [&](Value x) {
        const Value before = v->read();
        v->assign(x);
        const Value between = v->read();
        v->assign_add(x * 10.0);
        return std::vector{before, between, v->read(), before + between};
      },
      each([](int r) { return r + 1; }));
  const double mean = (n_ + 1) / 2.0;
  EXPECT_EQ(results(seen[0]), n_times(1));
  EXPECT_EQ(results(seen[1]), n_times(mean));
  EXPECT_EQ(results(seen[2]), n_times(11 * mean));
  EXPECT_EQ(results(seen[3]), n_times(1 + mean));
  EXPECT_EQ(copies(v), n_times(11 * mean));
}

TEST_P(VariablesTest, WithoutAggregationAValueThatIsTheSameIsWritten) {
  const auto v = on_write(number(0), Aggregation::kNone);
  EXPECT_EQ(results(run([&] { return v->assign(ops::constant(5, DType::kFloat32)); })), n_times(5));
  EXPECT_EQ(results(run([&] { return v->assign_add(v->read() * 2.0); })), n_times(15));
  EXPECT_EQ(results(run([&](Value x) { return v->assign_sub(x); }, 4.0f)), n_times(11));
  const auto reduced =
      run([&](Value x) { return v->assign(get_replica_context()->all_reduce(ReduceOp::kSum, x)); },
          each([](int r) { return r + 1; }));
  EXPECT_EQ(results(reduced), n_times(n_ * (n_ + 1) / 2.0));
  EXPECT_EQ(copies(v), results(reduced));
}

TEST_P(VariablesTest, WithoutAggregationReplicasMayNotWriteTheirOwn) {
  const auto v = on_write(number(2), Aggregation::kNone);
  const auto assign = [&] { run([&](Value x) { return v->assign(x); }, ids()); };
  if (n_ == 1) return assign();
  const std::string message = error_of(Code::kInvalidArgument, assign);
  for (const char* part : {"\"v\"", "kSum", "kMean", "kOnlyFirstReplica"})
    EXPECT_TRUE(contains(message, part)) << message;
  error_of(Code::kInvalidArgument, [&] { run([&](Value x) { return v->assign_add(x); }, ids()); });
  error_of(Code::kInvalidArgument, [&] {
    run([&] {
      const Value id = get_replica_context()->replica_id_in_sync_group();
      return v->assign(ops::cast(id, DType::kFloat32));
    });
  });
  EXPECT_EQ(copies(v), n_times(2));
}

TEST_P(VariablesTest, ASumRefusesOneValueForAllReplicas) {
  const auto v = on_write(number(3), Aggregation::kSum);
  const auto constant = [&] { run([&] { return v->assign(ops::constant(5, DType::kFloat32)); }); };
  const auto argument = [&] { run([&](Value x) { return v->assign_add(x); }, number(5)); };
  if (n_ == 1) {
    constant();
    argument();
    EXPECT_EQ(copies(v), n_times(10));
    return;
  }
  for (const auto& write : {std::function<void()>(constant), std::function<void()>(argument)}) {
    const std::string message = error_of(Code::kInvalidArgument, write);
    EXPECT_TRUE(contains(message, "\"v\"") && contains(message, str("each of the ", n_)) &&
                contains(message, str("divide it by ", n_)))
        << message;
  }
  EXPECT_EQ(copies(v), n_times(3));
}

TEST_P(VariablesTest, ASumTakesAShareOfEachReplicaOrNothing) {
  const auto v = on_write(number(3), Aggregation::kSum);
  const auto share =
      run([&] { return v->assign(ops::constant(5, DType::kFloat32) / static_cast<double>(n_)); });
  for (const double value : results(share)) EXPECT_NEAR(value, 5, 1e-5);
  EXPECT_EQ(results(run([&] { return v->assign(ops::constant(0, DType::kFloat32)); })), n_times(0));
  const auto same = run([&](Value x) { return v->assign_sub(x); }, each([](int) { return -2; }));
  EXPECT_EQ(results(same), n_times(2.0 * n_)) << "equal values of replicas are theirs";
}

TEST_P(VariablesTest, OneValueForAllReplicasIsItsOwnMeanWithoutCommunication) {
  for (const Aggregation aggregation : {Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    const auto v = on_write(number(1), aggregation);
    const Function step([&](const std::vector<Value>&) {
      v->assign(ops::constant(5, DType::kFloat32));
      return std::vector{v->assign_add(v->read())};
    });
    const PerReplica<std::vector<Tensor>> nothing(static_cast<size_t>(n_));
    for (const auto& outputs : strategy_->run(step, nothing)) EXPECT_EQ(outputs[0].item(), 10);
    EXPECT_EQ(copies(v), n_times(10));
    const ReplicaGroup group{.strategy = 1, .num_replicas = n_};
    std::string graph = str(*step.trace({}, group).graph);
    EXPECT_FALSE(contains(graph, "AllReduce") || contains(graph, "Broadcast")) << graph;
  }
}

TEST_P(VariablesTest, IntegersHaveNoMean) {
  const auto v = on_write(number(1, DType::kInt64), Aggregation::kMean);
  const auto assign = [&] {
    run([&](Value x) { return v->assign(x); }, each([](int r) { return r; }, DType::kInt64));
  };
  if (n_ == 1) return assign();
  EXPECT_TRUE(contains(error_of(Code::kInvalidArgument, assign), "mean of int64"));
  error_of(Code::kInvalidArgument, [&] { on_read(number(1, DType::kInt32), Aggregation::kMean); });
}

TEST_P(VariablesTest, AnotherSpecIsRefusedByName) {
  const auto v = on_write(Tensor::zeros(DType::kFloat32, {2}), Aggregation::kMean);
  for (const Tensor& wrong :
       {number(1), Tensor::zeros(DType::kFloat32, {3}), Tensor::zeros(DType::kFloat64, {2})}) {
    for (const std::string& message :
         {error_of(Code::kInvalidArgument,
                   [&] { run([&](Value x) { return v->assign(x); }, wrong); }),
          error_of(Code::kInvalidArgument,
                   [&] { run([&](Value x) { return v->assign_add(x); }, wrong); }),
          error_of(Code::kInvalidArgument, [&] { v->assign(wrong); }),
          error_of(Code::kInvalidArgument, [&] { v->assign_sub(wrong); })})
      EXPECT_TRUE(contains(message, str("variable \"v\" is float32[2], got ", wrong.spec())))
          << message;
  }
}

TEST_P(VariablesTest, AllReduceOfAVariableCountsEveryReplica) {
  const auto v = on_write(number(2), Aggregation::kNone);
  const auto sums = run(
      [&](Value id) { return get_replica_context()->all_reduce(ReduceOp::kSum, v->read()) + id; },
      ids());
  for (int r = 0; r < n_; ++r) EXPECT_EQ(sums[static_cast<size_t>(r)].item(), 2 * n_ + r);
}

// --- Outside replicas

TEST_P(VariablesTest, OutsideEveryCopyIsWritten) {
  for (const Synchronization synchronization : {Synchronization::kAuto, Synchronization::kNone})
    for (const Aggregation aggregation : kAggregations) {
      const auto v = make_variable(number(0), {synchronization, aggregation});
      v->assign(number(1));
      EXPECT_EQ(copies(v), n_times(1));
      v->assign_add(number(1));
      EXPECT_EQ(copies(v), n_times(2));
      v->assign_sub(number(-1));
      EXPECT_EQ(copies(v), n_times(3));
      EXPECT_EQ(v->value().item(), 3);
    }
}

TEST_P(VariablesTest, AFunctionOfItsOwnWritesEveryCopy) {
  for (const Aggregation aggregation : kAggregations) {
    const auto v = on_write(Tensor::from<float>({1, 2}, {2}), aggregation);
    const auto step = function([&](Value x) {
      v->assign(v->read() * x);
      v->assign_add(v->read());
      v->scatter(ScatterOp::kUpdate, ops::constant(Tensor::from<int32_t>({0}, {1})),
                 ops::reshape(x, {1}));
      return v->read();
    });
    EXPECT_EQ(to_doubles(step({number(5)})[0]), (std::vector<double>{5, 20}));
    EXPECT_EQ(copies(v), n_times({5, 20}));
  }
}

TEST_P(VariablesTest, AfterTheScopeEveryCopyIsWritten) {
  const auto v = on_write(number(1), Aggregation::kNone);
  scope_.exit();
  v->assign(number(3));
  EXPECT_EQ(copies(v), n_times(3));
  function([&](Value x) { return v->assign(x); })({number(4)});
  EXPECT_EQ(copies(v), n_times(4));
}

// --- Synchronised on read

TEST_P(VariablesTest, OnReadReplicasKeepTheirOwn) {
  const auto x = [](int r) { return 3.0 * r + 1; };
  for (const Aggregation aggregation : kAggregations) {
    const auto v = on_read(number(0), aggregation);
    const auto seen = run([&](Value value) { return v->assign(value); }, each(x));
    const auto own = results(each(x));
    EXPECT_EQ(results(seen), own);
    EXPECT_EQ(results(run([&] { return v->read() + 1.0; }))[0], x(0) + 1);
    EXPECT_EQ(results(run([&](Value d) { return v->assign_add(d); }, number(2)))[0], x(0) + 2);
    EXPECT_EQ(results(run([&](Value d) { return v->assign_sub(d); }, number(2))), own);
    EXPECT_EQ(copies(v), own);
    const auto one = function([&](Value y) { return v->read() + y; });
    if (aggregation == Aggregation::kNone) {
      const auto message = error_of(Code::kInvalidArgument, [&] { v->value(); });
      EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "inside a replica")) << message;
      if (n_ > 1) error_of(Code::kInvalidArgument, [&] { one({number(1)}); });
    } else {
      EXPECT_EQ(v->value().item(), number(combined(aggregation, x)).item());
      EXPECT_FLOAT_EQ(static_cast<float>(one({number(1)})[0].item()),
                      static_cast<float>(combined(aggregation, x) + 1));
    }
  }
}

TEST_P(VariablesTest, OnReadAnAssignedSumIsSharedOut) {
  const auto v = on_read(number(0), Aggregation::kSum);
  v->assign(number(n_));
  EXPECT_EQ(copies(v), n_times(1));
  EXPECT_EQ(v->value().item(), n_);
  for (const auto& change : {std::function<void()>([&] { v->assign_add(number(1)); }),
                             std::function<void()>([&] { v->assign_sub(number(1)); })}) {
    const std::string message = error_of(Code::kInvalidArgument, change);
    EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "assign the new value")) << message;
  }
  EXPECT_EQ(copies(v), n_times(1));
  // Whatever the number of replicas, nothing of an integer is lost.
  for (const DType dtype : {DType::kInt32, DType::kInt64})
    for (const int64_t total : {0, 1, 5, 100, -13}) {
      const auto count = on_read(number(0, dtype), Aggregation::kSum);
      count->assign(number(static_cast<double>(total), dtype));
      EXPECT_EQ(count->value().item(), total);
      const auto seen = copies(count);
      const auto [low, high] = std::minmax_element(seen.begin(), seen.end());
      EXPECT_LT(*high - *low, n_);
    }
  const auto large = on_read(number(0, DType::kInt64), Aggregation::kSum);
  const int64_t beyond_float64 = (int64_t{1} << 60) + 1;
  large->assign(Tensor::scalar(beyond_float64));
  EXPECT_EQ(*large->value().data<int64_t>(), beyond_float64);
}

TEST_P(VariablesTest, OnReadOthersAreWrittenToEveryCopy) {
  const auto x = [](int r) { return 2.0 * r; };
  for (const Aggregation aggregation : {Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
    const auto v = on_read(number(0), aggregation);
    run([&](Value value) { return v->assign(value); }, each(x));
    v->assign_add(number(1));
    EXPECT_EQ(copies(v), results(each([&](int r) { return x(r) + 1; })));
    EXPECT_EQ(v->value().item(), combined(aggregation, x) + 1);
    v->assign(number(6));
    EXPECT_EQ(copies(v), n_times(6));
  }
}

TEST_P(VariablesTest, NotSynchronisedTheFirstCopyCounts) {
  for (const Aggregation aggregation : kAggregations) {
    const auto v = make_variable(number(9), {Synchronization::kNone, aggregation});
    const auto seen = run([&](Value id) { return v->assign_add(id * 2.0); }, ids());
    const auto own = results(each([](int r) { return 9 + 2 * r; }));
    EXPECT_EQ(results(seen), own);
    EXPECT_EQ(copies(v), own);
    EXPECT_EQ(v->value().item(), 9);
    v->assign(number(4));
    EXPECT_EQ(copies(v), n_times(4));
  }
}

// --- Scatters

// The change that updates make to rows, one after the other.
void scatter(ScatterOp op, std::vector<double>& rows, const std::vector<double>& indices,
             const std::vector<double>& updates) {
  const size_t columns = indices.empty() ? 0 : updates.size() / indices.size();
  for (size_t i = 0; i < indices.size(); ++i)
    for (size_t j = 0; j < columns; ++j) {
      double& at = rows[static_cast<size_t>(indices[i]) * columns + j];
      const double update = updates[i * columns + j];
      switch (op) {
        case ScatterOp::kAdd:
          at += update;
          break;
        case ScatterOp::kSub:
          at -= update;
          break;
        case ScatterOp::kMul:
          at *= update;
          break;
        case ScatterOp::kDiv:
          at /= update;
          break;
        case ScatterOp::kMin:
          at = std::min(at, update);
          break;
        case ScatterOp::kMax:
          at = std::max(at, update);
          break;
        case ScatterOp::kUpdate:
          at = update;
          break;
      }
    }
}

constexpr ScatterOp kScatterOps[] = {ScatterOp::kAdd,   ScatterOp::kSub, ScatterOp::kMul,
                                     ScatterOp::kDiv,   ScatterOp::kMin, ScatterOp::kMax,
                                     ScatterOp::kUpdate};

bool is_summable(ScatterOp op) {
  return op != ScatterOp::kMin && op != ScatterOp::kMax && op != ScatterOp::kUpdate;
}

TEST_P(VariablesTest, ScattersOfReplicasFollowEachOther) {
  constexpr int64_t kRows = 5, kColumns = 3;
  const uint64_t seed = 20240607;
  std::mt19937_64 random(seed);
  for (const ScatterOp op : kScatterOps)
    for (const Aggregation aggregation :
         {Aggregation::kSum, Aggregation::kMean, Aggregation::kOnlyFirstReplica}) {
      if (n_ > 1 && !is_summable(op) && aggregation != Aggregation::kOnlyFirstReplica) continue;
      for (const bool uneven : {false, true}) {
        SCOPED_TRACE(str("op ", static_cast<int>(op), " aggregation ",
                         static_cast<int>(aggregation), " uneven ", uneven, " seed ", seed));
        Tensor initial(DType::kFloat64, {kRows, kColumns});
        for (int64_t i = 0; i < kRows * kColumns; ++i)
          initial.data<double>()[i] = std::uniform_real_distribution(-2.0, 2.0)(random);
        const auto v = on_write(initial, aggregation);
        auto expected = to_doubles(initial);
        PerReplica<Tensor> indices(static_cast<size_t>(n_)), updates(static_cast<size_t>(n_));
        for (size_t r = 0; r < indices.size(); ++r) {
          const int64_t count = uneven ? (static_cast<int64_t>(r) * 2 + 3) % 4 : 4;
          indices[r] = Tensor(DType::kInt32, {count});
          updates[r] = Tensor(DType::kFloat64, {count, kColumns});
          for (int64_t i = 0; i < count; ++i)
            indices[r].data<int32_t>()[i] = static_cast<int32_t>(random() % kRows);
          for (int64_t i = 0; i < count * kColumns; ++i)
            updates[r].data<double>()[i] = std::uniform_real_distribution(0.5, 2.0)(random);
          if (r > 0 && aggregation == Aggregation::kOnlyFirstReplica) continue;
          auto weighted = to_doubles(updates[r]);
          if (aggregation == Aggregation::kMean)
            for (double& update : weighted) update /= n_;
          scatter(op, expected, to_doubles(indices[r]), weighted);
        }
        const auto seen = run(
            [&](Value at, Value by) {
              v->scatter(op, at, by);
              return v->read();
            },
            indices, updates);
        for (int r = 0; r < n_; ++r) {
          const auto copy = to_doubles(v->storage(r));
          EXPECT_EQ(to_doubles(seen[static_cast<size_t>(r)]), copy);
          for (size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(copy[i], expected[i], 1e-12 * std::max(1.0, std::abs(expected[i])));
        }
      }
    }
}

TEST_P(VariablesTest, ScattersWithoutAggregationAreTheSameOnEveryReplica) {
  const auto v = on_write(number(0).reshape({1}), Aggregation::kNone);
  v->assign(Tensor::from<float>({4}, {1}));
  const Tensor row = Tensor::from<int64_t>({0}, {1}), two = Tensor::from<float>({2}, {1});
  double expected = 4;
  for (const ScatterOp op : {ScatterOp::kSub, ScatterOp::kAdd, ScatterOp::kMax, ScatterOp::kMin,
                             ScatterOp::kMul, ScatterOp::kDiv, ScatterOp::kUpdate}) {
    run([&] { v->scatter(op, ops::constant(row), ops::constant(two)); });
    std::vector<double> rows = {expected};
    scatter(op, rows, {0}, {2});
    expected = rows[0];
    EXPECT_EQ(copies(v), n_times(expected));
  }
  if (n_ > 1) {
    const std::string message = error_of(Code::kInvalidArgument, [&] {
      run([&](Value x) { v->scatter(ScatterOp::kAdd, ops::constant(row), ops::reshape(x, {1})); },
          ids());
    });
    EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "kOnlyFirstReplica")) << message;
  }
}

TEST_P(VariablesTest, ScattersThatHaveNoSumAreNotThere) {
  const Tensor rows = Tensor::from<float>({0, 2, 0}, {3});
  const auto scatter_id = [&](const VariablePtr& v, ScatterOp op) {
    run(
        [&, op](Value id) {
          v->scatter(op, ops::constant(Tensor::from<int32_t>({1}, {1})),
                     ops::reshape(id, {1}) + 1.0);
        },
        ids());
  };
  for (const ScatterOp op : {ScatterOp::kMin, ScatterOp::kMax, ScatterOp::kUpdate}) {
    for (const Aggregation aggregation : {Aggregation::kSum, Aggregation::kMean}) {
      const auto v = on_write(rows, aggregation);
      if (n_ > 1) {
        const auto message = error_of(Code::kUnimplemented, [&] { scatter_id(v, op); });
        EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "kOnlyFirstReplica"))
            << message;
        EXPECT_EQ(copies(v), n_times({0, 2, 0}));
      }
      // Outside there is nothing to sum.
      v->scatter(op, Tensor::from<int32_t>({2}, {1}), Tensor::from<float>({3}, {1}));
      EXPECT_EQ(copies(v), n_times({0, 2, op == ScatterOp::kMin ? 0.0 : 3.0}));
    }
    const auto first = on_write(rows, Aggregation::kOnlyFirstReplica);
    scatter_id(first, op);
    EXPECT_EQ(copies(first), n_times({0, op == ScatterOp::kMax ? 2.0 : 1.0, 0}));
  }
}

TEST_P(VariablesTest, IntegersScatterToo) {
  const auto step = [&](const VariablePtr& v, ScatterOp op) {
    run(
        [&, op](Value id) {
          const Value at = ops::reshape(ops::cast(id, DType::kInt32), {1});
          v->scatter(op, at, at + 2.0);
        },
        ids());
  };
  std::vector<int32_t> initial(kMaxReplicas, 60);
  std::vector<double> divided(kMaxReplicas, 60), added(kMaxReplicas, 60);
  for (int r = 0; r < n_; ++r) {
    divided[static_cast<size_t>(r)] = 60 / (r + 2);  // towards zero
    added[static_cast<size_t>(r)] = 60 + r + 2;
  }
  const Tensor start = Tensor::from(initial, {kMaxReplicas});
  const auto quotient = on_write(start, Aggregation::kSum),
             sum = on_write(start, Aggregation::kSum);
  step(quotient, ScatterOp::kDiv);
  step(sum, ScatterOp::kAdd);
  EXPECT_EQ(copies(quotient), n_times(divided));
  EXPECT_EQ(copies(sum), n_times(added));
  const auto mean = on_write(start, Aggregation::kMean);
  if (n_ > 1) error_of(Code::kInvalidArgument, [&] { step(mean, ScatterOp::kAdd); });
}

TEST_P(VariablesTest, ASumRefusesOneScatterForAllReplicas) {
  const auto v = on_write(Tensor::from<float>({1, 1}, {2}), Aggregation::kSum);
  const Tensor row = Tensor::from<int32_t>({1}, {1}), three = Tensor::from<float>({3}, {1});
  if (n_ > 1) {
    const std::string message = error_of(Code::kInvalidArgument, [&] {
      run([&] { v->scatter(ScatterOp::kAdd, ops::constant(row), ops::constant(three)); });
    });
    EXPECT_TRUE(contains(message, "\"v\" sums what replicas write")) << message;
  }
  // Counting the rows that replicas name is a sum.
  run(
      [&](Value id) {
        v->scatter(ScatterOp::kAdd, ops::reshape(ops::cast(id * 0.0, DType::kInt32), {1}),
                   ops::constant(three));
      },
      ids());
  EXPECT_EQ(copies(v), n_times({1.0 + 3 * n_, 1}));
}

TEST_P(VariablesTest, OnReadThereIsNoScatter) {
  const Tensor row = Tensor::from<int32_t>({0}, {1}), one = Tensor::from<float>({1}, {1});
  for (const ScatterOp op : kScatterOps)
    for (const Aggregation aggregation : kAggregations) {
      const auto v = on_read(Tensor::from<float>({7}, {1}), aggregation);
      const auto message = error_of(Code::kUnimplemented, [&] {
        run([&](Value at, Value by) { v->scatter(op, at, by); }, row, one);
      });
      EXPECT_TRUE(contains(message, "\"v\"")) << message;
      error_of(Code::kUnimplemented, [&] { v->scatter(op, row, one); });
      EXPECT_EQ(copies(v), n_times(7));
    }
}

TEST_P(VariablesTest, AScatterBeyondTheRowsChangesNothing) {
  const auto v = on_write(Tensor::from<float>({1, 2, 3, 4}, {2, 2}), Aggregation::kNone);
  const Tensor rows = Tensor::from<int32_t>({0, 2}, {2}),
               by = Tensor::full(DType::kFloat32, {2, 2}, 1);
  const auto outside = error_of(Code::kOutOfRange, [&] { v->scatter(ScatterOp::kAdd, rows, by); });
  const auto inside = error_of(Code::kOutOfRange, [&] {
    run([&](Value i, Value u) { v->scatter(ScatterOp::kMul, i, u); }, rows, by);
  });
  for (const std::string& message : {outside, inside})
    EXPECT_TRUE(contains(message, "v/AssignScatter") && contains(message, "index 2 at position 1"))
        << message;
  EXPECT_EQ(copies(v), n_times({1, 2, 3, 4}));
  for (const Tensor& wrong : {Tensor::from<int32_t>({0}, {1}), Tensor::from<float>({0, 1}, {2}),
                              Tensor::from<int32_t>({0, 1}, {2, 1})}) {
    const auto message =
        error_of(Code::kInvalidArgument, [&] { v->scatter(ScatterOp::kAdd, wrong, by); });
    EXPECT_TRUE(contains(message, "variable \"v\" is float32[2,2]")) << message;
  }
  const auto scalar = on_write(number(1), Aggregation::kNone);
  error_of(Code::kInvalidArgument, [&] { scalar->scatter(ScatterOp::kAdd, rows, by); });
}

TEST_P(VariablesTest, AScatterOfTheVariablesOwnRowsUsesThoseOfBefore) {
  const auto v = on_write(Tensor::from<float>({1, 10, 100}, {3}), Aggregation::kNone);
  run([&] {
    const Value order = ops::constant(Tensor::from<int32_t>({1, 2, 0}, {3}));
    v->scatter(ScatterOp::kAdd, order, v->read());
  });
  EXPECT_EQ(copies(v), n_times({101, 11, 110}));
}

// --- Making and using

TEST_P(VariablesTest, OneMadeInAStepHasEqualCopies) {
  int made = 0;
  std::mt19937_64 random;  // not seeded anew: another call would give other numbers
  for (const Synchronization synchronization :
       {Synchronization::kAuto, Synchronization::kOnRead, Synchronization::kNone}) {
    made = 0;
    VariablePtr v;
    const auto step = strategy_->function([&](Value x) {
      if (v == nullptr)
        v = create_variable({.name = "made",
                             .spec = {DType::kFloat64, {100}},
                             .initial_value =
                                 [&] {
                                   ++made;
                                   Tensor t(DType::kFloat64, {100});
                                   for (int i = 0; i < 100; ++i)
                                     t.data<double>()[i] =
                                         std::uniform_real_distribution(-1.0, 1.0)(random);
                                   return t;
                                 },
                             .synchronization = synchronization,
                             .aggregation = Aggregation::kSum});
      return ops::reduce_sum(v->read()) * ops::cast(ops::reduce_sum(x), DType::kFloat64);
    });
    for (const int64_t rows : {2, 3, 2}) {
      const auto seen = results(strategy_->run(step, Tensor::full(DType::kFloat32, {rows}, 1)));
      EXPECT_EQ(seen, n_times(seen[0]));
    }
    EXPECT_EQ(made, 1);
    EXPECT_EQ(step.trace_count(), 2);
    ASSERT_NE(v, nullptr);
    EXPECT_EQ(copies(v), n_times(to_doubles(v->storage(0))));
  }
}

TEST_P(VariablesTest, AnotherStrategysIsRefused) {
  const auto v = on_write(number(1), Aggregation::kNone);
  const int other = n_ == 1 ? 2 : n_ - 1;
  const auto mirrored = make_strategy({Kind::kMirrored, other});
  const auto foreign = [&](const std::function<Value()>& use) {
    const auto message = error_of(Code::kFailedPrecondition, [&] {
      // A thread has scopes of its own.
      std::exception_ptr error;
      std::thread([&] {
        try {
          mirrored->run(mirrored->function([&] { return use(); }));
        } catch (...) {
          error = std::current_exception();
        }
      }).join();
      if (error) std::rethrow_exception(error);
    });
    EXPECT_TRUE(contains(message, str("\"v\" was made for ", n_, " replica"))) << message;
  };
  foreign([&] { return v->read() + 1.0; });
  foreign([&] { return v->assign(ops::constant(2, DType::kFloat32)); });
}

TEST_P(VariablesTest, CopiesAreWhereTheStrategyPutsThem) {
  const auto written = on_write(number(1), Aggregation::kNone);
  const auto read = on_read(number(1), Aggregation::kSum);
  EXPECT_EQ(written->num_replicas(), n_);
  EXPECT_EQ(read->devices(), strategy_->devices());
  EXPECT_TRUE(written->is_same_on_replicas());
  EXPECT_FALSE(read->is_same_on_replicas());
  for (int r = 1; r < n_; ++r) {
    EXPECT_NE(read->storage(r).raw(), read->storage(0).raw());
    EXPECT_TRUE(read->is_written_by(r));
  }
  EXPECT_THROW(written->storage(n_), Error);
  if (GetParam().kind != Kind::kCentral) {
    EXPECT_EQ(written->devices(), strategy_->devices());
    return;
  }
  EXPECT_EQ(written->devices(), std::vector{Device{}});
  for (int r = 0; r < n_; ++r) {
    EXPECT_EQ(written->storage(r).raw(), written->storage(0).raw());
    EXPECT_EQ(written->is_written_by(r), r == 0);
  }
}

// Replicas that share a copy read it while it is still, whatever the order of their threads.
TEST_P(VariablesTest, NobodyReadsAValueThatIsHalfWritten) {
  constexpr int64_t kSize = 20000;
  constexpr int kSteps = 30;
  const auto v = on_write(Tensor::zeros(DType::kFloat32, {kSize}), Aggregation::kMean);
  const auto step = strategy_->function([&](Value x) {
    const Value before = ops::reduce_sum(v->read());
    const Value after = v->assign_add(v->read() * 0.0 + x);
    v->scatter(ScatterOp::kSub, ops::constant(Tensor::from<int32_t>({0}, {1})),
               ops::reshape(x, {1}));
    return std::vector{before, ops::reduce_sum(after), ops::reduce_sum(v->read())};
  });
  const auto own = each([](int r) { return r; });
  const double mean = (n_ - 1) / 2.0;
  for (int i = 0; i < kSteps; ++i) {
    const auto seen = strategy_->run(step, own);
    ASSERT_EQ(results(seen[0]), n_times(i * mean * (kSize - 1))) << "in step " << i;
    ASSERT_EQ(results(seen[1]), n_times(i * mean * (kSize - 1) + mean * kSize)) << "in step " << i;
    ASSERT_EQ(results(seen[2]), n_times((i + 1) * mean * (kSize - 1))) << "in step " << i;
  }
}

}  // namespace
}  // namespace cohort
