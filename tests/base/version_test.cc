#include "core/base/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/file.h"

namespace cohort {
namespace {

TEST(Version, IsTheSameWhereverItIsAskedFor) {
  EXPECT_EQ(library_version(), COHORT_VERSION);
  EXPECT_EQ(COHORT_VERSION,
            str(COHORT_VERSION_MAJOR, ".", COHORT_VERSION_MINOR, ".", COHORT_VERSION_PATCH));
  EXPECT_THAT(read_file("version.bzl"),
              ::testing::HasSubstr("\nVERSION = \"" COHORT_VERSION "\"\n"));
}

}  // namespace
}  // namespace cohort
