// Tasks of a job that each train on their own devices alone, which the first of them tells.
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>

#include "strategies/central_storage_strategy.h"
#include "strategies/cluster/literal_resolver.h"
#include "strategies/mirrored_strategy.h"
#include "strategies/one_device_strategy.h"
#include "strategies/process_group.h"
#include "tests/train/testing.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kTold = " trains on the devices of this process alone";

// A process each: it is said once in one.
void expect_said(const std::string& config, const std::function<void()>& body,
                 const ::testing::Matcher<const std::string&>& said) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    setenv("TF_CONFIG", config.c_str(), 1);
    body();
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), said);
}

std::string task(const std::string& type, int index) {
  return str(R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": ")", type,
             R"(", "index": )", index, "}}");
}

void train() { classifier().fit(points(8).batch(4), {.verbose = Verbose::kSilent}); }
void make_mirrored() { MirroredStrategy strategy({.devices = {"cpu:0"}}); }
void make_central() { CentralStorageStrategy strategy({.compute_devices = {"cpu:0"}}); }

TEST(IgnoredClusterTest, IsToldByWhoeverIgnoresIt) {
  const std::pair<std::string, std::function<void()>> cases[] = {
      {"MirroredStrategy", make_mirrored},
      {"CentralStorageStrategy", make_central},
      {"OneDeviceStrategy", [] { OneDeviceStrategy(); }},
      {"fit() without a strategy", train}};
  for (const auto& [who, body] : cases)
    expect_said(task("worker", 0), body,
                AllOf(HasSubstr(str("warning: ", who, kTold)), HasSubstr("2 tasks"),
                      HasSubstr("MultiWorkerMirroredStrategy"), HasSubstr("TF_CONFIG='{}'")));
}

TEST(IgnoredClusterTest, IsToldOnce) {
  const auto both = [] {
    make_mirrored();
    make_central();
  };
  expect_said(task("worker", 0), both, Not(HasSubstr("CentralStorageStrategy")));
}

TEST(IgnoredClusterTest, IsNotToldWhereThatIsMeant) {
  const auto quiet = Not(HasSubstr(std::string(kTold)));
  for (const std::string& config : {std::string("{}"), task("worker", 1), task("evaluator", 0)})
    expect_said(config, make_mirrored, quiet);
  const auto beside_a_group = [] {
    const collective::ProcessGroup group({.resolver = std::make_shared<LiteralResolver>()});
    train();
  };
  expect_said(task("worker", 0), beside_a_group, quiet);
}

}  // namespace
}  // namespace cohort::testing
