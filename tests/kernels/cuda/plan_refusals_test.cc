#include "core/kernels/cuda/plan_refusals.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/kernels/cuda/plan_cache.h"
#include "tests/testing/error_of.h"

namespace cohort::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Device kGpu{DeviceType::kGpu, 0};

// As cudnnStatus_t numbers them.
constexpr int kNotInitialized = 1001, kBadShape = 2008, kUnsupportedShape = 3002,
              kNotCompiled = 4001, kNoHostMemory = 4003, kNoDeviceMemory = 4004, kCudart = 5003;

TEST(PlanRefusals, KnowWhatAStatusOfCudnnStandsFor) {
  for (const int status : {kBadShape, kUnsupportedShape})
    EXPECT_EQ(code_of_cudnn(status), Code::kUnimplemented) << status;
  for (const int status : {kNoHostMemory, kNoDeviceMemory})
    EXPECT_EQ(code_of_cudnn(status), Code::kResourceExhausted) << status;
  for (const int status : {kNotInitialized, kNotCompiled, kCudart}) {
    EXPECT_EQ(code_of_cudnn(status), Code::kInternal) << status;
    EXPECT_EQ(is_failure_of_cuda(status), status == kCudart) << status;
  }
}

TEST(PlanRefusals, TellWhatWasSaidFirst) {
  PlanRefusals refusals;
  refusals.add(kNotCompiled, "an engine is not compiled");
  refusals.add(kUnsupportedShape, "not this shape");
  const Error error = testing::error_of([&] { refusals.tell(); });
  EXPECT_EQ(error.code(), Code::kUnimplemented);
  EXPECT_THAT(error.message(), HasSubstr("an engine is not compiled"));
  EXPECT_THAT(error.message(), Not(HasSubstr("not this shape")));
}

TEST(PlanRefusals, TellAFailureOfCudaBeforeAnyRefusal) {
  PlanRefusals refusals;
  refusals.add(kUnsupportedShape, "not this shape");
  refusals.add(kCudart, "the context is gone");
  const Error error = testing::error_of([&] { refusals.tell(); });
  EXPECT_EQ(error.code(), Code::kInternal);
  EXPECT_THAT(error.message(), HasSubstr("the context is gone"));
}

TEST(PlanRefusals, ThrowForMemoryAtOnce) {
  PlanRefusals refusals;
  EXPECT_EQ(testing::error_of([&] { refusals.add(kNoDeviceMemory, "no memory"); }).code(),
            Code::kResourceExhausted);
}

// What stands for the plan of a problem, from a library that fails first by `code`.
class Planner {
 public:
  explicit Planner(Code code) : code_(code) {}

  std::shared_ptr<int> plan() {
    return cache_.find_or_make(kGpu, 1, [&] {
      return made_unless_refused(kGpu, "", [&] {
        if (calls_++ == 0) fail(code_, "not now");
        return std::make_shared<int>(7);
      });
    });
  }

 private:
  const Code code_;
  int calls_ = 0;
  PlanCache<int, int> cache_;
};

TEST(PlanRefusals, ThatThereIsNoPlanIsKept) {
  Planner planner(Code::kUnimplemented);
  for (int time = 0; time < 2; ++time) EXPECT_EQ(planner.plan(), nullptr);
}

TEST(PlanRefusals, AFailureIsThrownAndThePlanMadeTheNextTime) {
  for (const Code code : {Code::kInternal, Code::kUnavailable, Code::kResourceExhausted}) {
    Planner planner(code);
    EXPECT_EQ(testing::error_of([&] { planner.plan(); }).code(), code);
    const auto plan = planner.plan();
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(*plan, 7);
  }
}

}  // namespace
}  // namespace cohort::cuda
