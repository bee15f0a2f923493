// Strategies that keep all variables together.
#include <thread>

#include "strategies/central_storage_strategy.h"
#include "strategies/one_device_strategy.h"
#include "tests/distribute/testing.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::first_cpus;

std::shared_ptr<Variable> make(const std::string& name) {
  return create_variable({.name = name, .spec = {DType::kFloat32, {4}}, .initial_value = [] {
                            return Tensor::full(DType::kFloat32, {4}, 1);
                          }});
}

class ColocationTest : public testing::DevicesTest {
 protected:
  MirroredStrategy mirrored{{.devices = first_cpus(3)}};
  CentralStorageStrategy central{{.compute_devices = first_cpus(2), .parameter_device = "cpu:4"}};
};

TEST_F(ColocationTest, ChangesNothingWhereVariablesLiveTogether) {
  const std::unique_ptr<Strategy> one = OneDeviceStrategy("cpu:1");
  for (Strategy* strategy :
       {static_cast<Strategy*>(&mirrored), static_cast<Strategy*>(&central), one.get()}) {
    SCOPED_TRACE(strategy->name());
    const auto scope = strategy->scope();
    const auto first = make("first");
    const auto colocation = strategy->colocate_vars_with(first);
    const auto second = make("second");
    EXPECT_EQ(second->devices(), first->devices());
    EXPECT_EQ(second->num_replicas(), first->num_replicas());
  }
  const auto alone = make("alone");
  const auto colocation = default_strategy().colocate_vars_with(alone);
  EXPECT_EQ(make("beside")->devices(), alone->devices());
}

TEST_F(ColocationTest, TakesAReplicasOwnVariablesOfCentralStorage) {
  const auto scope = central.scope();
  const auto own = central.create_variable({.name = "own",
                                            .spec = {DType::kFloat32, {}},
                                            .initial_value = [] { return Tensor::scalar(0.0F); },
                                            .synchronization = Synchronization::kOnRead});
  const auto colocation = central.colocate_vars_with(own);
  EXPECT_EQ(make("v")->devices(), std::vector{central.parameter_device()});
}

TEST_F(ColocationTest, RefusesVariablesThatLiveElsewhere) {
  const auto alone = make("alone");
  {
    const auto scope = mirrored.scope();
    expect_error(Code::kInvalidArgument, {"MirroredStrategy", "\"alone\"", "elsewhere"},
                 [&] { (void)mirrored.colocate_vars_with(alone); });
    expect_error(Code::kInvalidArgument, {"needs a variable"},
                 [&] { (void)mirrored.colocate_vars_with(nullptr); });
    expect_error(Code::kFailedPrecondition,
                 {"CentralStorageStrategy", "MirroredStrategy is current"},
                 [&] { (void)central.colocate_vars_with(alone); });
  }
  const auto scope = central.scope();
  expect_error(Code::kInvalidArgument, {"\"alone\""},
               [&] { (void)central.colocate_vars_with(alone); });
}

TEST_F(ColocationTest, ExitEndsItEarlyAndOnce) {
  auto colocation = default_strategy().colocate_vars_with(make("alone"));
  colocation.exit();
  expect_error(Code::kFailedPrecondition, {"\"alone\"", "already"}, [&] { colocation.exit(); });
}

TEST_F(ColocationTest, ExitOutOfOrderIsRefusedAndNamesWhatIsOpen) {
  auto scope = mirrored.scope();
  auto outer = mirrored.colocate_vars_with(make("outer"));
  auto inner = mirrored.colocate_vars_with(make("inner"));
  auto again = mirrored.scope();
  expect_error(Code::kFailedPrecondition,
               {"\"outer\"", "not the innermost", "the scope of MirroredStrategy"},
               [&] { outer.exit(); });
  expect_error(Code::kFailedPrecondition, {"\"inner\"", "the scope of MirroredStrategy"},
               [&] { inner.exit(); });
  again.exit();
  expect_error(Code::kFailedPrecondition, {"the scope of MirroredStrategy", "\"inner\""},
               [&] { scope.exit(); });
  std::thread([&] {
    expect_error(Code::kFailedPrecondition, {"\"inner\"", "another thread"}, [&] { inner.exit(); });
  }).join();
  inner.exit();
  outer.exit();
  scope.exit();
  EXPECT_FALSE(has_strategy());
}

TEST_F(ColocationTest, AScopeDestroyedBeforeOneInsideItWarns) {
  auto scope = std::make_unique<Strategy::Scope>(mirrored);
  const auto inside = mirrored.colocate_vars_with(make("inside"));
  ::testing::internal::CaptureStderr();
  scope.reset();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "the scope of MirroredStrategy is left in another order"),
            std::string::npos);
  EXPECT_FALSE(has_strategy());
}

TEST_F(ColocationTest, OneDestroyedOutOfOrderWarnsAndEndsWithTheInnerOne) {
  const auto outer_variable = make("outer"), inner_variable = make("inner");
  const auto owners = outer_variable.use_count();
  auto outer = std::make_unique<Strategy::Colocation>(default_strategy(), outer_variable);
  auto inner = std::make_unique<Strategy::Colocation>(default_strategy(), inner_variable);
  ::testing::internal::CaptureStderr();
  outer.reset();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("\"outer\" is left in another order"),
            std::string::npos);
  EXPECT_GT(outer_variable.use_count(), owners);
  inner.reset();
  EXPECT_EQ(outer_variable.use_count(), owners) << "it ends with the inner one";
  ::testing::internal::CaptureStderr();
  auto next = std::make_unique<Strategy::Colocation>(default_strategy(), inner_variable);
  std::thread([&] { next.reset(); }).join();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("\"inner\" is left"), std::string::npos);
}

TEST_F(ColocationTest, IsOfOneStrategyAlone) {
  const auto outer = default_strategy().colocate_vars_with(make("alone"));
  const auto scope = mirrored.scope();
  EXPECT_EQ(make("mirrored")->num_replicas(), mirrored.num_replicas_in_sync());
}

}  // namespace
}  // namespace cohort
