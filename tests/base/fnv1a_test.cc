#include "core/base/fnv1a.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

// The first two are in the table of its authors; the third follows from the definition.
TEST(Fnv1a, GivesThePublishedHashes) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a("\xff"), (0xcbf29ce484222325u ^ 0xffu) * 0x100000001b3u);
}

TEST(Fnv1a, TakesBytesOfZero) {
  EXPECT_NE(fnv1a(std::string_view("\0", 1)), fnv1a(""));
  EXPECT_NE(fnv1a(std::string_view("\0", 1)), fnv1a(std::string_view("\0\0", 2)));
}

}  // namespace
}  // namespace cohort
