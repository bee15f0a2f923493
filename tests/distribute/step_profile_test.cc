#include "core/distribute/step_profile.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/file.h"
#include "core/ops/math_ops.h"
#include "strategies/one_device_strategy.h"
#include "tests/testing/error_of.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(ProfiledSteps, AreOfATextWithAFileAndPerhapsARange) {
  EXPECT_FALSE(profiled_steps_of(nullptr));
  EXPECT_FALSE(profiled_steps_of(""));
  const auto usual = profiled_steps_of("trace.json");
  EXPECT_EQ(usual->file, "trace.json");
  EXPECT_EQ(usual->first, 10);
  EXPECT_EQ(usual->last, 12);
  const auto one = profiled_steps_of("/tmp/a:b.json:7-7");
  EXPECT_EQ(one->file, "/tmp/a:b.json");
  EXPECT_EQ(one->first, 7);
  EXPECT_EQ(one->last, 7);
}

TEST(ProfiledSteps, AreNotOfAnythingElse) {
  for (const char* text : {":", ":1-2", "a:", "a:5", "a:-", "a:5-", "a:-5", "a:0-5", "a:6-5",
                           "a:1-2x", "a: 1-2", "a:1--2", "a:1-99999999999999999999", "a:b.json"}) {
    const Error error = testing::error_of([&] { profiled_steps_of(text); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(error.message(), AllOf(HasSubstr(str("COHORT_PROFILE is \"", text, '"')),
                                       HasSubstr("allowed are FILE and FILE:FIRST-LAST")));
  }
}

class StepProfileTest : public ::testing::Test {
 protected:
  ~StepProfileTest() override { std::filesystem::remove(path_); }

  // Runs a step so often under a strategy that is made with this COHORT_PROFILE, and returns what
  // was said.
  static std::string run(const std::string& setting, int steps) {
    setenv("COHORT_PROFILE", setting.c_str(), 1);
    const auto strategy = OneDeviceStrategy("cpu:0");
    unsetenv("COHORT_PROFILE");
    CaptureStderr();
    const auto step = strategy->function([](Value x) { return ops::exp(x); });
    for (int i = 0; i < steps; ++i) strategy->run(step, 1.0f);
    return GetCapturedStderr();
  }
  // How often the kernel of the step is in the trace.
  int64_t count_traced() const {
    const auto trace = nlohmann::json::parse(read_file(path_)).at("traceEvents");
    return std::ranges::count_if(trace, [](const auto& event) { return event.at("ph") == "X"; });
  }

  const std::string path_ = ::testing::TempDir() + "/step_profile.json";
};

TEST_F(StepProfileTest, TracesTheStepsThatAreAskedForAndNoOthers) {
  EXPECT_THAT(run(path_ + ":3-4", 8), HasSubstr(str("a trace of steps 3 to 4 is in ", path_)));
  EXPECT_EQ(count_traced(), 2);
  EXPECT_FALSE(Profiler::is_active());
}

TEST_F(StepProfileTest, LeavesTheStepsOfTheProgramsOwnProfilerToIt) {
  const Profiler own;
  EXPECT_THAT(run(path_ + ":1-1", 2), HasSubstr("a profiler is active already"));
  EXPECT_EQ(own.events().size(), 2u);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(StepProfileTest, WhatCannotBeWrittenIsAWarning) {
  EXPECT_THAT(run("/no/such/folder/trace.json:1-1", 2), HasSubstr("warning: COHORT_PROFILE: "));
}

TEST_F(StepProfileTest, AStrategyThatEndsBeforeWritesWhatThereIsOrSaysSo) {
  Workers alone;
  const auto steps = [&](int64_t first, int count) {
    StepProfile profile(ProfiledSteps{.file = path_, .first = first, .last = 9});
    for (int i = 0; i < count; ++i) const StepProfile::Step step(profile, alone);
  };
  CaptureStderr();
  steps(2, 3);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("a trace of steps 2 to 3 is in "));
  CaptureStderr();
  steps(5, 3);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("step 5 has not come: there were 3"));
}

TEST_F(StepProfileTest, EachOfSeveralWorkersHasAFile) {
  struct Second : Workers {
    int rank() const override { return 1; }
    int size() const override { return 2; }
  } second;
  StepProfile profile(ProfiledSteps{.file = path_, .first = 1, .last = 1});
  CaptureStderr();
  { const StepProfile::Step step(profile, second); }
  EXPECT_THAT(GetCapturedStderr(), HasSubstr(path_ + ".rank1"));
  EXPECT_TRUE(std::filesystem::remove(path_ + ".rank1"));
}

TEST_F(StepProfileTest, AStrategyIsNotMadeWithAWrongOne) {
  EXPECT_EQ(testing::error_of([] { run("trace.json:x", 0); }).code(), Code::kInvalidArgument);
  unsetenv("COHORT_PROFILE");
}

}  // namespace
}  // namespace cohort
