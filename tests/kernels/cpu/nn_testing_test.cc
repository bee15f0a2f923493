#include "tests/kernels/cpu/nn_testing.h"

#include <gtest/gtest-spi.h>

namespace cohort {
namespace {

Tensor numbers(const std::vector<double>& values) {
  return Tensor::from<double>(values, {static_cast<int64_t>(values.size())});
}

TEST(ExpectClose, TakesAnInfinityForItselfAlone) {
  expect_close(numbers({INFINITY, -INFINITY}), numbers({INFINITY, -INFINITY}), 0.1, "x");
  EXPECT_NONFATAL_FAILURE(expect_close(numbers({1}), numbers({INFINITY}), 0.1, "x"), "x: ");
  EXPECT_NONFATAL_FAILURE(expect_close(numbers({-INFINITY}), numbers({INFINITY}), 0.1, "x"), "x: ");
  EXPECT_NONFATAL_FAILURE(expect_close(numbers({INFINITY}), numbers({1}), 0.1, "x"), "x: ");
  EXPECT_NONFATAL_FAILURE(expect_close(numbers({INFINITY, 9}), numbers({INFINITY, 1}), 0.1, "x"),
                          "x: ");
}

TEST(ExpectClose, TakesNoNaN) {
  EXPECT_NONFATAL_FAILURE(expect_close(numbers({NAN}), numbers({1}), 0.1, "x"), "x: ");
}

TEST(ExpectClose, ToleratesErrorsRelativeToTheLargestNumberThere) {
  expect_close(numbers({9, 100}), numbers({1, 100}), 0.1, "x");
  EXPECT_NONFATAL_FAILURE(expect_close(numbers({12, 100}), numbers({1, 100}), 0.1, "x"), "x: ");
}

}  // namespace
}  // namespace cohort
