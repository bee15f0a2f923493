#include <cstdlib>
#include <thread>

#include "core/ops/math_ops.h"
#include "strategies/one_device_strategy.h"
#include "tests/distribute/testing.h"

namespace cohort {
namespace {

using testing::DevicesTest;
using testing::expect_error;
using testing::first_cpus;
using testing::floats;

static_assert(!std::is_copy_constructible_v<MirroredStrategy>);
static_assert(!std::is_copy_assignable_v<MirroredStrategy>);
static_assert(!std::is_copy_constructible_v<Strategy::Scope>);
static_assert(!std::is_constructible_v<Strategy::Scope, MirroredStrategy>);
template <typename S>
concept HasScope = requires(S&& strategy) {
  std::forward<S>(strategy).scope();
};
static_assert(HasScope<MirroredStrategy&> && !HasScope<MirroredStrategy>);

class ScopeTest : public DevicesTest {
 protected:
  MirroredStrategy a{{.devices = first_cpus(3)}}, b{{.devices = first_cpus(2)}};
};

TEST_F(ScopeTest, OutsideIsTheDefaultStrategyWithOneReplica) {
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
  EXPECT_EQ(&current_strategy(), &default_strategy());
  ASSERT_NE(get_replica_context(), nullptr);
  EXPECT_EQ(get_replica_context()->num_replicas_in_sync(), 1);
  EXPECT_EQ(&get_replica_context()->strategy(), &default_strategy());
}

TEST_F(ScopeTest, CodeWrittenForReplicasRunsUnchangedInAPlainFunction) {
  const auto f = function([](Value x) {
    const ReplicaContext& replica = *get_replica_context();
    const Value sum = replica.all_reduce(ReduceOp::kSum, x);
    return std::vector<Value>{sum, replica.all_gather(x, -1), replica.replica_id_in_sync_group()};
  });
  const auto results = f({floats({1, 2, 3})});
  EXPECT_EQ(testing::elements(results[0]), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(testing::elements(results[1]), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(results[2].item(), 0);
}

TEST_F(ScopeTest, InsideIsCrossReplicaContext) {
  const auto scope = a.scope();
  EXPECT_TRUE(has_strategy());
  EXPECT_TRUE(in_cross_replica_context());
  EXPECT_EQ(get_replica_context(), nullptr);
  EXPECT_EQ(&current_strategy(), &a);
}

TEST_F(ScopeTest, AStepIsTracedInReplicaContext) {
  int traced = 0;
  const auto step = a.function([&](Value x) {
    ++traced;
    EXPECT_TRUE(has_strategy());
    EXPECT_FALSE(in_cross_replica_context());
    EXPECT_EQ(&get_replica_context()->strategy(), &a);
    EXPECT_EQ(get_replica_context()->num_replicas_in_sync(), 3);
    return x;
  });
  a.run(step, 1.0f);
  EXPECT_EQ(traced, 1);
  EXPECT_FALSE(has_strategy()) << "run enters the scope by itself, and leaves it";
}

TEST_F(ScopeTest, TheSameStrategyMayBeEnteredAgain) {
  const auto outer = a.scope();
  {
    const auto inner = a.scope();
    EXPECT_EQ(&current_strategy(), &a);
  }
  EXPECT_EQ(&current_strategy(), &a);
}

TEST_F(ScopeTest, AnotherStrategyInsideIsRefused) {
  const auto one = OneDeviceStrategy();
  const auto outer = a.scope();
  for (Strategy* other : {static_cast<Strategy*>(&b), one.get(), &default_strategy()}) {
    expect_error(Code::kFailedPrecondition, {"MirroredStrategy", other->name(), "leave"},
                 [&] { const auto inner = other->scope(); });
    EXPECT_EQ(&current_strategy(), &a);
  }
  expect_error(Code::kFailedPrecondition, {"leave"},
               [&] { one->run(one->function([](Value x) { return x; }), 1.0f); });
}

TEST_F(ScopeTest, ScopesAreOfTheThread) {
  const auto scope = a.scope();
  std::thread([&] {
    EXPECT_FALSE(has_strategy());
    const auto other = b.scope();
    EXPECT_EQ(&current_strategy(), &b);
  }).join();
  EXPECT_EQ(&current_strategy(), &a);
}

TEST_F(ScopeTest, ExitLeavesEarly) {
  auto scope = a.scope();
  scope.exit();
  EXPECT_FALSE(has_strategy());
  expect_error(Code::kFailedPrecondition, {"already"}, [&] { scope.exit(); });
  const auto next = b.scope();
  EXPECT_EQ(&current_strategy(), &b);
}

TEST_F(ScopeTest, ExitOutOfOrderIsRefusedAndChangesNothing) {
  auto outer = a.scope();
  auto inner = a.scope();
  expect_error(Code::kFailedPrecondition, {"MirroredStrategy", "not the innermost"},
               [&] { outer.exit(); });
  EXPECT_EQ(&current_strategy(), &a);
  inner.exit();
  outer.exit();
  EXPECT_FALSE(has_strategy());
}

TEST_F(ScopeTest, ExitUnderAnOpenNameScopeNamesIt) {
  auto scope = a.scope();
  {
    const NameScope encoder("encoder");
    expect_error(Code::kFailedPrecondition, {"name scope", "encoder"}, [&] { scope.exit(); });
  }
  scope.exit();
}

TEST_F(ScopeTest, ExitOnAnotherThreadIsRefused) {
  auto scope = a.scope();
  std::thread([&] {
    expect_error(Code::kFailedPrecondition, {"another thread"}, [&] { scope.exit(); });
  }).join();
  EXPECT_EQ(&current_strategy(), &a);
}

TEST_F(ScopeTest, ADestroyedScopeStaysUntilTheInnerOnesAreLeft) {
  auto outer = std::make_unique<Strategy::Scope>(a);
  auto inner = std::make_unique<Strategy::Scope>(a);
  ::testing::internal::CaptureStderr();
  outer.reset();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("MirroredStrategy"), std::string::npos);
  EXPECT_EQ(&current_strategy(), &a);
  inner.reset();
  EXPECT_FALSE(has_strategy());
}

TEST_F(ScopeTest, AScopeDestroyedOnAnotherThreadIsLeft) {
  auto scope = std::make_unique<Strategy::Scope>(a);
  ::testing::internal::CaptureStderr();
  std::thread([&] { scope.reset(); }).join();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("thread"), std::string::npos);
  EXPECT_FALSE(has_strategy());
}

VariableOptions scalar() {
  return {.spec = {DType::kFloat32, {}}, .initial_value = [] { return Tensor::scalar(1.0f); }};
}

TEST_F(ScopeTest, OfAStrategyThatHasEndedIsNoUseAndIsLeft) {
  auto strategy =
      std::make_unique<MirroredStrategy>(MirroredStrategy::Options{.devices = first_cpus(1)});
  const std::vector<std::string> words = {"MirroredStrategy", "has ended", "before its scope"};
  {
    const auto outer = strategy->scope();
    const auto inner = strategy->scope();
    strategy.reset();
    expect_error(Code::kFailedPrecondition, words, [] { current_strategy(); });
    expect_error(Code::kFailedPrecondition, words, [] { has_strategy(); });
    expect_error(Code::kFailedPrecondition, words, [] { get_replica_context(); });
    expect_error(Code::kFailedPrecondition, words, [] { create_variable(scalar()); });
    expect_error(Code::kFailedPrecondition, words, [&] { const auto scope = a.scope(); });
  }
  EXPECT_FALSE(has_strategy());
  auto temporary = std::make_unique<Strategy::Scope>(*OneDeviceStrategy());
  expect_error(Code::kFailedPrecondition, {"OneDeviceStrategy", "has ended"},
               [] { create_variable(scalar()); });
  temporary->exit();
  EXPECT_FALSE(has_strategy());
}

TEST_F(ScopeTest, VariablesBelongToTheStrategyTheyAreMadeUnder) {
  const VariableOptions options = scalar();
  EXPECT_EQ(create_variable(options)->num_replicas(), 1);
  const auto scope = a.scope();
  EXPECT_EQ(create_variable(options)->num_replicas(), 3);
}

// --- What cannot be done inside a replica

// A call that is refused while a step of `strategy` is traced, whatever it is wrapped in.
void expect_refused_inside(Strategy& strategy, const std::string& method,
                           const std::string& instead, const std::function<void()>& call) {
  const auto step = strategy.function([&](Value x) {
    call();
    return x;
  });
  expect_error(Code::kFailedPrecondition, {strategy.name(), method, "inside a replica", instead},
               [&] { strategy.run(step, 1.0f); });
  const auto healthy = strategy.function([](Value x) { return x + 1.0; });
  EXPECT_EQ(strategy.run(healthy, 1.0f)[0].item(), 2) << "after the refusal of " << method;
}

TEST_F(ScopeTest, CrossReplicaMethodsInsideAReplicaSayWhatToCall) {
  const PerReplica<Tensor> values = {floats({1}), floats({2}), floats({3})};
  const auto other = a.function([](Value x) { return x; });
  expect_refused_inside(a, "run", "call", [&] { a.run(other, 1.0f); });
  expect_refused_inside(a, "reduce", "ReplicaContext::all_reduce",
                        [&] { a.reduce(ReduceOp::kSum, values); });
  expect_refused_inside(a, "reduce", "ReplicaContext::all_reduce",
                        [&] { a.reduce("mean", floats({1}), 0); });
  expect_refused_inside(a, "gather", "ReplicaContext::all_gather", [&] { a.gather(values, 0); });
  expect_refused_inside(a, "distribute_values_from_function", "replica", [&] {
    a.distribute_values_from_function([](const ValueContext&) { return floats({1}); });
  });
  expect_refused_inside(a, "scope", "already", [&] { const auto scope = a.scope(); });
}

TEST_F(ScopeTest, AStepThatRunsItselfIsRefusedBeforeItWaitsForItself) {
  std::function<void()> again;
  const auto step = a.function([&](Value x) {
    again();
    return x;
  });
  again = [&] { a.run(step, 1.0f); };
  expect_error(Code::kFailedPrecondition, {"run", "inside a replica"}, again);
}

TEST_F(ScopeTest, OtherStrategiesCannotRunInsideAReplicaEither) {
  const auto step = a.function([&](Value x) {
    b.run(b.function([](Value y) { return y; }), 1.0f);
    return x;
  });
  expect_error(Code::kFailedPrecondition, {"run", "inside a replica"}, [&] { a.run(step, 1.0f); });
  const auto entering = a.function([&](Value x) {
    const auto scope = b.scope();
    return x;
  });
  expect_error(Code::kFailedPrecondition, {"inside a replica"}, [&] { a.run(entering, 1.0f); });
}

TEST_F(ScopeTest, AnyTracedFunctionRefusesThemToo) {
  const auto f = function([&](Value x) {
    a.reduce(ReduceOp::kSum, PerReplica<Tensor>(3));
    return x;
  });
  const auto scope = a.scope();
  expect_error(Code::kFailedPrecondition, {"reduce", "traced"}, [&] { f({floats({1})}); });
}

TEST_F(ScopeTest, TwoThreadsUseOneStrategyInTurns) {
  constexpr int kRuns = 50;
  const auto doubled =
      a.function([](Value x) { return get_replica_context()->all_reduce(ReduceOp::kSum, x); });
  const auto gathered = a.function([](Value x) { return get_replica_context()->all_gather(x, 0); });
  const auto work = [&](bool first_sum) {
    for (int i = 0; i < kRuns; ++i) {
      const auto value = static_cast<float>(i);
      const auto sum = [&] { EXPECT_EQ(a.run(doubled, floats({value}))[2].item(), 3 * i); };
      const auto all = [&] {
        EXPECT_EQ(testing::elements(a.run(gathered, floats({value}))[1]),
                  std::vector<double>(3, i));
      };
      if (first_sum) sum();
      all();
      if (!first_sum) sum();
    }
  };
  std::thread other([&] { work(false); });
  work(true);
  other.join();
}

TEST_F(ScopeTest, StrategiesComeAndGoSideBySide) {
  for (int round = 0; round < 3; ++round) {
    for (int replicas : {1, 4, 2, 7}) {
      MirroredStrategy strategy({.devices = first_cpus(replicas)});
      const auto step = strategy.function(
          [](Value x) { return get_replica_context()->all_reduce(ReduceOp::kSum, x); });
      EXPECT_EQ(strategy.run(step, 1.0f)[0].item(), replicas);
    }
  }
}

// The thread's own variables go before those with static storage.
TEST(ScopeDeathTest, OneWithStaticStorageIsLeftAtTheEndOfTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static MirroredStrategy strategy({.devices = first_cpus(1)});
        static const Strategy::Scope scope = strategy.scope();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace cohort
