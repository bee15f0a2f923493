#include "core/base/progress.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Progress, LineOfAnEpochUnderWay) {
  EXPECT_EQ(progress_line({.step = 12,
                           .steps = 100,
                           .seconds = 3,
                           .examples = 1536,
                           .values = {{"loss", 0.30118}, {"accuracy", 0.5}}}),
            "12/100 [===>..........................] - ETA: 22s 250ms/step 512 examples/s"
            " - accuracy: 0.5000 - loss: 0.3012");
}

TEST(Progress, LineOfACompleteEpoch) {
  EXPECT_EQ(
      progress_line({.step = 100,
                     .steps = 100,
                     .seconds = 125,
                     .examples = 12800,
                     .values = {{"loss", 3.1e-5}}}),
      "100/100 [==============================] - 2:05 1s/step 102 examples/s - loss: 3.1000e-05");
}

TEST(Progress, LineWithoutAKnownEnd) {
  EXPECT_EQ(progress_line({.step = 5, .seconds = 0.01, .examples = 5}),
            "5/unknown - 0s 2ms/step 500 examples/s");
}

TEST(Progress, NothingDoneYet) {
  EXPECT_EQ(progress_line({.step = 0, .steps = 4}),
            "0/4 [>.............................] - ETA: 0s 0us/step");
}

TEST(Progress, Durations) {
  EXPECT_EQ(format_duration(59.9), "59s");
  EXPECT_EQ(format_duration(60), "1:00");
  EXPECT_EQ(format_duration(3725), "1:02:05");
  EXPECT_EQ(format_duration(-1), "0s");
}

}  // namespace
}  // namespace cohort
