#include "tests/kernels/cpu/kernel_testing.h"

#include <gtest/gtest-spi.h>

namespace cohort::testing {
namespace {

TEST(ExpectNear, TakesAnInfinityForItselfAlone) {
  expect_near({INFINITY, -INFINITY}, Tensor::from<float>({INFINITY, -INFINITY}, {2}), 0.1, "x");
  EXPECT_FATAL_FAILURE(expect_near({INFINITY}, Tensor::from<float>({1}, {1}), 0.1, "x"),
                       "x: element 0 is 1, expected inf");
  EXPECT_FATAL_FAILURE(expect_near({INFINITY}, Tensor::from<float>({-INFINITY}, {1}), 0.1, "x"),
                       "x: element 0 is -inf, expected inf");
  EXPECT_FATAL_FAILURE(expect_near({1}, Tensor::from<float>({INFINITY}, {1}), 0.1, "x"),
                       "x: element 0 is inf, expected 1");
}

TEST(ExpectNear, TakesNaNForItselfAlone) {
  expect_near({NAN}, Tensor::from<float>({NAN}, {1}), 0.1, "x");
  EXPECT_FATAL_FAILURE(expect_near({1}, Tensor::from<float>({NAN}, {1}), 0.1, "x"), "expected 1");
  EXPECT_FATAL_FAILURE(expect_near({NAN}, Tensor::from<float>({1}, {1}), 0.1, "x"), "expected nan");
}

TEST(ExpectNear, ToleratesErrorsRelativeToWhatIsExpected) {
  expect_near({0.01, 100}, Tensor::from<float>({0.1f, 109}, {2}), 0.1, "x");
  EXPECT_FATAL_FAILURE(expect_near({0.01}, Tensor::from<float>({0.2f}, {1}), 0.1, "x"), "is 0.2");
  EXPECT_FATAL_FAILURE(expect_near({100}, Tensor::from<float>({111}, {1}), 0.1, "x"), "is 111");
}

}  // namespace
}  // namespace cohort::testing
