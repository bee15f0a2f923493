#include "core/base/progress.h"

#include <unistd.h>

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

TEST(Progress, ALineHasNoMoreColumnsThanThereAre) {
  Progress progress{.step = 12,
                    .steps = 100,
                    .seconds = 3,
                    .examples = 1536,
                    .values = {{"loss", 0.30118}, {"accuracy", 0.5}}};
  const std::string whole = progress_line(progress);
  progress.width = static_cast<int64_t>(whole.size());
  EXPECT_EQ(progress_line(progress), whole);
  progress.width = *progress.width - 20;
  EXPECT_EQ(progress_line(progress),
            "12/100 [=>........] - ETA: 22s 250ms/step 512 examples/s"
            " - accuracy: 0.5000 - loss: 0.3012");
  progress.width = 40;
  EXPECT_EQ(progress_line(progress), "12/100 [>.......] - ETA: 22s 250ms/step ");
  progress.width = 0;
  EXPECT_EQ(progress_line(progress), "");
}

TEST(Progress, ACharacterIsOneColumnAndNotCut) {
  const std::string line =
      progress_line({.step = 1, .seconds = 1, .values = {{"h\u00f6he", 1}}, .width = 31});
  EXPECT_EQ(line, "1/unknown - 1s 1s/step 0 exampl");
  EXPECT_EQ(progress_line({.step = 1, .values = {{"h\u00f6he", 1}}, .width = 29}),
            "1/unknown - 0s 0us/step - h\u00f6h");
}

TEST(Progress, WhatIsNoTerminalHasNoWidth) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(terminal_width(ends[1]), std::nullopt);
  for (const int end : ends) close(end);
}

TEST(Progress, Durations) {
  EXPECT_EQ(format_duration(59.9), "59s");
  EXPECT_EQ(format_duration(60), "1:00");
  EXPECT_EQ(format_duration(3725), "1:02:05");
  EXPECT_EQ(format_duration(-1), "0s");
}

}  // namespace
}  // namespace cohort
